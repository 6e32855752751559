import hashlib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness import registry
from harness.errors import UserError, unknown


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what installed packages have registered."""

    def put(*found: EntryPoint) -> None:
        monkeypatch.setattr(registry, "entry_points", lambda group: [e for e in found if e.group == group])
        registry._entries.cache_clear()

    yield put
    registry._entries.cache_clear()


def method(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.ALGORITHMS)


def test_built_ins_are_found_as_a_third_partys_are(fake_marl: ModuleType) -> None:
    assert "fake" in registry.algorithms()
    assert "toy" in registry.suites()
    assert registry.algorithm("fake") is fake_marl.Fake
    assert registry.suite("toy") is fake_marl.Toy
    assert {"vdn", "qmix", "ippo"} <= set(registry.algorithms())
    assert {"smac", "matrix"} <= set(registry.suites())


def test_names_are_sorted() -> None:
    assert list(registry.algorithms()) == sorted(registry.algorithms())
    assert list(registry.suites()) == sorted(registry.suites())


@pytest.mark.parametrize(("typed", "meant"), [("qmx", "qmix"), ("ipo", "ippo"), ("VDN", "vdn"), ("vdn2", "vdn")])
def test_a_slip_is_answered_with_the_nearest_name(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown algorithm '{typed}'; did you mean '{meant}'"):
        registry.algorithm(typed)


def test_what_resembles_nothing_is_answered_with_all_there_is() -> None:
    with pytest.raises(UserError, match=r"unknown suite 'zzzzzz'; known: .*matrix.*smac"):
        registry.suite("zzzzzz")


def test_nothing_is_imported_before_it_is_asked_for(entries: Any) -> None:
    entries(method("broken", "no_such_package.module:Thing"), method("works", "algorithms.iql:IQL"))
    assert registry.algorithms() == ("broken", "works")
    with pytest.raises(
        UserError, match=r"'broken' \(no_such_package\.module:Thing\) cannot be imported: No module named"
    ):
        registry.algorithm("broken")
    assert registry.algorithm("works").__name__ == "IQL"


def test_an_entry_point_to_nothing_is_named(entries: Any) -> None:
    entries(method("gone", "collections:NoSuchClass"))
    with pytest.raises(UserError, match=r"'gone' \(collections:NoSuchClass\) cannot be imported"):
        registry.algorithm("gone")


def test_a_name_taken_twice_is_refused_and_both_are_named(entries: Any) -> None:
    entries(method("same", "a:B"), method("same", "c:D"))
    with pytest.raises(UserError, match=r"'same' is registered twice, by a:B and by c:D"):
        registry.algorithms()


def test_the_same_entry_seen_twice_is_one(entries: Any) -> None:
    """An editable and an ordinary installation of one package both list it."""
    entries(method("same", "a:B"), method("same", "a:B"))
    assert registry.algorithms() == ("same",)


def test_unknown_is_one_line() -> None:
    assert "\n" not in str(unknown("task of smac", "3mm", ["3m", "2s3z"]))


def test_the_source_of_a_name_is_its_package_and_the_file_of_its_class() -> None:
    found = registry.source(registry.ALGORITHMS, "qmix")
    import algorithms.qmix

    assert found["sha256"] == hashlib.sha256(Path(algorithms.qmix.__file__).read_bytes()).hexdigest()
    assert {"package", "version"} <= set(found)


def test_the_source_of_what_has_no_file_is_what_is_known(entries: Any) -> None:
    entries(method("works", "builtins:dict"))
    assert "sha256" not in registry.source(registry.ALGORITHMS, "works")
