"""The JSON codec: round trips of all types, and errors that name the place of the damage."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipetune.core.codec import decode, encode
from pipetune.core.edits import Remove, Rewrite, Safety, SetArgument
from pipetune.core.errors import MalformedData
from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Value
from pipetune.core.settings import Settings

REWRITE = {"rule": "r", "node": "n", "safety": "EXACT", "edits": [], "summary": ""}


def through_json(value: object) -> object:
    return json.loads(json.dumps(encode(value), allow_nan=False))


@pytest.mark.parametrize("value", [None, True, 0, -1, 0.5, 1e300, "", "\u2028 ä", (), (1, ("a", (None, 2.0))), ((),)])
def test_argument_of_an_operator_keeps_its_type(value: Value) -> None:
    edit = SetArgument("n1", "padded_shapes", value)
    found = decode(SetArgument, through_json(edit))
    assert found == edit and type(found.value) is type(value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_become_null(number: float) -> None:
    assert encode(Interval(number, 1, 2, 3))["median"] is None  # type: ignore[index, call-overload]
    assert math.isnan(decode(Interval, {"median": None, "low": 1, "high": 2, "pairs": 3}).median)


def test_union_members_are_tagged_with_type_and_numpy_scalars_are_numbers() -> None:
    data: Any = through_json(Rewrite("r", "n", Safety.EXACT, (Remove("n1"),), ""))
    assert data["edits"] == [{"type": "Remove", "node": "n1"}]
    numpy = pytest.importorskip("numpy")
    assert encode({"a": numpy.int64(3), "b": numpy.float32(0.5)}) == {"a": 3, "b": 0.5}


def test_unknown_keys_are_ignored_and_integers_converted_for_float_fields_but_not_in_arguments() -> None:
    assert decode(Settings, {"invented_later": [1], "seed": 7}) == Settings(seed=7)
    assert type(decode(Settings, {"budget_seconds": 60}).budget_seconds) is float
    assert type(decode(SetArgument, {"node": "n", "name": "a", "value": 60}).value) is int


@dataclass(frozen=True)
class Shape:
    fixed: tuple[int, str]
    words: frozenset[str]
    numbers: dict[str, float]
    maybe: Mapping[str, int] | None = None
    free: dict[str, object] = field(default_factory=dict)


def test_round_trip_of_containers() -> None:
    shape = Shape((1, "a"), frozenset({"b", "a"}), {"x": 1.5}, {"n": 2}, {"any": [1, {"deep": None}]})
    assert encode(shape)["words"] == ["a", "b"]  # type: ignore[index, call-overload]
    assert decode(Shape, through_json(shape)) == shape


@pytest.mark.parametrize(
    ("kind", "data", "place"),
    [
        (Interval, {"median": "x", "low": 1, "high": 2, "pairs": 3}, "median: should be float"),
        (Interval, {"low": 1, "high": 2, "pairs": 3}, "median: is missing"),
        (Interval, [1], "top level: should be an object"),
        (Interval, {"median": 1, "low": 1, "high": 2, "pairs": True}, "pairs: should be int"),
        (Settings, {"allow": ["everything"]}, "allow[0]: 'everything' is none of statistical"),
        (Settings, {"allow": [["nested"]]}, "allow[0]"),
        (Settings, {"steps": "many"}, "steps: 'many' has none"),
        (Rewrite, {**REWRITE, "edits": [{"type": "Explode"}]}, "edits[0]: type 'Explode' is none of SetArgument"),
        (Rewrite, {**REWRITE, "edits": [{"node": "n"}]}, "edits[0]: type None"),
        (Rewrite, {**REWRITE, "safety": 0}, "safety: 0 is none of EXACT"),
        (Shape, {"fixed": [1], "words": [], "numbers": {}}, "fixed: should have 2 items"),
        (Shape, {"fixed": {}, "words": [], "numbers": {}}, "fixed: should be a list"),
        (Shape, {"fixed": [1, "a"], "words": [], "numbers": []}, "numbers: should be an object"),
    ],
)
def test_malformed_data_error_names_location(kind: type, data: object, place: str) -> None:
    with pytest.raises(MalformedData) as caught:
        decode(kind, data)
    assert place in caught.value.message and caught.value.hint


def test_unsupported_object_raises_type_error() -> None:
    class Colour(enum.Enum):
        RED = 1

    assert encode(Colour.RED) == "RED"
    with pytest.raises(TypeError, match="cannot say a object"):
        encode({"a": object()})
