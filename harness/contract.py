"""What a plug-in must hold to, looked at before it is used: each slip is one line that says what is wrong and where.

Python by itself would stop somewhere inside the harness, with a missing attribute or a shape that does not fit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from harness.errors import UserError, unknown

if TYPE_CHECKING:
    from torch import nn

    from harness.algorithm import Loss, Targets
    from harness.types import Action, Spec, Step

DATA = ("replay", "on_policy")
KINDS = ("discrete", "continuous")
BUDGETS = ("smoke", "quick", "paper")
FIELDS = ("num_envs", "gamma")
REPLAY_FIELDS = ("buffer_episodes", "batch_episodes", "updates_per_collect")


# -- classes, when they are loaded ----------------------------------------------------------------------------------


def algorithm(cls: Any, name: str) -> None:
    """Raises ``UserError`` where the class of a method is not as ``harness.algorithm.Algorithm`` says."""
    where = f"algorithm {name!r} ({_place(cls)})"
    _dataclass(cls, where, "its fields are its hyperparameters")
    _has(cls, where, ("data", "actions"), ("networks", "act", "losses", "targets"))
    if cls.data not in DATA:
        raise unknown(f"data of {where}:", str(cls.data), DATA)
    for kind in _names(cls.actions, f"{where}: actions"):
        if kind not in KINDS:
            raise unknown(f"action kind of {where}:", str(kind), KINDS)
    fields = {f.name for f in dataclasses.fields(cls)}
    for field in FIELDS + (REPLAY_FIELDS if cls.data == "replay" else ()):
        if field not in fields:
            raise UserError(f'{where}: no field {field!r}, which every method with data = "{cls.data}" has')
    for preset, values in getattr(cls, "presets", {}).items():
        if not isinstance(values, Mapping):
            raise UserError(f"{where}: preset {preset!r} is no mapping of fields to values")


def suite(cls: Any, name: str) -> None:
    """Raises ``UserError`` where the class of a suite is not as ``harness.suite.Suite`` says."""
    where = f"suite {name!r} ({_place(cls)})"
    _dataclass(cls, where, "its fields are its settings")
    _has(cls, where, ("name", "budgets", "algorithms", "default_tasks"), ("tasks", "engine_version", "make"))
    if cls.name != name:
        raise UserError(f"{where}: its name is {cls.name!r}, it is registered as {name!r}")
    for budget in BUDGETS:
        if budget not in cls.budgets:
            raise UserError(f"{where}: no budget {budget!r}; every suite has {', '.join(BUDGETS)}")
    _names(cls.algorithms, f"{where}: algorithms")
    _names(cls.default_tasks, f"{where}: default_tasks")


def _place(cls: Any) -> str:
    return f"{getattr(cls, '__module__', '?')}:{getattr(cls, '__qualname__', cls)}"


def _dataclass(cls: Any, where: str, why: str) -> None:
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise UserError(f"{where}: not a dataclass; write @dataclass(frozen=True) above it, {why}")


def _has(cls: Any, where: str, attributes: Iterable[str], methods: Iterable[str]) -> None:
    for name in attributes:
        if not hasattr(cls, name):
            raise UserError(f"{where}: no class attribute {name!r}")
    for name in methods:
        if not callable(getattr(cls, name, None)):
            raise UserError(f"{where}: no method {name}()")


def _names(value: Any, what: str) -> tuple[str, ...]:
    """Several names; a text alone is the commonest slip."""
    if isinstance(value, str):
        raise UserError(f"{what} is the text {value!r}, not several names: ({value!r},)")
    found = tuple(value)
    if not found:
        raise UserError(f"{what}: empty")
    return found


# -- losses and target networks, when a trial begins ----------------------------------------------------------------


def learning(net: nn.ModuleDict, losses: tuple[Loss, ...], targets: Targets) -> None:
    """Raises ``UserError`` where losses or target networks name what is not in ``net``, or say the same twice."""
    seen: set[str] = set()
    for loss in losses:
        if loss.name in seen:
            raise UserError(f"two losses are named {loss.name!r}: their metrics would be one")
        seen.add(loss.name)
        for name in _names(loss.trains, f"loss {loss.name!r}: trains"):
            if name not in net:
                raise unknown(f"network in trains of loss {loss.name!r}:", name, net.keys())
        if not any(True for name in loss.trains for _ in net[name].parameters()):
            raise UserError(f"loss {loss.name!r}: {', '.join(loss.trains)} has no parameters to train")
    if not losses:
        raise UserError("losses() gives none: nothing would be learned")
    if not targets.networks:
        return
    for name in _names(targets.networks, "Targets: networks"):
        if name not in net:
            raise unknown("network in Targets:", name, net.keys())
    if (targets.every_episodes is None) == (targets.tau is None):
        raise UserError("Targets: say one of every_episodes= (hard copies) and tau= (soft steps), else they never move")
    if targets.every_episodes is not None and targets.every_episodes < 1:
        raise UserError(f"Targets: every_episodes={targets.every_episodes} must be at least 1")
    if targets.tau is not None and not 0 < targets.tau <= 1:
        raise UserError(f"Targets: tau={targets.tau:g} lies above 0 and up to 1")


# -- shapes, at the first step of each round --------------------------------------------------------------------------


def step(given: Step, spec: Spec, num_envs: int) -> None:
    """Raises ``UserError`` where a ``Step`` has not the shapes and types of ``harness.types``, or not the outcomes of
    ``spec``."""
    e, n = num_envs, spec.n_agents
    wanted: dict[str, tuple[tuple[int, ...], str]] = {
        "obs": ((e, n, spec.obs_dim), "float32"),
        "state": ((e, spec.state_dim), "float32"),
        "alive": ((e, n), "bool"),
        "reward": ((e,), "float32"),
        "terminated": ((e,), "bool"),
        "truncated": ((e,), "bool"),
    }
    if spec.action.kind == "discrete":
        wanted["avail"] = (e, n, spec.action.dim), "bool"
    elif given.avail is not None:
        raise UserError("the environment's Step: avail must be None where actions are continuous")
    for name, (shape, kind) in wanted.items():
        _tensor(getattr(given, name), f"the environment's Step: {name}", shape, kind)
    for name in spec.outcomes:
        if name not in given.outcome:
            raise UserError(f"the environment's Step has no outcome {name!r}, which its spec names")
        _tensor(given.outcome[name], f"the environment's Step: outcome {name!r}", (e,), "float32")


def action(given: Action, spec: Spec, num_envs: int) -> None:
    """Raises ``UserError`` where what ``act`` gave has not the shapes and types of ``harness.types.Action``."""
    e, n = num_envs, spec.n_agents
    if spec.action.kind == "discrete":
        _tensor(given.action, "act: action", (e, n), "int64")
    else:
        _tensor(given.action, "act: action", (e, n, spec.action.dim), "float32")
    _tensor(given.log_prob, "act: log_prob", (e, n), "float32")


def _tensor(value: Any, what: str, shape: tuple[int, ...], kind: str) -> None:
    found = (tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", type(value).__name__)).split(".")[-1])
    if found != (shape, kind):
        raise UserError(f"{what} is {found[1]} {list(found[0])}, it must be {kind} {list(shape)}")
