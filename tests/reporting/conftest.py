"""Made-up results for the tests of this folder."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    """tests/analysis/synthetic.py."""
    name = "reporting_synthetic"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "analysis" / "synthetic.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
