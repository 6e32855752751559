"""Every registered method and suite comes back from its trial's settings as it was, type for type."""

import dataclasses
import json
from typing import Any

import pytest

from harness import assemble, registry
from harness.config import method
from harness.errors import UserError
from harness.fields import build, fields_of, to_json
from harness.suite import Budget
from harness.types import Trial


def labels() -> list[str]:
    """Every method, and every preset of it."""
    found = []
    for name in registry.algorithms():
        found += [name, *(f"{name}@{preset}" for preset in registry.algorithm(name).presets)]
    return found


def values(instance: Any) -> dict[str, Any]:
    return {f.name: getattr(instance, f.name) for f in dataclasses.fields(instance)}


def sent(label: str, algorithm: Any, suite: Any, task: str, budget: Budget) -> Trial:
    """The trial as a process receives it: through JSON."""
    settings = {
        "algorithm": to_json(type(algorithm), values(algorithm)),
        "suite": to_json(type(suite), values(suite)),
        "budget": to_json(Budget, values(budget)),
        "engine": "any",
    }
    trial = Trial("contract", suite.name, task, label, 0, settings)
    return Trial(**json.loads(json.dumps(dataclasses.asdict(trial))))


def same(made: Any, original: Any) -> None:
    assert made == original
    for name, value in values(original).items():
        assert type(getattr(made, name)) is type(value), name


@pytest.mark.parametrize("label", labels())
def test_a_method(label: str) -> None:
    algorithm, suite = method(label), registry.suite("matrix")()
    found, again, task, budget = assemble.build(sent(label, algorithm, suite, "climbing", suite.budgets["smoke"]))
    same(found, algorithm)
    same(again, suite)
    same(budget, suite.budgets["smoke"])
    assert task == suite.tasks()["climbing"]


@pytest.mark.parametrize("name", registry.suites())
def test_a_suite(name: str) -> None:
    suite = registry.suite(name)()
    task = suite.default_tasks[0]
    label = next(n for n in suite.algorithms if suite.tasks()[task].action in registry.algorithm(n).actions)
    algorithm = method(label, name, suite.tasks()[task].action)
    for limits in suite.budgets.values():
        found, again, made, budget = assemble.build(sent(label, algorithm, suite, task, limits))
        same(found, algorithm)
        same(again, suite)
        same(budget, limits)
        assert made == suite.tasks()[task]


@pytest.mark.parametrize("name", registry.algorithms())
def test_no_number_of_a_method_is_without_its_range(name: str) -> None:
    """A field that no value is wrong for would be refused nowhere, and fail or mislead somewhere."""
    for field in fields_of(registry.algorithm(name)).values():
        if isinstance(field.default, (int, float)) and not isinstance(field.default, bool):
            with pytest.raises(UserError, match=rf"{name}\.{field.name}: expected"):
                build(registry.algorithm(name), {field.name: -7 if isinstance(field.default, int) else -7.5}, name)
