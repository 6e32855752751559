"""Variants of a method: ``name``, or ``name@part+part+...``, each part a preset or ``field=value``.

``qmix@pymarl2``, ``mcem@candidates=100+mixer=linear``, ``qmix@pymarl2+hidden=128``. The label is the variant's name
everywhere: its folder, the reports, ``harness compare``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness import registry
from harness.errors import UserError, unknown
from harness.fields import fields_of, from_text, to_json

LONGEST = 120
"""Characters of a label: it is a folder's name and stands in legends."""


@dataclass(frozen=True)
class Variant:
    """A label, read and checked."""

    cls: Any
    name: str
    presets: tuple[str, ...] = ()
    """In the order given; a later one wins."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Field -> JSON value; wins over the presets."""
    label: str = ""
    """As typed, in one order: presets as given, then settings in the order of the method's fields."""


def presets_of(cls: Any) -> Mapping[str, Mapping[str, Any]]:
    """The presets of a method's class; a method needs none."""
    found: Mapping[str, Mapping[str, Any]] = getattr(cls, "presets", {})
    return found


def taken_by_default(suite: str, action: str) -> tuple[str, ...]:
    """Names of the presets that a suite takes for a kind of actions, the later over the earlier."""
    return action, suite, f"{suite}-{action}"


def base(label: str) -> str:
    """The method's registered name."""
    return label.partition("@")[0]


def read(label: str) -> Variant:
    """The variant that ``label`` asks for. Raises ``UserError`` for whatever is wrong with it."""
    name, at, rest = label.partition("@")
    cls = registry.algorithm(name)
    if not at:
        return Variant(cls, name, label=name)
    parts = rest.split("+")
    if not all(parts):
        raise UserError(
            f"{label}: one of the parts joined by + after @ is empty; presets and settings stand there, "
            f"e.g. {name}@{_example(cls)}"
        )
    presets = [p for p in parts if "=" not in p]
    for preset in presets:
        if preset not in presets_of(cls):
            raise _no_preset(name, preset, cls)
        if presets.count(preset) > 1:
            raise UserError(f"{label}: preset {preset} is given twice")
    texts = _texts(label, name, cls, [p for p in parts if "=" in p])
    settings = {}
    for key, text in texts.items():
        settings.update(to_json(cls, {key: from_text(text, fields_of(cls)[key].type, f"{name}.{key}")}))
    canonical = f"{name}@" + "+".join([*presets, *(f"{k}={t}" for k, t in texts.items())])
    if len(canonical) > LONGEST:
        raise UserError(f"{label}: a label is a folder's name, {len(canonical)} characters are more than {LONGEST}")
    return Variant(cls, name, tuple(presets), settings, canonical)


def _texts(label: str, name: str, cls: Any, parts: list[str]) -> dict[str, str]:
    """Field -> text, in the order of the method's fields."""
    fields, found = fields_of(cls), dict[str, str]()
    for part in parts:
        key, _, text = part.partition("=")
        if key not in fields:
            raise unknown(f"field of {name}", key, fields)
        if key in found:
            raise UserError(f"{label}: {key} is given twice")
        if not text:
            raise UserError(f"{label}: {key}= has no value")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", text):
            raise UserError(
                f"{label}: {text!r} cannot stand in a folder's name (letters, digits and _.- can); "
                f"for all variants of {name} say {name}.{key}={text}"
            )
        found[key] = text
    return {k: found[k] for k in fields if k in found}


def _no_preset(name: str, preset: str, cls: Any) -> UserError:
    """A part that is no preset; where it is a field, its value was forgotten."""
    if preset in fields_of(cls):
        return UserError(f"{name}@{preset}: {preset} is a field, say its value: {name}@{preset}=...")
    return unknown(f"preset of {name}", preset, presets_of(cls))


def _example(cls: Any) -> str:
    return next(iter(presets_of(cls)), "") or f"{next(iter(fields_of(cls)))}=..."
