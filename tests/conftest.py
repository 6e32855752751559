"""Shared fixtures.

``fake_marl``: the package tests/plugins/fake_marl.py, found through entry points as a third party's would be, here and
in every process started from the test. It brings the methods ``fake`` and ``fake_continuous``, the suite ``toy``, and
``fake_marl:run``, a trial function to use in place of ``harness.trial:run``; ``fake_target`` puts it there.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from harness import registry

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture
def fake_marl(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PLUGINS))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(PLUGINS), os.environ.get("PYTHONPATH", "")])))
    importlib.invalidate_caches()
    registry._entries.cache_clear()
    yield importlib.import_module("fake_marl")
    registry._entries.cache_clear()


@pytest.fixture
def fake_target(fake_marl: ModuleType, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr("harness.executors.local.TARGET", "fake_marl:run")
    return fake_marl
