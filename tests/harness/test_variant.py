"""Variants of a method: name@preset+field=value.

Case: a key that is unknown is refused with the nearest match (epymarl#22, #62; facmac#2), inside a label too.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from harness import variant
from harness.config import method, parse
from harness.errors import UserError
from harness.plan import make

pytestmark = pytest.mark.usefixtures("fake_marl")


def refused(*arguments: str) -> str:
    with pytest.raises(UserError) as error:
        parse(["suite=toy", *arguments])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_settings_alone_keep_the_suites_preset() -> None:
    plain, made = method("fake", "toy", "discrete"), method("fake@mixer=product", "toy", "discrete")
    assert (made.mixer, made.batch_episodes, made.lr) == ("product", 24, 1e-3)
    assert plain.mixer == "sum"
    assert (plain.batch_episodes, plain.lr) == (made.batch_episodes, made.lr)


def test_presets_take_the_suites_place_in_order_and_settings_win() -> None:
    named = method("fake@big+batch_episodes=9", "toy", "discrete")
    assert (named.lr, named.layers, named.batch_episodes) == (2e-3, (128, 128), 9)
    both = method("fake@big+toy+lr=1", "", "discrete")
    assert (both.lr, both.layers, both.batch_episodes) == (1.0, (128, 128), 24)
    assert method("fake@discrete+big").lr == 2e-3
    assert method("fake@big+discrete").lr == 1e-3


def test_the_label_wins_over_the_name_and_the_name_over_presets() -> None:
    found = parse(["suite=toy", "tasks=one", "algorithms=fake,fake@lr=0.5,fake@big", "fake.lr=0.1", "fake.clip=3"])
    assert {label: (m.lr, m.clip) for (_, label), m in found.methods.items()} == {
        "fake": (0.1, 3.0), "fake@lr=0.5": (0.5, 3.0), "fake@big": (0.1, 3.0),
    }  # fmt: skip


def test_one_variant_has_one_label() -> None:
    assert variant.read("fake@mixer=product+lr=1e-3").label == "fake@lr=1e-3+mixer=product"  # the fields' order
    assert variant.read("fake@mixer=product+big+toy").label == "fake@big+toy+mixer=product"
    assert refused("algorithms=fake@mixer=product+lr=1,fake@lr=1+mixer=product") == (
        "algorithms: fake@lr=1+mixer=product is given twice"
    )


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("fake@mxier=sum", "unknown field of fake 'mxier'; did you mean 'mixer'?"),
        ("fake@bgi+lr=1", "unknown preset of fake 'bgi'; did you mean 'big'?"),
        ("fake@mixer=linear", "fake.mixer=linear: expected one of sum, product, got 'linear'"),
        ("fake@lr=fast", "fake.lr=fast: expected a number, got 'fast'"),
        ("fake@lr=-1", "a learning rate is above 0"),
        ("fake@batch_episodes=1.5", "expected an integer, got '1.5'"),
        ("fake@num_envs=0", "must be at least 1"),
        ("fake@lr", "lr is a field, say its value: fake@lr=..."),
        ("fake@lr=", "fake@lr=: lr= has no value"),
        ("fake@", "is empty"),
        ("fake@big+", "is empty"),
        ("fake@lr=1+lr=2", "lr is given twice"),
        ("fake@big+big", "preset big is given twice"),
        ("fake@mixer=../x", "'../x' cannot stand in a folder's name"),
        ("fake@behaviour=raise once", "'raise once' cannot stand in a folder's name"),
        ("fkae@lr=1", "unknown algorithm 'fkae'; did you mean 'fake'?"),
        ("fake@lr=0." + "0" * 120 + "1", "more than 120"),
    ],
)
def test_what_is_wrong_with_a_label_is_named_in_one_line(label: str, message: str) -> None:
    assert message in refused(f"algorithms={label}")


def test_a_variant_given_as_a_setting_is_shown_its_place() -> None:
    assert "algorithms=fake@mixer=product" in refused("fake@mixer=product")


def test_trials_of_variants_have_folders_of_their_own(tmp_path: Path) -> None:
    found = parse(["suite=toy", "tasks=one", "seeds=1", "algorithms=fake,fake@mixer=product", f"results={tmp_path}"])
    trials = found.trials("cpu")
    assert [t.key for t in trials] == ["toy-quick/toy/one/fake/seed_0", "toy-quick/toy/one/fake@mixer=product/seed_0"]
    assert [t.settings["algorithm"]["mixer"] for t in trials] == ["sum", "product"]


def test_advice_on_memory_can_be_typed(fake_marl: ModuleType, tmp_path: Path) -> None:
    request = ["suite=toy", "tasks=one", "algorithms=fake@mixer=product", f"results={tmp_path}"]
    request += ["fake.batch_episodes=1", "max_memory=100KB"]
    with pytest.raises(UserError, match=r"try fake\.buffer_episodes=") as error:
        make(parse(request))
    advice = str(error.value).split("try ")[1].split(",")[0]
    assert parse([*request, advice]).methods["one", "fake@mixer=product"].buffer_episodes == int(advice.split("=")[1])
