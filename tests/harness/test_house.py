"""Who may import whom, read from the source: the house's walls (docs: README, "How it is built")."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import registry

ROOT = Path(__file__).parents[2]
SOURCES = {
    str(path.relative_to(ROOT)).removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
    for room in ("harness", "algorithms", "suites")
    for path in sorted((ROOT / room).rglob("*.py"))
}
HARNESS = {n for n in SOURCES if n.split(".")[0] == "harness"}
METHODS = {n for n in SOURCES if n.split(".")[0] == "algorithms"}
SUITES = {n for n in SOURCES if n.split(".")[0] == "suites"}


def imports(name: str, lazy: bool = True) -> set[str]:
    """Modules that a module imports; those inside functions only when ``lazy``; never those for type checking alone."""
    path = SOURCES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found: set[str] = set()
    for node in walk(ast.parse(path.read_text()), lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            for alias in node.names:
                full = f"{base}.{alias.name}"
                found.add(full if full in SOURCES else base)
    return found


def walk(tree: ast.AST, lazy: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not lazy and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        yield node
        yield from walk(node, lazy)


def reached(name: str) -> set[str]:
    """Everything that importing a module imports, itself and other packages included."""
    seen, todo = set(), [name]
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        if module in SOURCES:
            parents = [module.rsplit(".", k)[0] for k in range(1, module.count(".") + 1)]
            todo += [*imports(module, lazy=False), *parents]
    return seen


def within(name: str, *rooms: str) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def strings(name: str) -> Iterator[tuple[int, str]]:
    """String constants of a module that are not documentation, with their lines."""
    tree = ast.parse(SOURCES[name].read_text())
    docs = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_there_is_a_house() -> None:
    assert {"harness.trial", "harness.learner", "harness.store"} <= HARNESS
    assert len(METHODS) > 5
    assert len(SUITES) > 5


# -- rooms ------------------------------------------------------------------------------------------------------------


def test_algorithms_and_suites_never_see_each_other() -> None:
    for name in METHODS:
        assert not [m for m in imports(name) if within(m, "suites")], name
    for name in SUITES:
        assert not [m for m in imports(name) if within(m, "algorithms")], name


def test_the_machine_imports_no_method_and_no_suite() -> None:
    for name in HARNESS:
        assert not [m for m in imports(name) if within(m, "algorithms", "suites")], name


def test_methods_see_shared_equations_and_the_contracts_alone() -> None:
    allowed = ("algorithms.parts", "harness.types", "harness.algorithm", "harness.networks")
    for name in METHODS:
        ours = [m for m in imports(name) if within(m, "algorithms", "harness", "suites")]
        assert not [m for m in ours if not within(m, *allowed)], (name, ours)


def test_no_method_imports_another() -> None:
    for name in METHODS:
        assert not [m for m in imports(name) if within(m, "algorithms") and not within(m, "algorithms.parts")], name


def test_suites_see_adapters_and_the_contracts_alone() -> None:
    for name in SUITES:
        own = ".".join(name.split(".")[:2])
        allowed = (
            own,
            "suites.adapters",
            "harness.types",
            "harness.suite",
            "harness.errors",
            "harness.seeds",
            "harness.life",
            "harness.scene",
        )
        ours = [m for m in imports(name) if within(m, "algorithms", "harness", "suites")]
        assert not [m for m in ours if not within(m, *allowed)], (name, ours)


@pytest.mark.parametrize(
    "module", ["types", "errors", "suite", "algorithm", "seeds", "networks", "replay", "learner", "collect"]
)
def test_the_core_imports_nothing_above_it(module: str) -> None:
    """types is the bottom; learner, replay, collection and the contracts know of no store, command line or report."""
    above = tuple(
        f"harness.{m}"
        for m in (
            "trial",
            "store",
            "checkpoint",
            "runner",
            "plan",
            "cli",
            "config",
            "executors",
            "reporting",
            "analysis",
            "cdm",
        )
    )
    assert not [m for m in reached(f"harness.{module}") if within(m, *above)]


def test_what_types_and_errors_need() -> None:
    assert not [m for m in imports("harness.types") if within(m, "harness")]
    assert not [m for m in imports("harness.errors") if within(m, "harness")]


def test_one_trial_knows_nothing_of_the_runner_or_the_command_line() -> None:
    above = ("runner", "plan", "cli", "config", "executors", "reporting", "analysis", "tracking", "display")
    assert not [m for m in reached("harness.trial") if within(m, *(f"harness.{a}" for a in above))]


def test_analysis_and_reading_results_never_import_torch() -> None:
    for name in [n for n in HARNESS if within(n, "harness.analysis", "harness.reporting", "harness.store")]:
        heavy = [
            m for m in reached(name) if within(m, "torch", "jax", "harness.types", "harness.trial", "harness.learner")
        ]
        assert not heavy, (name, heavy)
        assert not [m for m in imports(name) if within(m, "torch", "jax")], name


def test_analysis_sees_the_store_alone() -> None:
    for name in [n for n in HARNESS if within(n, "harness.analysis")]:
        ours = [m for m in imports(name) if within(m, "harness")]
        below = ("harness.analysis", "harness.store", "harness.archive", "harness.errors")
        assert not [m for m in ours if not within(m, *below)], (name, ours)


def test_the_command_line_starts_without_torch() -> None:
    assert not [m for m in reached("harness.cli") if within(m, "torch", "jax", "pandas", "matplotlib")]


# -- names ------------------------------------------------------------------------------------------------------------


def test_nothing_in_the_machine_names_a_method_or_a_suite() -> None:
    """No string in it is one of their names; examples in documentation and in sentences are for people."""
    names = {*registry.algorithms(), *registry.suites()}
    for module in HARNESS:
        for line, text in strings(module):
            assert text not in names, f"{module}:{line}: {text!r}"


# -- privileges -------------------------------------------------------------------------------------------------------


def calls(name: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(SOURCES[name].read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, node.lineno


def test_only_the_learner_calls_backward() -> None:
    found = {name for name in SOURCES for attr, _ in calls(name) if attr == "backward"}
    assert found == {"harness.learner"}


def test_only_the_learner_steps_an_optimiser() -> None:
    found = {n for n in SOURCES if re.search(r"torch\.optim|from torch import .*\boptim\b", SOURCES[n].read_text())}
    assert found == {"harness.learner"}


def test_losses_move_nothing_off_the_device_and_select_by_no_mask() -> None:
    for name in METHODS:
        for attr, line in calls(name):
            assert attr not in ("item", "tolist", "numpy", "cpu", "cuda", "nonzero", "masked_select"), (
                f"{name}:{line}: {attr}"
            )


def test_no_role_reads_a_global_generator() -> None:
    """torch's where layers are born (assemble), under fork_rng; nothing of random's or numpy's globals."""
    for name in SOURCES:
        text = SOURCES[name].read_text()
        seeded = re.findall(
            r"torch\.manual_seed|torch\.default_generator|torch\.seed\(|(?<![\w.])random\.(?!Random\b)\w+\("
            r"|np\.random\.(?!SeedSequence|Generator|default_rng|PCG64|MT19937|RandomState)\w+",
            text,
        )
        allowed = {"harness.assemble": ["torch.default_generator"]}
        if within(name, "suites.adapters"):  # worker processes of engines that read globals seed them there
            continue
        assert seeded == allowed.get(name, []), (name, seeded)


def test_a_trial_writes_through_store_and_checkpoint_alone() -> None:
    """Of all that a trial's process imports, these two alone write files, and trial removes the old final.csv."""
    below = sorted(m for m in reached("harness.trial") if m in HARNESS)
    assert "harness.store" in below
    for name in below:
        if name in ("harness.store", "harness.checkpoint"):
            continue
        text = SOURCES[name].read_text()
        assert not re.search(
            r"\bopen\(|write_text|write_bytes|to_csv|torch\.save|savefig|os\.replace|np\.save", text
        ), name
        removed = [line for attr, line in calls(name) if attr == "unlink"]
        assert len(removed) <= (name == "harness.trial"), name


def test_checkpoints_are_read_as_data_never_as_code() -> None:
    for name in SOURCES:
        text = SOURCES[name].read_text()
        for call in re.findall(r"torch\.load\([^)]*\)", text):
            assert "weights_only=True" in call, (name, call)
        assert not re.search(r"^\s*(import pickle|from pickle)|np\.load\(.*allow_pickle=True", text, re.M) or within(
            name, "suites.adapters", "harness.executors"
        ), name
