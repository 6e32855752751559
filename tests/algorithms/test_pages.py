"""What docs/algorithms says of a method's presets is what the code holds."""

from pathlib import Path

import pytest

from harness import registry
from harness.fields import written
from tests.support.episodes import importable

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"


@pytest.mark.parametrize("name", importable())
def test_a_method_s_page_gives_every_preset_value_by_value(name: str) -> None:
    """Found here: a page said batches of 64 long after its preset had gone to 32."""
    page = PAGES / f"{name}.md"
    if not page.exists():
        pytest.skip("a method from outside")
    text = page.read_text()
    for preset, values in registry.algorithm(name).presets.items():
        row = next((line for line in text.splitlines() if line.startswith(f"| `{preset}` |")), "")
        assert f"`{written(values)}`" in row
