"""The README's third-party package: installed as a user would, run from the command line, its equation checked."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
import torch

from algorithms.iql import IQL
from harness.types import Batch
from tests.support.episodes import DISCRETE, batch_of, networks

EXAMPLE = Path(__file__).parents[2] / "examples" / "hysteretic"


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hysteretic", EXAMPLE / "hysteretic.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules["hysteretic"] = found
    spec.loader.exec_module(found)
    return found


def loss(algorithm: object, batch: Batch) -> tuple[float, dict[str, torch.Tensor]]:
    net, target = networks(algorithm, DISCRETE, 0), networks(algorithm, DISCRETE, 1)  # type: ignore[arg-type]
    value, metrics = algorithm.td(net, target, batch, torch.Generator())  # type: ignore[attr-defined]
    return float(value.detach()), metrics


def test_beta_one_is_independent_q_learning(module: ModuleType) -> None:
    batch = batch_of(DISCRETE, (7, 3, 5), (False, True, True))
    assert loss(module.Hysteretic(beta=1.0), batch)[0] == pytest.approx(loss(IQL(), batch)[0], rel=1e-6)


def test_beta_weights_the_negative_errors_alone(module: ModuleType) -> None:
    batch = batch_of(DISCRETE, (7, 3, 5), (False, True, True))
    none, half, full = (loss(module.Hysteretic(beta=b), batch)[0] for b in (0.0, 0.5, 1.0))
    assert 0 < none < full
    assert half == pytest.approx((none + full) / 2, rel=1e-6)


def test_installed_it_is_a_method_like_any_other(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(EXAMPLE, source)  # the build leaves files beside it
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, capture_output=True)
    env = os.environ | {"PYTHONPATH": str(site), "NO_COLOR": "1"}

    def harness(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "harness", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert "hysteretic" in harness("list", "algorithms").stdout
    assert "negative TD errors" in " ".join(harness("show", "hysteretic").stdout.split())
    wrong = harness("run", "suite=matrix", "algorithms=hysterettic")
    assert (wrong.returncode, "did you mean 'hysteretic'" in wrong.stderr) == (2, True)
    done = harness(
        "run", "suite=matrix", "tasks=climbing", "algorithms=hysteretic", "seeds=1", "env_steps=200", "eval_every=100",
        "eval_episodes=4", "final_episodes=4", "name=ours", "device=cpu", "hysteretic.batch_episodes=8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    final = pd.read_csv(tmp_path / "results/ours/matrix/climbing/hysteretic/seed_0/final.csv")
    assert len(final) == 4
