"""Suite ``predator_prey``: FACMAC's continuous task, equal to the original step for step.

The original (Peng et al. 2021, the fork of OpenAI's multi-agent particle environments in their code) is float64, and so
is the physics here: contacts are stiff, and rounding would grow over an episode. What agents see is float32.

P predators (the agents), Q prey (scripted), L landmarks; M = P + Q bodies that move, predators first; K candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.errors import UserError, unknown
from harness.scene import Circle, Line, Scene
from harness.seeds import reseed
from harness.suite import Budget, Task
from harness.types import Continuous, Spec, Step

DT = 0.1
DAMPING = 0.25
CONTACT_FORCE, CONTACT_MARGIN = 1e2, 1e-3
PREDATOR_SIZE, PREY_SIZE, LANDMARK_SIZE = 0.075, 0.05, 0.2
PREDATOR_SPEED, PREY_SPEED = 1.0, 1.3
PREDATOR_ACCELERATION = 3.0
VIEW_RADIUS = 1.5
CANDIDATES = 100
EPISODE_LIMIT = 25
REWARD = 10.0
_TOUCH = PREDATOR_SIZE + PREY_SIZE


class World(NamedTuple):
    """E worlds at one moment, float64. Entities are landmarks, then predators, then prey."""

    pos: Tensor  # [2,E,M]
    vel: Tensor  # [2,E,M]
    landmark: Tensor  # [2,E,L]
    offset: Tensor  # [2,E,M,L+M] from each body to each entity
    distance: Tensor  # [E,M,L+M]


@dataclass(frozen=True)
class Physics:
    """The rules, as pure functions of a world; ``initial`` and ``sample`` alone draw at random.

    The coordinate is the first axis throughout: sums over two numbers side by side are an order of magnitude slower.
    """

    predators: int
    prey: int
    landmarks: int
    device: torch.device

    def world(self, pos: Tensor, vel: Tensor, landmark: Tensor) -> World:
        """A world from positions and velocities [2,E,M] and landmarks' positions [2,E,L]."""
        offset = torch.cat([landmark, pos], -1)[:, :, None] - pos[..., None]
        return World(pos, vel, landmark, offset, offset.square().sum(0).sqrt())

    def initial(self, num_envs: int, rng: torch.Generator) -> World:
        """Bodies at rest, uniform in [-1,1]^2; landmarks uniform in [-.9,.9]^2."""
        bodies = self.predators + self.prey
        shape = (2, num_envs, bodies + self.landmarks)
        place = 2 * torch.rand(shape, generator=rng, device=self.device, dtype=torch.float64) - 1
        pos = place[..., :bodies]
        return self.world(pos, torch.zeros_like(pos), 0.9 * place[..., bodies:])

    def sample(self, num_envs: int, rng: torch.Generator) -> Tensor:
        """Candidates of the prey, [2,E,Q,K] float32: offsets from where it is, uniform in the unit disc."""
        shape = (2, num_envs, self.prey, CANDIDATES)
        square, turn = torch.rand(shape, generator=rng, device=self.device).unbind(0)
        radius, angle = square.sqrt(), turn * (2 * math.pi)
        return torch.stack([radius * angle.cos(), radius * angle.sin()])

    def flee(self, world: World, candidates: Tensor) -> Tensor:
        """Force of the prey [2,E,Q]: the candidate that is farthest from the predator now nearest.

        Candidates that touch any predator are out; when none is left it stands still.
        """
        among = slice(self.landmarks, self.landmarks + self.predators)
        to_predator = world.offset[:, :, self.predators :, among]
        nearest = world.distance[:, self.predators :, among].argmin(-1)
        candidates = candidates.double()
        (x, y), (px, py) = candidates[..., None, :].unbind(0), to_predator[..., None].unbind(0)
        square = (px - x).square_().add_((py - y).square_())  # [E,Q,P,K], distance of candidate and predator, squared
        free = square.amin(2) >= _TOUCH**2
        score = square.gather(2, nearest[..., None, None].expand(-1, -1, 1, CANDIDATES)).squeeze(2) * free
        best, index = score.max(-1, keepdim=True)  # a free candidate scores at least _TOUCH**2, another 0
        return (candidates.gather(-1, index.expand(2, -1, -1, -1)) * (best > 0)).squeeze(-1)

    def step(self, world: World, action: Tensor, candidates: Tensor) -> tuple[World, Tensor]:
        """One time step: predators' action [2,E,P], candidates [2,E,Q,K] -> next world, prey's force [2,E,Q]."""
        prey = self.flee(world, candidates)
        force = torch.cat([PREDATOR_ACCELERATION * action.double(), prey], -1)
        # A smooth contact along the line of centres, none with oneself: k log(1 + exp(overlap / k)), k the margin.
        # The clamp keeps exp out of denormal numbers, which are many times slower.
        overlap = ((self._touch - world.distance) / CONTACT_MARGIN).clamp(min=-700.0)
        push = F.softplus(overlap, threshold=40.0) / world.distance.clamp(min=1e-12)
        force = force - (CONTACT_FORCE * CONTACT_MARGIN) * (world.offset * push).sum(-1)
        vel = world.vel * (1 - DAMPING) + force * DT
        speed = vel.square().sum(0).sqrt()
        vel = vel * (self._max_speed / speed).clamp(max=1.0)
        return self.world(world.pos + vel * DT, vel, world.landmark), prey

    def reward(self, world: World) -> Tensor:
        """Team reward [E] float32: 10 for every predator and prey that overlap."""
        caught = world.distance[:, : self.predators, self.landmarks + self.predators :] < _TOUCH
        return REWARD * caught.sum((1, 2)).float()

    def observe(self, world: World) -> Tensor:
        """What predators see [E,P,O] float32, O = 4 + 2 L + 2 (M - 1) + 2 Q.

        Own velocity and position; offsets to landmarks, to the other predators and to the prey; the prey's velocities.
        What is farther than the view radius is 0.
        """
        p, first = self.predators, self.landmarks + self.predators
        seen = world.distance[:, :p] <= VIEW_RADIUS
        own = torch.stack([world.vel[..., :p], world.pos[..., :p]], -1)
        prey = world.vel[:, :, None, p:] * seen[..., first:]
        view = torch.cat([own, world.offset[:, :, :p] * seen, prey], -1).float()
        flat = view.permute(1, 2, 3, 0).flatten(1).index_select(1, self._shown)
        return flat.reshape(len(flat), p, -1)

    @cached_property
    def _touch(self) -> Tensor:
        """[M,L+M]: distance at which two touch."""
        body = torch.tensor([PREDATOR_SIZE] * self.predators + [PREY_SIZE] * self.prey, dtype=torch.float64)
        entity = torch.cat([torch.full((self.landmarks,), LANDMARK_SIZE, dtype=torch.float64), body])
        return (body[:, None] + entity).to(self.device)

    @cached_property
    def _max_speed(self) -> Tensor:
        """[M]."""
        limits = [PREDATOR_SPEED] * self.predators + [PREY_SPEED] * self.prey
        return torch.tensor(limits, dtype=torch.float64, device=self.device)

    @cached_property
    def _shown(self) -> Tensor:
        """[P O]: entries of all views laid end to end that are kept, each predator's offset to itself left out."""
        pairs = 2 + self.landmarks + self.predators + 2 * self.prey
        own = 2 + self.landmarks
        kept = [pairs * i + j for i in range(self.predators) for j in range(pairs) if j != own + i]
        return torch.tensor([2 * k + xy for k in kept for xy in (0, 1)], device=self.device)


class PredatorPreyEnv:
    """E episodes side by side; all meet the time limit together."""

    def __init__(self, physics: Physics, num_envs: int) -> None:
        self.spec = spec_of(physics)
        self.num_envs = num_envs
        self._physics = physics
        self._rng = torch.Generator(physics.device)
        self._alive = torch.ones(num_envs, physics.predators, dtype=torch.bool, device=physics.device)
        self._flags = torch.zeros(2, num_envs, dtype=torch.bool, device=physics.device)
        self._flags[1] = True
        self._no_reward = torch.zeros(num_envs, device=physics.device)

    def reset(self, seed: int) -> Step:
        """Begin E new episodes; their places and all candidates of the prey follow from ``seed``."""
        reseed(self._rng, seed)
        self._t = 0
        self._world = self._physics.initial(self.num_envs, self._rng)
        self._last = self._step(self._no_reward)
        return self._last

    def step(self, action: Tensor) -> Step:
        """Play ``action`` [E,P,2], clipped to [-1,1]. Raises ``UserError`` for another shape."""
        shape = (self.num_envs, self._physics.predators, 2)
        if tuple(action.shape) != shape:
            raise UserError(f"predator_prey: an action of shape {tuple(action.shape)}; this task takes {shape}")
        if self._t == EPISODE_LIMIT:
            return self._last._replace(reward=self._no_reward)
        self._t += 1
        candidates = self._physics.sample(self.num_envs, self._rng)
        self._world, _ = self._physics.step(self._world, action.clamp(-1, 1).movedim(-1, 0), candidates)
        self._last = self._step(self._physics.reward(self._world))
        return self._last

    def _step(self, reward: Tensor) -> Step:
        obs = self._physics.observe(self._world)
        never, over = self._flags[0], self._flags[int(self._t == EPISODE_LIMIT)]
        return Step(obs, obs.flatten(1), None, self._alive, reward, never, over, {})

    @property
    def world(self) -> World:
        """The present moment, for diagnostics and scripted policies."""
        return self._world

    def scene(self, index: int, action: Tensor) -> Scene:
        """Environment ``index``: predators with their force ``action`` [P,2] as an arrow, prey, obstacles."""
        return _scene(self._physics, self._world, index, action, self._t == EPISODE_LIMIT)

    def close(self) -> None:
        """Nothing is held."""


def _scene(physics: Physics, world: World, index: int, action: Tensor, over: bool) -> Scene:
    """One world; an arrow of half a length unit is full force along one axis. Prey that is touched is purple."""
    p, first = physics.predators, physics.landmarks + physics.predators
    bodies, landmarks = world.pos[:, index].T.tolist(), world.landmark[:, index].T.tolist()
    caught = (world.distance[index, :p, first:] < _TOUCH).cpu()
    force = action.clamp(-1, 1).tolist()
    shapes: list[Circle | Line] = [Circle(x, y, LANDMARK_SIZE, "grey", faded=True) for x, y in landmarks]
    for k, (x, y) in enumerate(bodies[p:]):
        shapes.append(Circle(x, y, PREY_SIZE, "purple" if caught[:, k].any() else "green", str(k)))
    for k, (x, y) in enumerate(bodies[:p]):
        if not over:
            shapes.append(Line(x, y, x + 0.5 * force[k][0], y + 0.5 * force[k][1], "orange", arrow=True))
        shapes.append(Circle(x, y, PREDATOR_SIZE, "blue", str(k)))
    nearest = world.distance[index, :p, first:].min(-1).values.tolist()
    rows = tuple(
        (
            f"predator {k}",
            f"{nearest[k]:.2f}",
            "" if over else f"{force[k][0]:+.2f}, {force[k][1]:+.2f}",
            ", ".join(f"prey {j}" for j in caught[k].nonzero().flatten().tolist()),
        )
        for k in range(p)
    )
    note = "blue: predators with their force, green: prey (purple when caught), grey: obstacles"
    columns = ("agent", "nearest prey", "force", "catches")
    return Scene((-1.0, -1.0, 1.0, 1.0), tuple(shapes), columns, rows, (note,))


def spec_of(physics: Physics) -> Spec:
    """The state is all agents' observations, one after the other."""
    others = physics.landmarks + physics.predators + physics.prey - 1
    obs = 4 + 2 * others + 2 * physics.prey
    action = Continuous(-1.0, 1.0, 2)
    return Spec(physics.predators, obs, physics.predators * obs, EPISODE_LIMIT, action)


def chase(physics: Physics, world: World) -> Tensor:
    """The scripted reference: every predator heads for the prey nearest to it, 4 x offset clipped to full force.

    It reads true positions, beyond the view radius too. Returns [E,P,2].
    """
    p, first = physics.predators, physics.landmarks + physics.predators
    nearest = world.distance[:, :p, first:].argmin(-1)[..., None].expand(2, -1, -1, 1)
    offset = world.offset[:, :, :p, first:].gather(-1, nearest).squeeze(-1)
    return (4 * offset).clamp(-1, 1).float().movedim(0, -1)


class _Size(NamedTuple):
    predators: int
    prey: int
    landmarks: int
    random: float
    scripted: float


_SIZES = {
    "3a": _Size(3, 1, 2, 0.1, 83.0),
    "6a": _Size(6, 2, 4, 1.6, 211.0),
    "9a": _Size(9, 3, 6, 9.3, 360.0),
}
"""With the original's mean returns of uniform-random predators and of the scripted chase."""


@dataclass(frozen=True)
class PredatorPrey:
    """Continuous predator-prey of FACMAC: predators that see 1.5 far catch faster scripted prey among obstacles."""

    name: ClassVar[str] = "predator_prey"
    budgets: ClassVar[Mapping[str, Budget]] = {
        "smoke": Budget(env_steps=5_000, eval_every=2_500, eval_episodes=8, final_episodes=16, seeds=2),
        "quick": Budget(env_steps=200_000, eval_every=10_000, eval_episodes=32, final_episodes=320, seeds=5),
        "paper": Budget(env_steps=1_000_000, eval_every=10_000, eval_episodes=32, final_episodes=320, seeds=10),
    }
    algorithms: ClassVar[tuple[str, ...]] = ("mcem", "vdn", "qmix", "facmac", "ippo")
    default_tasks: ClassVar[tuple[str, ...]] = ("3a",)

    def tasks(self) -> Mapping[str, Task]:
        """Scored by return: 0 is uniform-random predators, 1 the scripted chase (a good learner may exceed it)."""
        return {
            name: Task(
                name,
                "continuous",
                "return",
                (size.random, size.scripted),
                {"random": size.random, "scripted": size.scripted},
                f"{size.predators} predators, {size.prey} prey, {size.landmarks} obstacles",
            )
            for name, size in _SIZES.items()
        }

    def engine_version(self) -> str:
        """The physics is computed here, in float64."""
        return "predator_prey 1"

    def physics(self, task: str, device: torch.device) -> Physics:
        """The rules of a task. Raises ``UserError`` for an unknown one."""
        if task not in _SIZES:
            raise unknown("task of suite predator_prey", task, _SIZES)
        size = _SIZES[task]
        return Physics(size.predators, size.prey, size.landmarks, device)

    def make(self, task: str, num_envs: int, device: torch.device) -> PredatorPreyEnv:
        """E environments of one task."""
        return PredatorPreyEnv(self.physics(task, device), num_envs)

    def spec(self, task: str) -> Spec:
        """What ``make(task, ...)`` will have as its spec."""
        return spec_of(self.physics(task, torch.device("cpu")))
