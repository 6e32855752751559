"""A trial killed outright at random moments, with no chance to say goodbye, ends with the bytes of one never killed."""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path

import pytest

from harness.store import TrialFolder
from harness.types import Trial
from tests.support.episodes import method_kinds
from tests.support.trials import finish, identical, state, tables, tiny

KILLS = int(os.environ.get("HARNESS_KILLS", "3"))
"""Kills of each method and action kind."""


def killed(trial: Trial, after: float) -> bool:
    """Run it in a process of its own and SIGKILL that after so many seconds; False when it had ended by then."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            finish(trial)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)  # not yet waited for, so it is there, ended or not
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, f"the trial failed in its own process: {TrialFolder.of(trial).path}"
        return False
    return True


@pytest.mark.parametrize(("name", "kind"), method_kinds())
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path: Path, name: str, kind: str) -> None:
    budget = {"env_steps": 600, "eval_every": 200, "checkpoint_every": 40}
    undisturbed = tiny(tmp_path / "whole", name, kind, **budget)
    began = time.monotonic()
    whole = finish(undisturbed)
    takes = time.monotonic() - began
    trial = tiny(tmp_path / "killed", name, kind, **budget)
    draw = random.Random(f"{name} {kind}")
    kills = sum(killed(trial, draw.uniform(0, takes / 2)) for _ in range(KILLS))
    assert kills > 0
    resumed = finish(trial)
    assert tables(whole) == tables(resumed)
    identical(state(whole), state(resumed))
