"""`from-generator`: where it must stay silent, and what the Python code gives at most; where it fires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import ReplaceGenerator, Rewrite, SetOption
from pipetune.core.profile import ConsumerProfile
from pipetune.report.changes import edit_words
from pipetune.rules import find_rule, propose_all
from pipetune.testing.rules import check_fires, check_rewrite, check_silent, context, proposals
from tests.rules.outline import outlines

NAME = "from-generator"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # No generator.
    ("range 9", {}, None),
    ("range 9 | map python", {}, None),
    ("list_files | map reads_file", {}, None),
    ("TFRecordDataset | map", {}, None),
    ("range 2 | interleave inner=GeneratorDataset", {}, None),
    ("range 2 | flat_map inner=GeneratorDataset python", {}, None),
    ("opaque", {}, None),
    # One that nobody asked, or that does something else.
    ("from_generator", {}, "not known what its generator does"),
    ("from_generator python | batch 2", {}, "not known what its generator does"),
    ("from_generator entries=no", {}, "Kept as it is: it draws."),
    ("from_generator entries=no | batch 2 | prefetch", {}, "Kept as it is: it draws."),
    ("from_generator entries=no elements=9 | cache", {}, "it draws"),
    # What fails is dropped below.
    ("from_generator entries=12 | ignore_errors", {}, "ignore_errors below"),
    ("from_generator entries=12 | map | batch 2 | ignore_errors | prefetch", {}, "ignore_errors below"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_silent(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_silent(NAME, words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


def _over(node: str, entries: int, calls: tuple[int, ...], safety: str = "EXACT") -> list[str]:
    return [f"{safety} {node} map over {entries} entries {node}.num_parallel_calls={number}" for number in calls]


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("from_generator entries=12", {}, _over("n0", 12, (-1, 2))),
    ("from_generator entries=12 | shuffle 9 | batch 2 | repeat", {"cores": 8}, _over("n0", 12, (-1, 2, 8))),
    (
        "a = range 9 | ignore_errors; b = from_generator entries=3; zip a b",
        {},
        _over("n2", 3, (-1, 2)),
    ),
    ("from_generator entries=12", {"randomness_fixed": True}, _over("n0", 12, (-1, 2))),
    (
        "a = from_generator entries=5; b = from_generator entries=7; zip a b",
        {},
        [*_over("n0", 5, (-1, 2)), *_over("n1", 7, (-1, 2))],
    ),
    (
        "from_generator entries=12 | batch 2",
        {"options": {"deterministic": False}},
        _over("n0", 12, (-1, 2), "STATISTICAL"),
    ),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
def test_fires(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert outlines(check_fires(NAME, words, **fields)) == expected


def test_the_silent_table_is_the_longer_one() -> None:
    assert len(SILENT) > len(FIRES)


def test_the_map_stands_where_the_generator_stood() -> None:
    described = context("from_generator entries=12 shared=2 spec=x | shuffle 9 | batch 2")
    rewrite = check_fires(NAME, "from_generator entries=12 shared=2 spec=x | shuffle 9 | batch 2")[0]
    edited = check_rewrite(rewrite, described.pipeline, rule=NAME)
    assert [node.op for node in edited] == ["from_tensor_slices", "map", "shuffle", "batch"]
    source, loads = edited.nodes[:2]
    assert source.cardinality == loads.cardinality == 12 and loads.id == "n0" and loads.spec == "x"
    assert loads.function is not None and not loads.function.python and loads.function.digest == "entries"
    assert loads.location is not None and (loads.location.line, loads.location.method) == (1, "map")
    assert loads.shared == source.shared == 2


def test_what_the_report_says_of_the_edit() -> None:
    rewrite = check_fires(NAME, "from_generator entries=12 | batch 2")[0]
    (edit,) = (one for one in rewrite.edits if isinstance(one, ReplaceGenerator))
    assert "its lists as a source" in edit_words(edit, context("from_generator entries=12").pipeline)
    assert "12 entries" in rewrite.summary and "train.py:1" in rewrite.summary
    assert any("cardinality" in note for note in rewrite.notes)


def test_autotune_is_kept_to_the_granted_cores() -> None:
    found, _ = propose_all(context("from_generator entries=12 | batch 2", cores_believed=8))
    bounded = [one for one in found if one.rule == NAME and any(isinstance(edit, SetOption) for edit in one.edits)]
    assert len(bounded) == 1


def _ceiling(words: str, **consumer: Any) -> str:
    described = context(words)
    assert described.profile is not None
    profile = replace(described.profile, consumer=ConsumerProfile(kind="keras-fit", **consumer))
    _, silences = proposals(find_rule(NAME), replace(described, profile=profile))
    (silence,) = silences
    return silence.why


def test_the_most_that_python_gives_is_said() -> None:
    said = _ceiling("from_generator entries=no cpu=2ms waits=0us | batch 32", bound_seconds=0.02)
    assert "500 elements/s at most (2.0 ms each)" in said and "interpreter's lock" in said
    assert "For one training step that is 64 ms, 3.2 times what the model needs." in said
    said = _ceiling("from_generator entries=no cpu=1ms waits=3ms | batch 2", bound_seconds=0.02)
    assert "250 elements/s at most (4.0 ms each, 75% of it waiting)" in said and "40% of what the model" in said
    assert "training step" not in _ceiling("from_generator entries=no cpu=2ms | batch 32")


def test_without_a_profile_no_figure_is_made_up() -> None:
    (silence,) = check_silent(NAME, "from_generator entries=no", profiled=False)
    assert "elements/s" not in silence.why and "What can help" in silence.why


def test_nothing_gives_python_more_parallel_calls() -> None:
    """Not the generator, and not a map that works in Python."""
    found, silences = propose_all(context("from_generator entries=no cpu=2ms waits=0us | map python cpu=2ms waits=0us"))
    assert not [one for one in found if isinstance(one, Rewrite) and "num_parallel_calls" in repr(one.edits)]
    assert {silence.rule for silence in silences if "interpreter's lock" in silence.why} == {NAME, "parallel-map"}
