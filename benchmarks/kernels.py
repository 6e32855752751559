"""The bare kernels of an update: its ``nn.GRU`` calls and matrix products, forwards and backwards, and nothing else.

One update is watched; the kernel calls in it are then repeated, all in turn or each alone, on tensors of the same
shapes, strides and needs of gradient. What an update takes beyond them is something else.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks import clock

PRODUCTS = (
    torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mm, torch.bmm,
    torch.addmm, torch.baddbmm, torch.einsum,
)  # fmt: skip
GRU = (torch.gru, torch._VF.gru)  # type: ignore[attr-defined]


class Shape(NamedTuple):
    """A tensor without its values."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    grad: bool

    @classmethod
    def of(cls, x: Tensor) -> Shape:
        """Of ``x``; it needs a gradient only where one is being recorded."""
        return cls(tuple(x.shape), x.stride(), x.requires_grad and torch.is_grad_enabled())

    def fresh(self, rng: torch.Generator) -> Tensor:
        """Random values in this shape."""
        room = 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))
        values = 0.1 * torch.randn(max(room, 1), generator=rng)
        return values.as_strided(self.size, self.stride).detach().requires_grad_(self.grad)


class Call(NamedTuple):
    """One kernel call: the function and its arguments, tensors replaced by shapes."""

    kind: str
    """"gru" or "product"."""
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: tuple[tuple[str, Any], ...]
    grad: bool

    def flops(self) -> float:
        """Floating-point operations, those of the backward pass included. einsum is not counted."""
        shapes = [x for x in _flat(self.arguments) if isinstance(x, Shape)]
        if self.kind == "gru":
            (t, b, i), h = shapes[0].size, shapes[1].size[-1]
            return 2.0 * t * b * 3 * h * (i + h) * (3 if self.grad else 1)
        if self.function is torch.einsum:
            return 0.0
        a, b_ = (shapes[1], shapes[2]) if self.function in (torch.addmm, torch.baddbmm) else (shapes[0], shapes[1])
        columns = b_.size[0] if self.function is torch.nn.functional.linear else b_.size[-1]
        rows = float(torch.Size(a.size).numel())
        return 2.0 * rows * columns * (1 + a.grad + b_.grad)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)) and not isinstance(value, Shape):
        return [x for part in value for x in _flat(part)]
    return [value]


def _map(value: Any, kind: type, f: Callable[[Any], Any]) -> Any:
    if isinstance(value, kind):
        return f(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, Shape):
        return tuple(_map(x, kind, f) for x in value)
    return value


@dataclass
class Watch(TorchFunctionMode):
    """Notes every kernel call made inside it."""

    calls: Counter[Call] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kind = "gru" if func in GRU else "product" if func in PRODUCTS else ""
        if kind:
            arguments = _map(tuple(args), Tensor, Shape.of)
            options = tuple((k, _map(v, Tensor, Shape.of)) for k, v in kwargs.items())
            grad = any(s.grad for s in _flat((arguments, [v for _, v in options])) if isinstance(s, Shape))
            self.calls[Call(kind, func, arguments, options, grad)] += 1
        return func(*args, **kwargs)


class Timed(NamedTuple):
    """A kernel call with its count in an update and its time alone."""

    call: Call
    count: int
    seconds: float


def median(run: Callable[[], Any], repeats: int = 5, least: float = 0.02) -> float:
    """Seconds of one ``run``: the median of ``repeats`` measurements, each of the runs that fill ``least`` seconds."""
    run()
    start = clock.now()
    run()
    count = max(1, int(least / max(clock.now() - start, 1e-7)))
    found = []
    for _ in range(repeats):
        start = clock.now()
        for _ in range(count):
            run()
        found.append((clock.now() - start) / count)
    return statistics.median(found)


def alone(calls: Counter[Call], repeats: int = 5) -> list[Timed]:
    """The time of each of ``calls`` by itself, forwards, and backwards where the update goes backwards through it."""
    rng = torch.Generator().manual_seed(0)
    return [Timed(call, count, _alone(call, rng, repeats)) for call, count in calls.items()]


def in_turn(calls: Counter[Call], repeats: int = 5) -> float:
    """Seconds of all of ``calls``, one after the other: each finds the cache as the others left it."""
    rng = torch.Generator().manual_seed(0)
    runs = [_ready(call, rng) for call, count in calls.items() for _ in range(count)]
    return median(lambda: [run() for run in runs], repeats)


def _alone(call: Call, rng: torch.Generator, repeats: int) -> float:
    return median(_ready(call, rng), repeats)


def _ready(call: Call, rng: torch.Generator) -> Callable[[], None]:
    """``call`` on tensors of its own, forwards and backwards, to be run."""
    arguments = _map(call.arguments, Shape, lambda s: s.fresh(rng))
    options = {k: _map(v, Shape, lambda s: s.fresh(rng)) for k, v in call.options}
    inputs = [x for x in _flat((arguments, list(options.values()))) if isinstance(x, Tensor) and x.requires_grad]
    out = call.function(*arguments, **options)
    seed = torch.ones_like(out[0] if call.kind == "gru" else out)

    def run() -> None:
        with torch.set_grad_enabled(call.grad):
            made = call.function(*arguments, **options)
        if call.grad:
            torch.autograd.grad(made[0] if call.kind == "gru" else made, inputs, seed)

    return run


def matmul_rate(size: int = 1024, repeats: int = 5) -> float:
    """FLOP/s of a plain float32 product of two ``size`` x ``size`` matrices on this thread."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    return 2.0 * size**3 / median(lambda: a @ b, repeats)
