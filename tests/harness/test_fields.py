"""Typed settings from text and JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge

from harness.errors import UserError
from harness.fields import build, expected, fields_of, from_text, plain, short, to_json


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("2e5", int, 200_000),
        ("1_000", int, 1000),
        ("-4", int, -4),
        ("3e-4", float, 3e-4),
        ("3", float, 3.0),
        ("true", bool, True),
        ("False", bool, False),
        ("none", float | None, None),
        ("0.5", float | None, 0.5),
        ("64", tuple[int, ...], (64,)),
        ("64,128", tuple[int, ...], (64, 128)),
        ("3m,2s3z", tuple[str, ...], ("3m", "2s3z")),
        ("1,2", tuple[str, ...], ("1", "2")),
        ("7,", tuple[int, ...], (7,)),
        ("adam", Literal["adam", "rmsprop"], "adam"),
        ("3", str, "3"),
        ("none", str, "none"),
        ("9007199254740993", int, 9007199254740993),
    ],
)
def test_text_becomes_the_declared_type(text: str, kind: Any, value: Any) -> None:
    got = from_text(text, kind, "key")
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("3.7", int, "key=3.7: expected an integer, got '3.7'"),
        ("many", int, "key=many: expected an integer, got 'many'"),
        ("true", int, "expected an integer"),
        ("true", float, "expected a number"),
        ("1", bool, "expected true or false, got '1'"),
        ("nan", float, "expected a number"),
        ("inf", float, "expected a number"),
        ("sgd", Literal["adam", "rmsprop"], "expected one of adam, rmsprop, got 'sgd'"),
        ("a,b", tuple[int, ...], "expected values separated by commas, each an integer"),
        ("0", Annotated[int, Ge(1)], "expected an integer of at least 1, got '0'"),
    ],
)
def test_a_wrong_type_is_refused_with_what_was_expected(text: str, kind: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        from_text(text, kind, "key")
    assert message in str(error.value)


def test_docs_types_and_defaults_come_from_the_class(fake_marl: Any) -> None:
    fields = fields_of(fake_marl.Fake)
    assert list(fields)[:3] == ["gamma", "lr", "num_envs"]
    assert fields["lr"].doc == "Learning rate, over two lines."
    assert fields["num_envs"].doc == ""
    assert fields["layers"].default == (64,)
    assert [short(fields[k].type) for k in ("lr", "clip", "mixer", "layers")] == [
        "float", "float | none", "sum | product", "int,…",
    ]  # fmt: skip
    assert expected(fields["clip"].type) == "a number or none"
    assert [plain(x) for x in (None, True, (1, 2), 3e-4, 0.1, 1e6)] == [
        "none",
        "true",
        "1,2",
        "0.0003",
        "0.1",
        "1e+06",
    ]


def test_json_and_back(fake_marl: Any) -> None:
    values = to_json(fake_marl.Fake, {"layers": (1, 2), "clip": None, "lr": 1.0})
    assert values == {"layers": [1, 2], "clip": None, "lr": 1.0}
    made = build(fake_marl.Fake, values)
    assert made.layers == (1, 2)
    assert made == fake_marl.Fake(layers=(1, 2), lr=1.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lrr": 1.0}, "unknown field of fake 'lrr'; did you mean 'lr'?"),
        ({"lr": "high"}, "fake.lr: expected a number, got 'high'"),
        ({"lr": -1e-3}, "fake.lr=-0.001: a learning rate is above 0"),
        ({"gamma": 1.5}, "fake.gamma=1.5: a discount lies between 0 and 1"),
        ({"num_envs": 0}, "fake.num_envs=0: must be at least 1"),
        ({"batch_episodes": -3}, "fake.batch_episodes=-3: must be at least 1"),
        ({"batch_episodes": 101}, "fake.batch_episodes=101: more than the replay holds (fake.buffer_episodes=100)"),
    ],
)
def test_values_out_of_range_are_refused_by_name(fake_marl: Any, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        build(fake_marl.Fake, values)
    assert message in str(error.value)


def test_what_a_class_checks_itself_is_the_users_error() -> None:
    @dataclass(frozen=True)
    class Picky:
        size: int = 1

        def __post_init__(self) -> None:
            if self.size == 13:
                raise ValueError("not 13")

    assert build(Picky, {"size": 12}).size == 12
    with pytest.raises(UserError, match="picky: not 13"):
        build(Picky, {"size": 13})
