"""How pages are made of the templates: escaped, with every name defined."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup


def templates() -> Environment:
    """Those of this package."""
    return Environment(
        loader=PackageLoader("harness.reporting"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def source(env: Environment, *names: str) -> Markup:
    """Files beside the templates as they are, one after the other: style sheets and scripts."""
    assert env.loader is not None
    return Markup("\n".join(env.loader.get_source(env, name)[0] for name in names))
