import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch

from harness.errors import UserError
from suites.adapters import jax as adapter

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def jax():
    return adapter.setup(CPU)


def run(code, **env):
    """``code`` in a process of its own: what it printed, or its error."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_setup_starts_jax_on_one_cpu_thread_without_asynchronous_dispatch(tmp_path):
    out = run(
        "import os, torch; from suites.adapters.jax import setup; jax = setup(torch.device('cpu'));"
        "print(os.environ['NPROC'], jax.devices()[0].platform, jax.config.values['jax_cpu_enable_async_dispatch'],"
        "jax.config.jax_compilation_cache_dir)",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path / "cache"),
        NPROC="1",
    )
    assert out.split() == ["1", "cpu", "False", str(tmp_path / "cache")]


def test_setup_twice_is_the_same_jax(jax):
    assert adapter.setup(CPU) is jax


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_another_platform_in_the_same_process_is_refused(jax, device):
    with pytest.raises(UserError, match="already runs on cpu"):
        adapter.setup(torch.device(device))


def test_a_device_jax_does_not_know_is_refused():
    with pytest.raises(UserError, match="device=cpu or device=cuda"):
        adapter.setup(torch.device("mps"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_says_what_to_install():
    out = run(
        "import torch; from suites.adapters.jax import setup; from harness.errors import UserError\n"
        "try: setup(torch.device('cuda'))\n"
        "except UserError as error: print(error)"
    )
    assert out.startswith("JAX cannot start on cuda")
    assert out.rstrip().endswith("use device=cpu")
    assert len(out.splitlines()) == 1


def test_missing_jax_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(UserError, match="pip install jax"):
        adapter.setup(CPU)


def test_cache_folder_is_the_variable_else_below_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    assert adapter.default_cache_dir().parent == tmp_path / "marl-harness" / "jax"
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    assert adapter.default_cache_dir() == tmp_path / "mine"


def test_second_process_reads_what_the_first_compiled(tmp_path):
    code = (
        "import torch; from suites.adapters.jax import setup; jax = setup(torch.device('cpu')); events = []\n"
        "jax.monitoring.register_event_listener(lambda name, **_: events.append(name))\n"
        "jax.jit(lambda x: jax.numpy.sin(x) * 3)(jax.numpy.ones(5))\n"
        "print(sum('cache_hits' in e for e in events), sum('cache_misses' in e for e in events))"
    )
    first, second = (run(code, JAX_COMPILATION_CACHE_DIR=str(tmp_path)).split() for _ in range(2))
    assert first[0] == "0"
    assert int(first[1]) > 0
    assert second == [first[1], "0"]


def test_importing_a_submodule_runs_no_parent_and_leaves_stdout_alone():
    out = run(
        "import io, sys, torch; from suites.adapters.jax import setup, import_submodule; setup(torch.device('cpu'))\n"
        "mine = sys.stdout = io.StringIO()\n"
        "module = import_submodule('jaxmarl.environments.smax')\n"
        "kept, printed = sys.stdout is mine, mine.getvalue(); sys.stdout = sys.__stdout__\n"
        "print(kept, repr(printed), module.__name__, 'jaxmarl' in sys.modules, 'jaxmarl.environments' in sys.modules)\n"
        "print(import_submodule('jaxmarl.environments.smax') is module)"
    )
    assert out.splitlines() == ["True '' jaxmarl.environments.smax False False", "True"]


@pytest.mark.parametrize("name", ["no_such_package.part", "jaxmarl.no_such_part", "jaxmarl.no_such_part.deeper"])
def test_a_missing_submodule_is_an_import_error(jax, name):
    with pytest.raises(ImportError):
        adapter.import_submodule(name)
    assert "no_such_package" not in sys.modules


def test_every_bit_of_a_seed_counts(jax):
    data = [jax.random.key_data(adapter.key(jax, seed)).tolist() for seed in (0, 5, 2**32 + 5, 2**62 + 5, 2**63 - 1)]
    assert data == [[0, 0], [0, 5], [1, 5], [2**30, 5], [2**31 - 1, 2**32 - 1]]
    assert data[1] == jax.random.key_data(jax.random.key(5)).tolist()


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused(jax, seed):
    with pytest.raises(ValueError, match="seed"):
        adapter.key(jax, seed)


def test_strong_casts_weakly_typed_leaves(jax):
    weak = jax.jit(lambda: {"a": 1.0, "b": 2})()
    assert all(x.weak_type for x in weak.values())
    cast = jax.jit(lambda t: adapter.strong(jax, t))(weak)
    assert not any(x.weak_type for x in cast.values())
    assert {k: (float(x), x.dtype) for k, x in cast.items()} == {"a": (1.0, np.float32), "b": (2.0, np.int32)}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", torch.float32), ("bool", torch.bool), ("int32", torch.int32), ("uint8", torch.uint8)],
)
def test_jax_to_torch_keeps_type_and_shares_nothing(jax, dtype, expected):
    array = jax.numpy.ones((2, 3), dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = adapter.to_torch(array, CPU)
    assert (tensor.dtype, tensor.shape) == (expected, (2, 3))
    tensor.zero_()
    assert np.asarray(array).all()


def test_torch_to_jax_takes_columns_expanded_and_required_gradients(jax):
    base = torch.arange(6.0).view(2, 3)
    double = jax.jit(lambda x: x * 2)
    for tensor in (base, base[:, 1:], base[:, :1].expand(2, 4), base.clone().requires_grad_()):
        result = adapter.to_torch(double(adapter.to_jax(jax, tensor)), CPU)
        assert torch.equal(result, 2 * tensor.detach())
