"""Fields of a dataclass as typed settings: their types, defaults and docs, read and checked from text or JSON."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from annotated_types import Ge, Gt, Le
from pydantic import ConfigDict, TypeAdapter, ValidationError

from harness.errors import UserError, unknown

COUNTS = frozenset({"num_envs", "buffer_episodes", "batch_episodes", "updates_per_collect", "epochs", "minibatches"})
"""Fields of the contract (harness.algorithm) that count something there must be one of."""


@dataclass(frozen=True)
class Field:
    """One setting of a dataclass."""

    name: str
    type: Any
    default: Any
    """``dataclasses.MISSING`` where there is none."""
    doc: str


@cache
def fields_of(cls: type) -> Mapping[str, Field]:
    """The settings of ``cls`` by name, in order, each with the docstring written below it."""
    hints, docs = typing.get_type_hints(cls, include_extras=True), _docs(cls)
    found = {}
    for f in dataclasses.fields(cls):
        default = f.default
        if default is dataclasses.MISSING and f.default_factory is not dataclasses.MISSING:
            default = f.default_factory()
        found[f.name] = Field(f.name, hints[f.name], default, docs.get(f.name, ""))
    return found


def _docs(cls: type) -> dict[str, str]:
    """String literals right below annotated names in the class body."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}
    body = typing.cast(ast.ClassDef, tree.body[0]).body
    docs = {}
    for name, doc in itertools.pairwise(body):
        text = doc.value.value if isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) else None
        if isinstance(name, ast.AnnAssign) and isinstance(name.target, ast.Name) and isinstance(text, str):
            docs[name.target.id] = " ".join(inspect.cleandoc(text).split())
    return docs


# -- types in words -----------------------------------------------------------------------------------------------

_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "text", type(None): "none"}
_SHORT = {int: "int", float: "float", bool: "bool", str: "str", type(None): "none"}


def expected(kind: Any) -> str:
    """What a value of type ``kind`` is, in words: "an integer", "one of auto, cpu, cuda"."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return expected(args[0]) + " and".join(_limit(m) for m in args[1:])
    if origin is typing.Literal:
        return "one of " + ", ".join(map(plain, args))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(expected(a) for a in args)
    if origin is tuple:
        return "values separated by commas, each " + expected(args[0])
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def _limit(mark: Any) -> str:
    if isinstance(mark, Ge):
        return f" of at least {mark.ge}"
    if isinstance(mark, Le):
        return f" at most {mark.le}"
    return f" above {mark.gt}" if isinstance(mark, Gt) else ""


def short(kind: Any) -> str:
    """The same as a table shows it: "int", "float | none", "auto | cpu | cuda"."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return short(args[0])
    if origin is typing.Literal:
        return " | ".join(map(plain, args))
    if origin in (typing.Union, types.UnionType):
        return " | ".join(short(a) for a in args)
    if origin is tuple:
        return f"{short(args[0])},…"
    return _SHORT.get(kind, getattr(kind, "__name__", str(kind)))


def plain(value: Any) -> str:
    """A value as the user writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ",".join(map(plain, value))
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def written(values: Mapping[str, Any]) -> str:
    """Several, as the user writes them: "lr=0.001 anneal=true"."""
    return " ".join(f"{name}={plain(value)}" for name, value in values.items())


# -- from text ----------------------------------------------------------------------------------------------------


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
    except Exception:  # a type with a configuration of its own (a dataclass) takes none from outside
        return TypeAdapter(kind)


def _readings(text: str) -> list[Any]:
    """What ``text`` may mean, the most particular first. ``2e5`` may be the integer 200000."""
    readings: list[Any] = []
    words = {"none": None, "null": None, "true": True, "false": False}
    if text.lower() in words:
        readings.append(words[text.lower()])
    if re.fullmatch(r"[+-]?[0-9][0-9_]*", text):
        readings.append(int(text))
    else:
        try:
            number = float(text)
            readings += [int(number), number] if number.is_integer() else [number]
        except (ValueError, OverflowError):
            pass
    readings.append(text)
    return readings


def from_text(text: str, kind: Any, where: str) -> Any:
    """``text`` as a ``kind``. Raises ``UserError`` that says, after ``where``, what was expected."""
    readings = _readings(text)
    if "," in text:
        parts = [p.strip() for p in text.split(",") if p.strip()]
        readings += [tuple(parts), tuple(_readings(p)[0] for p in parts)]
    else:
        readings += [(r,) for r in readings]
    for reading in readings:
        with contextlib.suppress(ValidationError):
            return _adapter(kind).validate_python(reading, strict=True)
    raise UserError(f"{where}={text}: expected {expected(kind)}, got {text!r}")


# -- to and from JSON ---------------------------------------------------------------------------------------------


def to_json(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` of fields of ``cls`` as JSON values: tuples become lists."""
    hints = fields_of(cls)
    return {k: _adapter(hints[k].type).dump_python(v, mode="json") for k, v in values.items()}


def build(cls: type, values: Mapping[str, Any], label: str = "") -> Any:
    """An instance of ``cls`` from JSON ``values``; fields not given keep their default.

    Raises ``UserError`` naming the field for an unknown name, a wrong type or a value out of range.
    """
    fields, label = fields_of(cls), label or cls.__name__.lower()
    checked = {}
    for name, value in values.items():
        if name not in fields:
            raise unknown(f"field of {label}", name, fields)
        kind = fields[name].type
        try:
            checked[name] = _adapter(kind).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            raise UserError(f"{label}.{name}: expected {expected(kind)}, got {value!r}") from error
        _in_range(fields[name], checked[name], f"{label}.{name}")
    try:
        made = cls(**checked)
    except (TypeError, ValueError) as error:
        raise UserError(f"{label}: {error}") from error
    held, drawn = getattr(made, "buffer_episodes", None), getattr(made, "batch_episodes", None)
    if held is not None and drawn is not None and drawn > held:
        raise UserError(f"{label}.batch_episodes={drawn}: more than the replay holds ({label}.buffer_episodes={held})")
    return made


def _in_range(field: Field, value: Any, where: str) -> None:
    """Counts are counts, learning rates positive, the discount a share; other numbers are the method's own affair."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    low: float | None = None
    if field.name in COUNTS:
        low = 1
    elif isinstance(value, int) and not (isinstance(field.default, (int, float)) and field.default < 0):
        low = 0 if int in (field.type, *typing.get_args(field.type)) else None
    if low is not None and value < low:
        raise UserError(f"{where}={plain(value)}: must be at least {low}")
    if field.name == "gamma" and not 0 <= value <= 1:
        raise UserError(f"{where}={plain(value)}: a discount lies between 0 and 1")
    if re.fullmatch(r"lr|lr_.*|.*_lr", field.name) and value <= 0:
        raise UserError(f"{where}={plain(value)}: a learning rate is above 0")
