"""``key=value`` -> typed, validated settings of one experiment.

Keys: what to run (``Choice``), how much (the fields of ``harness.suite.Budget``), how it is run (``Options``), the
suite's own fields (``engine=smax``) and overrides of a method's fields (``qmix.lr=3e-4``, ``qmix@pymarl2.lr=1e-3``).
Variants of a method stand side by side by their labels (``harness.variant``).
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt

from harness import registry, tracking, variant
from harness.cdm import corrupt
from harness.errors import UserError, unknown
from harness.fields import build, fields_of, from_text, to_json
from harness.store import REFERENCE
from harness.suite import Budget, Suite, Task
from harness.types import Trial

Count = Annotated[int, Ge(1)]
Names = tuple[str, ...]


@dataclass(frozen=True)
class Choice:
    """What is run. Lists are separated by commas."""

    suite: str = ""
    """Suite of tasks; the one thing that must be said."""
    tasks: Names = ()
    """Tasks by name. Default: the suite's own choice."""
    algorithms: Names = ()
    """Methods by name; variants of one after @, presets and settings joined by +: qmix@pymarl2, mcem@mixer=linear.
    Default: the suite's own choice."""
    seeds: str = ""
    """How many (seeds=5 is 0 to 4), or which (seeds=0,3,7; one alone: seeds=7,). Default: the budget's number."""
    budget: str = "quick"
    """smoke (seconds a trial), quick (minutes) or paper (the published protocol); its parts can be overridden below."""
    corrupt: str = ""
    """One agent plays badly for a while in training: agent:0,from:1e5,to:2e5,policy:uniform. Default: none does."""
    cdm: Literal["off", "on", "final"] = "off"
    """Centralised-decentralised mismatch: on, measured at every evaluation; final, at the last. Trains the same."""


@dataclass(frozen=True)
class Options:
    """How it is run; none of these is part of what a trial computes."""

    name: str = ""
    """Of the experiment, its folder below results. Default: <suite>-<budget>."""
    results: str = "results"
    """Folder of all experiments."""
    workers: Count | None = None
    """Trials at once. Default: one a core, or trials_per_gpu on each GPU."""
    trials_per_gpu: Count = 1
    """Trials that share a GPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto is the GPU where there is one."""
    retries: Annotated[int, Ge(0)] = 1
    """How often a trial that failed is tried again, from its checkpoint."""
    stall_timeout: Annotated[float, Gt(0)] = 600.0
    """Seconds without a sign of life after which a trial is stopped as hung."""
    max_memory: str = ""
    """Most that the replays of the trials at once may take, e.g. 8GB. Default: 80% of the machine's memory."""
    tracking: Literal["off", "mlflow"] = "off"
    """mlflow: log parameters, metrics and status of every trial there as well, from a process beside the runner."""
    tracking_uri: str = ""
    """Where: sqlite:///results/mlflow.db, http://host:5000. Default: mlflow.db beside the results."""
    profile: Literal["off", "on"] = "off"
    """on: note where each trial's time goes, in its trial.json, and show it at the end. Computes the same."""


@dataclass(frozen=True)
class Experiment:
    """A checked request: every trial of it could start."""

    choice: Choice
    options: Options
    suite: Any
    engine: str
    budget: Budget
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    methods: Mapping[tuple[str, str], Any]
    """(task, label) -> the method with its fields set, in the order of the request."""
    notes: tuple[str, ...] = ()
    """What the user should know, a line each: what was left out, which engine was taken."""

    @property
    def name(self) -> str:
        """Of the experiment's folder."""
        return self.options.name or f"{self.choice.suite}-{self.choice.budget}"

    def trials(self, device: str) -> list[Trial]:
        """All trials, the first seed of everything before the second of anything."""
        corruption = corrupt.parse(self.choice.corrupt)
        common: dict[str, Any] = {
            "suite": to_json(type(self.suite), dataclasses.asdict(self.suite)),
            "budget": to_json(Budget, dataclasses.asdict(self.budget)),
            "engine": self.engine,
        }
        if corruption is not None:  # settings of trials without are those that they always were
            common["corrupt"] = str(corruption)
        if self.choice.cdm != "off":
            common["cdm"] = self.choice.cdm == "on" or self.choice.cdm
        return [
            Trial(
                experiment=self.name,
                suite=self.choice.suite,
                task=task,
                algorithm=label,
                seed=seed,
                settings={"algorithm": to_json(type(method), _values(method)), **common},
                results=self.options.results,
                device=device,
            )
            for seed in self.seeds
            for (task, label), method in self.methods.items()
        ]


def _values(instance: Any) -> dict[str, Any]:
    return {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}


# -- from the command line ----------------------------------------------------------------------------------------


def parse(arguments: Iterable[str]) -> Experiment:
    """The experiment that ``key=value`` arguments ask for. Raises ``UserError`` for whatever is wrong with them."""
    given = _pairs(arguments)
    if not given.get("suite"):
        if near := difflib.get_close_matches("suite", given, n=1, cutoff=0.6):
            raise UserError(f"unknown key {near[0]!r}; did you mean 'suite'?")
        raise UserError(
            "which suite? e.g. suite=" + next(iter(registry.suites()), "NAME") + "; `harness list suites` shows all"
        )
    suite_class = registry.suite(given["suite"])
    suite_fields = fields_of(suite_class)
    overrides = {k: v for k, v in given.items() if "." in k}
    values = {k: v for k, v in given.items() if k not in overrides}
    _known(values, suite_fields, suite_class)

    for key in ("tasks", "algorithms"):
        if values.get(key, "").strip() and not values[key].strip(" ,"):
            raise UserError(f"{key}={values[key]}: none in it")
    choice, options = _typed(Choice, values), _typed(Options, values)
    choice = dataclasses.replace(choice, algorithms=tuple(variant.read(label).label for label in choice.algorithms))
    suite = build(suite_class, to_json(suite_class, _given(suite_class, values)), choice.suite)
    _check_name(options.name)
    _tracking(options)
    if choice.budget not in suite.budgets:
        raise unknown(f"budget of {choice.suite}", choice.budget, suite.budgets)
    budget = dataclasses.replace(suite.budgets[choice.budget], **_given(Budget, values))
    for part in dataclasses.fields(Budget):
        if getattr(budget, part.name) < 1:
            raise UserError(f"{part.name}={getattr(budget, part.name)}: must be at least 1")
    tasks = _tasks(choice, suite)
    _corrupt(choice, suite, tasks, budget)
    methods, notes = _methods(choice, suite, tasks, _overrides(overrides))
    engine = suite.engine_version()
    return Experiment(
        choice,
        options,
        suite,
        engine,
        budget,
        tasks,
        _seeds(choice.seeds, budget),
        methods,
        (f"engine: {engine}", *notes),
    )


def _pairs(arguments: Iterable[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or not key:
            raise UserError(f"{argument!r}: settings are written key=value, e.g. suite=smac")
        if key in given:
            raise UserError(f"{key} is given twice: {key}={given[key]} and {argument}")
        if not value.strip():
            raise UserError(f"{key}= has no value")
        given[key] = value.strip()
    return given


def _known(values: Mapping[str, str], suite_fields: Iterable[str], suite: Any) -> None:
    """Every key means something; a method's field without the method's name is the commonest slip."""
    parts = [f.name for f in dataclasses.fields(Budget) if f.name != "seeds"]
    known = [f.name for c in (Choice, Options) for f in dataclasses.fields(c)] + parts + list(suite_fields)
    for key in values:
        if key in known:
            continue
        if "@" in key:
            raise UserError(f"{key}={values[key]}: a variant is one of the algorithms: algorithms={key}={values[key]}")
        asked = [variant.base(x) for x in values.get("algorithms", "").split(",") if x.strip()]
        among = [n for n in asked or suite.algorithms if n in registry.algorithms()]
        owners = [n for n in among if key in fields_of(registry.algorithm(n))]
        if owners:
            raise UserError(f"unknown key {key!r}; did you mean {owners[0] + '.' + key!r}?")
        raise unknown("key", key, known)


def _given(cls: type, values: Mapping[str, str]) -> dict[str, Any]:
    """The fields of ``cls`` among ``values``, typed. ``seeds`` is read by itself."""
    found = fields_of(cls).items()
    return {k: from_text(values[k], f.type, k) for k, f in found if k in values and (cls is not Budget or k != "seeds")}


def _typed(cls: type, values: Mapping[str, str]) -> Any:
    return cls(**_given(cls, values))


def _check_name(name: str) -> None:
    if name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+@-]*", name):
        raise UserError(f"name={name}: a folder's name, of letters, digits and _.+@- (the place is said by results=)")
    if name.lower() == REFERENCE:
        raise UserError(f"name={name}: that folder holds the results that came with the repository; take another name")


def _tracking(options: Options) -> None:
    if options.tracking != "off":
        tracking.check(options.tracking_uri)
    elif options.tracking_uri:
        raise UserError(f"tracking_uri={options.tracking_uri}: nothing is tracked without tracking=mlflow")


def _distinct(key: str, names: Sequence[Any]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{key}: {name} is given twice")


def _seeds(text: str, budget: Budget) -> tuple[int, ...]:
    if not text:
        return tuple(range(budget.seeds))
    if "," in text or text.startswith("["):
        listed = text.strip("[], ")
        if not listed:
            raise UserError(f"seeds={text}: no seed in it")
        seeds = from_text(listed, tuple[int, ...], "seeds")
        _distinct("seeds", seeds)
        if any(s < 0 for s in seeds):
            raise UserError(f"seeds={text}: a seed is at least 0")
        return tuple(seeds)
    number = from_text(text, int, "seeds")
    if number < 1:
        raise UserError(
            f"seeds={text}: the number of seeds, at least 1; seed {abs(number)} alone is seeds={abs(number)},"
        )
    return tuple(range(number))


def _tasks(choice: Choice, suite: Suite) -> tuple[Task, ...]:
    known, names = suite.tasks(), choice.tasks or suite.default_tasks
    _distinct("tasks", names)
    for name in names:
        if name not in known:
            raise unknown(f"task of {choice.suite}", name, known)
    return tuple(known[n] for n in names)


def _corrupt(choice: Choice, suite: Any, tasks: Sequence[Task], budget: Budget) -> None:
    """A bad spell that would never come, or an agent that is not there; a suite that tells no sizes without being
    started is asked by the trial."""
    found = corrupt.parse(choice.corrupt)
    if found is None:
        return
    if found.start >= budget.env_steps:
        raise UserError(f"corrupt: from:{found.start} is not before the end of training, env_steps={budget.env_steps}")
    if tell := getattr(suite, "spec", None):
        for task in tasks:
            found.check(tell(task.name))


# -- methods ------------------------------------------------------------------------------------------------------


def _overrides(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Label or name -> field -> text."""
    found: dict[str, dict[str, str]] = {}
    for key, text in given.items():
        label, _, name = key.rpartition(".")
        found.setdefault(label, {})[name] = text
    return found


def method(
    label: str, suite: str = "", action: str = "", overrides: Mapping[str, Mapping[str, str]] | None = None
) -> Any:
    """A method with its fields set.

    Later wins: defaults, the preset named like the action kind, the label's presets or else those named like the
    suite and SUITE-KIND, overrides of its name, the label's settings, overrides of its label.
    """
    found = variant.read(label)
    cls, name = found.cls, found.name
    fields = fields_of(cls)
    values: dict[str, Any] = {}
    kind, *places = variant.taken_by_default(suite, action)
    for layer in (kind, *(found.presets or places)):
        values.update(variant.presets_of(cls).get(layer, {}))
    values = to_json(cls, values) if all(k in fields for k in values) else dict(values)
    texts = overrides or {}
    for key in dict.fromkeys((name, found.label)):
        for field_name, text in texts.get(key, {}).items():
            if field_name not in fields:
                raise unknown(f"field of {name}", field_name, fields)
            kind = fields[field_name].type
            values.update(to_json(cls, {field_name: from_text(text, kind, f"{key}.{field_name}")}))
        if key == name:
            values.update(found.settings)
    return build(cls, values, found.label)


def _methods(
    choice: Choice, suite: Any, tasks: Sequence[Task], overrides: Mapping[str, Mapping[str, str]]
) -> tuple[dict[tuple[str, str], Any], list[str]]:
    """(task, label) -> method, and a line for each default task or default method that was left out; what was asked
    for and cannot be is refused."""
    labels, notes = choice.algorithms, []
    _distinct("algorithms", labels)
    if not labels:
        labels = tuple(n for n in suite.algorithms if n in registry.algorithms())
        if missing := [n for n in suite.algorithms if n not in labels]:
            notes.append(f"left out: {', '.join(missing)} (not installed)")
    for owner in overrides:
        if owner not in labels and owner not in map(variant.base, labels):
            raise _stray(owner, overrides[owner], labels)
    found: dict[tuple[str, str], Any] = {}
    for label in labels:
        cls, name = registry.algorithm(variant.base(label)), variant.base(label)
        cannot = [t for t in tasks if t.action not in cls.actions]
        if cannot and choice.algorithms and (choice.tasks or len(cannot) == len(tasks)):
            plays = " and ".join(sorted(cls.actions))
            raise UserError(
                f"{name} plays {plays} actions; {cannot[0].name} of {choice.suite} has {cannot[0].action} ones"
            )
        if cannot:
            notes.append(f"left out: {name} on {', '.join(t.name for t in cannot)} ({cannot[0].action} actions)")
        for task in tasks:
            if task not in cannot:
                found[task.name, label] = method(label, choice.suite, task.action, overrides)
    if not found:
        raise UserError(
            f"no default method of {choice.suite} can play {', '.join(t.name for t in tasks)}; say algorithms="
        )
    return {(t.name, label): found[t.name, label] for t in tasks for label in labels if (t.name, label) in found}, notes


def _stray(owner: str, fields: Mapping[str, str], labels: Sequence[str]) -> UserError:
    """An override of a method that is not run."""
    name = next(iter(fields))
    if variant.base(owner) in registry.algorithms():
        variant.read(owner)
        return UserError(f"{owner}.{name}: {owner} is not among the algorithms of this run ({', '.join(labels)})")
    return unknown(f"algorithm in {owner}.{name}:", owner, labels)
