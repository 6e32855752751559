"""All diagnostics of one method at one point of training.

``measure`` needs networks and an environment; ``Diagnostics`` is what a running trial calls at its evaluations
(``cdm=on``) or at the last of them (``cdm=final``).
Nothing here touches what is trained: networks are copied before a loss sees them, and every random number comes from
the trial's ``diagnostics`` stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from harness.algorithm import Algorithm
from harness.cdm import actor, estimator, exact, own, play, sampled, truth
from harness.cdm.definitions import COLUMNS, diagnostic
from harness.cdm.own import Unmeasurable
from harness.cdm.read import Reader
from harness.collect import episodes
from harness.seeds import Seeds, reseed
from harness.store import TrialFolder
from harness.suite import Suite, VecEnv
from harness.types import Batch, Discrete

__all__ = ["Diagnostics", "Measurement", "Options", "diagnostic", "measure"]


@dataclass(frozen=True)
class Options:
    """How much is measured."""

    states: int = 256
    """States looked at, of episodes played by the behaviour policy; every state of a known task of one step."""
    samples: int = 64
    """Draws of the teammates' joint action a state, where joint actions are too many to enumerate."""
    episodes: int = 32
    """Least greedy episodes a return, for degradation; rounded up to whole rounds of the environments."""
    enumerate_up_to: int = 1_000_000
    """Most (state, joint action) pairs that are enumerated."""


@dataclass
class Measurement:
    """What came of it."""

    env_steps: int
    values: dict[str, float] = field(default_factory=dict)
    """By metric; never NaN: what has no value is not here."""
    missing: dict[str, str] = field(default_factory=dict)
    """Metric or group -> why this method, or task, has none."""
    about: dict[str, Any] = field(default_factory=dict)
    """How: ``policy``, ``own``, ``joint``, numbers of states and evaluations."""
    seconds: float = 0.0
    """Wall time it took; not stored with the values, which repeat to the byte."""

    def add(self, group: str, values: dict[str, float]) -> None:
        """Put ``values`` under ``group/``, those without a value among the missing."""
        for name, value in values.items():
            metric = f"{group}/{name}" if group else name
            if value == value and abs(value) != float("inf"):
                self.values[metric] = value
            else:
                self.missing[metric] = "undefined here: the gradient, or its variance, is 0, or noise hides it"

    def try_to(self, group: str, of: Callable[[], dict[str, float]]) -> None:
        """Measure a group, or note why it cannot be."""
        try:
            self.add(group, of())
        except Unmeasurable as error:
            self.missing[group] = str(error)

    def rows(self) -> list[tuple[int, str, float]]:
        """For ``cdm.csv``, in order of metric."""
        return [(self.env_steps, metric, value) for metric, value in sorted(self.values.items())]


def _draws(rng: torch.Generator) -> Callable[[], int]:
    """Seeds one after the other from ``rng``."""
    return lambda: int(torch.randint(1 << 62, (), generator=rng))


def measure(
    player: play.Player,
    target: nn.ModuleDict,
    suite: Suite,
    task: str,
    env: VecEnv,
    seed: int,
    options: Options = Options(),
    earlier: play.Player | None = None,
) -> Measurement:
    """Every diagnostic that this method and task allow.

    ``target`` holds the target networks that the method's losses read. ``earlier`` is the same team at an earlier
    point of training, for degradation. The result depends on its arguments alone.
    """
    start = time.monotonic()
    found = Measurement(player.env_steps)
    seeds = _draws(reseed(torch.Generator(), seed))
    rng = torch.Generator(_device(player.net)).manual_seed(seeds())
    known = truth.of(suite, task, env.spec, options.enumerate_up_to)
    if isinstance(known, str):
        found.missing |= dict.fromkeys(("true", "representation", "ends"), known)
    facts = None if isinstance(known, str) else known
    reader = _reader(player, env, facts, options, seeds, rng)
    found.about |= {"policy": _policy(player.algorithm), "states": len(reader.index), "samples": options.samples}
    if isinstance(env.spec.action, Discrete):
        _discrete(found, reader, facts, options, rng)
    else:
        found.missing["igm"] = "a continuous joint argmax is not a set of candidates; not measured"
        found.about["joint"] = "sampled"
        found.try_to("joint", lambda: actor.from_gaussian_draws(reader, options.samples, rng))
    _own(found, player, target, reader, facts, seeds)
    if facts is not None and facts.one_step:
        _ends(found, player, facts)
    elif facts is not None:
        found.missing["ends"] = "asked of games of one step only; here the return says it"
    rounds = [seeds() for _ in range(-(-options.episodes // env.num_envs))]
    found.add("", play.degradation(env, player, rounds, rng, earlier))
    found.about["evaluations"] = dict(reader.counts)
    found.add("cost", {f"{k}_evaluations": float(v) for k, v in reader.counts.items()})
    found.seconds = time.monotonic() - start
    return found


def _device(net: nn.ModuleDict) -> torch.device:
    return next(net.parameters()).device


def _policy(method: Any) -> str:
    """Which policy is diagnosed, in words."""
    if hasattr(method, "policy"):
        return "the method's own policy()"
    return "softmax of its utilities, temperature 1" if hasattr(method, "utilities") else "none"


def _reader(
    player: play.Player,
    env: VecEnv,
    facts: truth.Truth | None,
    options: Options,
    seeds: Callable[[], int],
    rng: torch.Generator,
) -> Reader:
    """The states: all of a known game of one step, else some of episodes played by the behaviour policy."""
    if facts is not None and facts.one_step:
        count = len(facts.values)
        nothing = torch.zeros(count, env.spec.n_agents, dtype=torch.int64)
        batch = truth.one_step_batch(facts, nothing, torch.arange(count), _device(player.net))
        return Reader(player.algorithm, player.net, batch, torch.arange(count, device=_device(player.net)), env.spec)

    def act(step: Any, memory: Any, played: int) -> Any:
        return player.algorithm.act(player.net, step, memory, player.env_steps, rng)

    parts: list[Batch] = []
    while sum(int(b.mask.sum()) for b in parts) < options.states and len(parts) < 64:
        _, batch_or_none = episodes(env, act, seeds())
        assert batch_or_none is not None
        parts.append(batch_or_none)
    batch = _fewest(parts, options.states)
    where = torch.nonzero(batch.mask.flatten() > 0).squeeze(-1)
    order = torch.randperm(len(where), generator=torch.Generator().manual_seed(seeds())).to(where.device)
    chosen = where[order[: options.states]].sort().values
    return Reader(player.algorithm, player.net, batch, chosen, env.spec)


def _fewest(parts: list[Batch], states: int) -> Batch:
    """The first episodes of ``parts``, cut to equal length, that hold ``states`` steps between them."""
    longest = max(b.mask.shape[1] for b in parts)
    padded = [_padded(b, longest) for b in parts]
    joined = {
        k: None if v is None else torch.cat([getattr(b, k) for b in padded]) for k, v in padded[0].tensors().items()
    }
    batch = Batch(**joined)  # type: ignore[arg-type]
    enough = int((batch.mask.sum(1).cumsum(0) < states).sum()) + 1
    steps = int(batch.mask[:enough].sum(1).max())
    moments = ("obs", "state", "avail", "alive")
    cut = {
        k: None if v is None else v[:enough, : steps + 1 if k in moments else steps] for k, v in batch.tensors().items()
    }
    return Batch(**cut).clean()  # type: ignore[arg-type]


def _padded(batch: Batch, steps: int) -> Batch:
    extra = steps - batch.mask.shape[1]

    def pad(x: Tensor) -> Tensor:
        return torch.cat([x, x.new_zeros(x.shape[0], extra, *x.shape[2:])], 1)

    return batch.map(pad) if extra else batch


# -- groups ---------------------------------------------------------------------------------------------------------


def _discrete(
    found: Measurement, reader: Reader, facts: truth.Truth | None, options: Options, rng: torch.Generator
) -> None:
    """Everything about joint values and policies of discrete actions."""
    try:
        policies = reader.policies()
    except Unmeasurable as error:
        found.missing |= dict.fromkeys(("joint", "true", "igm", "representation"), str(error))
        return
    avail = [a.double() for a in reader.avail.unbind(1)]
    where = None if facts is None else truth.locate(facts, reader.at(reader.batch.state[:, :-1]))
    if facts is not None and where is not None:
        values = facts.values.to(where.device)[where]
        found.try_to("true", lambda: actor.from_table(values, policies, avail))
    assert isinstance(reader.spec.action, Discrete)
    entries = len(reader.index) * reader.spec.action.n**reader.spec.n_agents
    if entries <= options.enumerate_up_to:
        found.about["joint"] = "exact: every joint action of every state"
        try:
            q = reader.joint_table()
        except Unmeasurable as error:
            found.missing |= dict.fromkeys(("joint", "igm", "representation"), str(error))
            return
        found.try_to("joint", lambda: actor.from_table(q, policies, avail))
        found.try_to("igm", lambda: _igm(reader, policies, lambda greedy: exact.igm_violations(q, greedy, avail)))
        if facts is not None and where is not None:
            found.add("representation", _representation(q, facts.values.to(where.device)[where], policies))
        return
    found.about["joint"] = "sampled: nested Monte Carlo"
    found.about["igm"] = "sampled candidates: the policies' draws, uniform ones, single deviations; a lower bound"
    found.try_to("joint", lambda: actor.from_draws(reader, policies, options.samples, rng))

    def violations(greedy: Tensor) -> Tensor:
        options_ = sampled.igm_candidates(greedy, policies, reader.avail, options.samples, rng)
        return sampled.igm_violations(reader.joint_values(options_))

    found.try_to("igm", lambda: _igm(reader, policies, violations))


def _igm(reader: Reader, policies: list[Tensor], violations: Callable[[Tensor], Tensor]) -> dict[str, float]:
    """Violation rates of the policies' modes and, where there are utilities, of the utilities' argmaxes."""
    rates = {"policy_violation": violations(torch.stack([p.argmax(-1) for p in policies], -1))}
    if hasattr(reader.method, "utilities"):
        table = reader.utility_table().masked_fill(~reader.avail, -torch.inf)
        rates["violation"] = violations(table.argmax(-1))
    return {name: float(x.double().mean()) for name, x in rates.items()}


def _representation(q: Tensor, values: Tensor, policies: list[Tensor]) -> dict[str, float]:
    """Root mean squared errors over joint actions; ``relative`` in standard deviations of the true values."""
    error, spread = exact.representation_error(q, values), float(values.std(unbiased=False))
    on_policy = exact.representation_error(q, values, exact.joint_policy(policies) / len(values))
    return {"error": error, "error_on_policy": on_policy, "relative": error / spread if spread > 0 else float("nan")}


def _own(
    found: Measurement,
    player: play.Player,
    target: nn.ModuleDict,
    reader: Reader,
    facts: truth.Truth | None,
    seeds: Callable[[], int],
) -> None:
    """The method's own gradient estimator."""
    try:
        e = own.find(player.algorithm, player.net, target, reader.batch)
        values, missing, how = estimator.measure(e, reader, facts, seeds)
    except Unmeasurable as error:
        found.missing["own"] = str(error)
        return
    found.add("own", values)
    found.missing |= missing
    found.about["own"] = how


@torch.no_grad()
def _ends(found: Measurement, player: play.Player, facts: truth.Truth) -> None:
    """Where greedy play stands."""
    device, step = _device(player.net), facts.step
    moved: dict[str, Any] = {k: x.to(device) for k, x in step._asdict().items() if isinstance(x, Tensor)}
    step = step._replace(**moved)
    actions = player.algorithm.act(player.net, step, None, player.env_steps, None).action.cpu()
    optimal, shadowed = truth.ends(facts, actions)
    found.add("ends", {"optimal": float(optimal), "shadowed": float(shadowed)})


# -- in a running trial ---------------------------------------------------------------------------------------------


class Diagnostics:
    """Measures a trial at its evaluations and writes ``cdm.csv``.

    ``degradation/earlier`` is not among it: that takes networks of two points, which ``harness diagnose`` reads from
    their checkpoints.
    """

    def __init__(
        self, folder: TrialFolder, algorithm: Algorithm, suite: Suite, task: str, env: VecEnv, seeds: Seeds,
        options: Options = Options(), final: bool = False,
    ) -> None:  # fmt: skip
        self.final = final
        self.folder, self.algorithm, self.suite, self.task, self.env = folder, algorithm, suite, task, env
        self.seeds, self.options = seeds, options
        self.seconds = 0.0
        """Wall time of all measurements so far: the cost to state."""

    def due(self, env_steps: int, budget: int) -> bool:
        """Whether the evaluation at ``env_steps`` is measured: all are, or the last alone."""
        return not self.final or env_steps >= budget

    def at(self, net: nn.ModuleDict, target: nn.ModuleDict, env_steps: int, point: int) -> Measurement:
        """Measure and append; ``point`` is the number of the evaluation, which alone chooses the random stream."""
        player = play.Player(self.algorithm, net, env_steps)
        seed = self.seeds.integer("diagnostics", point)
        found = measure(player, target, self.suite, self.task, self.env, seed, self.options)
        self.folder.append("cdm.csv", COLUMNS, found.rows())
        self.seconds += found.seconds
        return found

    def record(self, last: Measurement) -> None:
        """What was measured how, and what is missing and why, into the trial's record."""
        note = {"missing": last.missing, "about": last.about, "seconds": self.seconds}
        self.folder.update(cdm=note)
