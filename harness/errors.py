"""Errors that say all in one line: the user's to mend (exit code 2), and a trial that cannot go on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """One clear line: what is wrong, where, and the nearest right thing."""


class Diverged(Exception):
    """A trial in which something is no longer finite: what, and at which environment step.

    It fails for good. Another attempt would repeat it, and where it did not, only the lucky attempts would count.
    """


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that is not among ``known``, with the nearest match."""
    known = sorted(known)
    lower = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.5)
    hint = f"did you mean {lower[near[0]]!r}?" if near else "known: " + ", ".join(known)
    return UserError(f"unknown {what} {name!r}; {hint}")
