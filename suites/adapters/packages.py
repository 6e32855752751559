"""Optional packages: versions, one clear line saying which extra to install, imports without chatter."""

from __future__ import annotations

import contextlib
import importlib
import io
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from harness.errors import UserError


def versions(extra: str, *packages: str) -> str:
    """E.g. "mpe2 1.1.1, pettingzoo 1.27.0". Raises ``UserError`` naming the extra when one is missing."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError as error:
            raise UserError(
                f"suite {extra} needs the package {package}, which is not installed; "
                f"in the repository's folder: pip install -e '.[{extra}]'"
            ) from error
    return ", ".join(found)


def quiet_import(module: str) -> Any:
    """``module``, without what it prints to stderr on import: notices that it or a dependency of it is old."""
    with contextlib.redirect_stderr(io.StringIO()):
        return importlib.import_module(module)
