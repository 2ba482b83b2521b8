"""The JSON codec: round trips of all types, and errors that name the place of the damage."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipetune.core.codec import MalformedData, decode, encode
from pipetune.core.edits import (
    Consent,
    Edit,
    Insert,
    Move,
    Plan,
    Remove,
    ReplaceFunction,
    ReplaceSource,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
)
from pipetune.core.functions import FunctionSplit, FunctionVariant, RowWindows, SplitPosition
from pipetune.core.pipeline import Node, Pipeline, Value
from pipetune.core.results import Interval, Outcome, Trial
from pipetune.core.settings import Settings

REWRITE = {"rule": "r", "node": "n", "safety": "EXACT", "edits": [], "summary": ""}

names = st.text(max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | numbers | names
values: st.SearchStrategy[Value] = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple))
arguments = st.dictionaries(names, values, max_size=3)
edits: st.SearchStrategy[Edit] = st.one_of(
    st.builds(SetArgument, names, names, values),
    st.builds(Insert, names, names, names, arguments),
    st.builds(Remove, names),
    st.builds(Move, names, names),
    st.builds(SetOption, names, values),
    st.builds(ReplaceFunction, names, st.sampled_from(FunctionVariant), names),
    st.builds(ReplaceSource, names, names, names, st.none() | st.builds(RowWindows)),
    st.builds(
        SplitFunction,
        names,
        st.builds(FunctionSplit, st.sampled_from(SplitPosition), names, position=st.integers(0, 9)),
    ),
)
rewrites = st.builds(
    Rewrite,
    rule=names,
    node=names,
    safety=st.sampled_from(Safety),
    edits=st.lists(edits, max_size=4).map(tuple),
    summary=names,
    needs=st.frozensets(st.sampled_from(Consent)),
    predicted_bytes=numbers,
)
plans = st.builds(Plan, names, st.lists(rewrites, max_size=2).map(tuple))
nodes = st.builds(Node, id=names, op=names, inputs=st.lists(names, max_size=2).map(tuple), arguments=arguments)
pipelines = st.builds(Pipeline, st.lists(nodes, min_size=1, max_size=4).map(tuple), name=names, options=arguments)
trials = st.builds(
    Trial,
    plans,
    st.sampled_from(Outcome),
    names,
    gain=st.none() | st.builds(Interval, numbers, numbers, numbers, st.integers(0, 99)),
    ratios=st.lists(numbers, max_size=3).map(tuple),
)


def through_json(value: object) -> object:
    return json.loads(json.dumps(encode(value), allow_nan=False))


@settings(max_examples=30)
@given(pipelines)
def test_pipeline_round_trip(pipeline: Pipeline) -> None:
    assert decode(Pipeline, through_json(pipeline)) == pipeline


@settings(max_examples=50)
@given(trials)
def test_trial_round_trip_with_plan_and_edits(trial: Trial) -> None:
    assert decode(Trial, through_json(trial)) == trial


def test_union_members_are_tagged_with_type() -> None:
    data = through_json(Rewrite("r", "n", Safety.EXACT, (Remove("n1"),), ""))
    assert isinstance(data, dict)
    assert data["edits"] == [{"type": "Remove", "node": "n1"}]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_become_null(number: float) -> None:
    assert encode(Interval(number, 1, 2, 3))["median"] is None  # type: ignore[index, call-overload]
    assert math.isnan(decode(Interval, {"median": None, "low": 1, "high": 2, "pairs": 3}).median)


def test_numpy_scalars_are_encoded_as_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert encode({"a": numpy.int64(3), "b": numpy.float32(0.5)}) == {"a": 3, "b": 0.5}


def test_unknown_keys_are_ignored_and_defaults_used() -> None:
    assert decode(Settings, {"invented_later": [1], "seed": 7}) == Settings(seed=7)


def test_integer_is_converted_for_float_field_but_kept_in_argument() -> None:
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
    assert place in caught.value.message
    assert caught.value.hint


def test_unsupported_object_raises_type_error() -> None:
    class Colour(enum.Enum):
        RED = 1

    assert encode(Colour.RED) == "RED"
    with pytest.raises(TypeError, match="cannot say a object"):
        encode({"a": object()})
