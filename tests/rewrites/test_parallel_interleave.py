"""`parallel-interleave`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.core.edits import Consent, Safety, SetArgument
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.rewrites.parallel_reads import effective_cycle_length
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("range 9 | map | batch 2", {}, None),
    ("range 9 | flat_map inner=TensorSliceDataset | batch 2", {}, None),
    ("TFRecordDataset | batch 2", {}, None),
    ("TFRecordDataset filenames=one num_parallel_reads=4 | batch 2", {}, None),
    ("list_files | flat_map | batch 2", {}, None),  # left to `read-shards`
    ("list_files elements=4 | TFRecordDataset | batch 2", {}, None),
    ("list_files | interleave variable=w", {}, "reads the variable w"),
    ("list_files | interleave variable=w", {"trained_variables": frozenset()}, "reads the variable w"),
    ("list_files | interleave writes", {}, "writes a variable"),
    ("list_files | interleave table", {}, "table"),
    ("list_files | interleave print", {}, "side effect"),
    ("list_files | interleave file python", {}, "side effect"),
    ("list_files | interleave unknown", {}, "nothing is known"),
    ("list_files elements=1 | interleave cycle_length=4", {}, "one inner dataset"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("parallel-interleave", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


def _same(node: str, edits: str, calls: tuple[int, ...], safety: str = "EXACT") -> list[str]:
    return [" ".join(f"{safety} {edits} {node}.num_parallel_calls={n}".split()) for n in calls]


_ALL = "n2.cycle_length={} n2.block_length=1"

FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    # All values in force are written out, whether or not they were given.
    (
        "list_files elements=2 | interleave",
        {},
        _same("n2", _ALL.format(2), (-1, 2)),
    ),
    (
        "list_files elements=4 | interleave cycle_length=4",
        {},
        _same("n2", "n2.block_length=1", (-1, 2)),
    ),
    (
        "list_files elements=4 | interleave cycle_length=4 block_length=3",
        {"cores": 4},
        _same("n2", "", (-1, 2, 4)),
    ),
    # Never more calls than the cycle length.
    (
        "list_files elements=3 | interleave cycle_length=3 block_length=1",
        {"cores": 8},
        _same("n2", "", (-1, 2)),
    ),
    # The default of this machine, not the number of available cores.
    (
        "list_files elements=8 | interleave block_length=1",
        {"cores": 2, "serial_cycle_length": 8},
        _same("n2", "n2.cycle_length=8", (-1, 2)),
    ),
    # Parallel interleaves have another default.
    (
        "list_files elements=3 | interleave AUTOTUNE block_length=1",
        {"cores": 8},
        _same("n2", "n2.cycle_length=3", (2,)),
    ),
    (
        "list_files elements=2 | interleave 2 block_length=1",
        {"cores": 8},
        ["EXACT n2.cycle_length=2 n2.num_parallel_calls=-1"],
    ),
    # A longer cycle changes the order.
    (
        "list_files elements=16 | interleave cycle_length=4 block_length=1",
        {},
        [
            *_same("n2", "", (-1, 2)),
            *_same("n2", "n2.cycle_length=8", (-1,), "REORDERS"),
            *_same("n2", "n2.cycle_length=16", (-1,), "REORDERS"),
        ],
    ),
    # Before a take, another order is another subset.
    (
        "list_files elements=16 | interleave cycle_length=4 block_length=1 | map | take 9",
        {},
        _same("n2", "", (-1, 2)),
    ),
    (
        "list_files elements=5 | interleave cycle_length=1 block_length=1",
        {},
        [
            *_same("n2", "", (-1,)),
            *_same("n2", "n2.cycle_length=2", (-1,), "REORDERS"),
            *_same("n2", "n2.cycle_length=5", (-1,), "REORDERS"),
        ],
    ),
    (
        "list_files elements=2 | interleave deterministic=False",
        {},
        _same("n2", _ALL.format(2), (-1, 2), "REORDERS"),
    ),
    (
        "list_files elements=2 | interleave",
        {"options": {"deterministic": False}},
        _same("n2", _ALL.format(2), (-1, 2), "STATISTICAL"),
    ),
    (
        "list_files elements=2 | interleave random",
        {},
        _same("n2", _ALL.format(2), (-1, 2), "STATISTICAL"),
    ),
    (
        "list_files elements=2 | interleave inner=TFRecordDatasetV2+ShuffleDatasetV3",
        {},
        _same("n2", _ALL.format(2), (-1, 2), "STATISTICAL"),
    ),
    (
        "range 2 | interleave inner=TensorDataset+FlatMapDataset calls=GeneratorDataset",
        {},
        _same("n1", "n1.cycle_length=2 n1.block_length=1", (-1, 2), "STATISTICAL"),
    ),
    (
        "range 2 | interleave inner=GeneratorDataset",
        {},
        _same("n1", "n1.cycle_length=2 n1.block_length=1", (-1, 2), "STATISTICAL"),
    ),
]


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("D2.silent")
def test_proposed_edits(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    if words.startswith("range 2"):
        words = words.replace("range 2", "range 2 elements=2")
    rewrites = check_proposes("parallel-interleave", words, **fields)
    assert outlines(rewrites) == expected
    for rewrite in rewrites:
        assert rewrite.group == f"parallel-interleave@{rewrite.node}"
        assert rewrite.needs == (frozenset({Consent.PYTHON_PARALLEL}) if "GeneratorDataset" in words else frozenset())


@pytest.mark.parametrize(
    ("words", "length"),
    [
        ("list_files | interleave", 8),
        ("list_files | interleave cycle_length=-1", 8),
        ("list_files | interleave cycle_length=5", 5),
        ("list_files | interleave AUTOTUNE", 3),
        ("list_files | interleave 4", 4),
        ("list_files | interleave 16", 8),
        ("list_files | interleave 4 cycle_length=6", 6),
    ],
)
def test_effective_cycle_length_is_the_runtimes_default(words: str, length: int) -> None:
    described = context(words, serial_cycle_length=8)
    assert effective_cycle_length(described.pipeline["n2"], described) == length


@pytest.mark.parametrize(
    ("words", "resuming", "longer"),
    [
        *((words, (), 0) for words in ("take 9", "skip 9", "shard 2 index=0")),
        ("skip 9", (ResumePoint(ResumeMethod.SKIP, "skip(9)", node="n3"),), 2),
        ("shard 1 index=0", (), 2),
        ("map", (), 2),
        ("enumerate", (), 2),  # a comparison would notice
    ],
)
def test_longer_cycle_is_not_proposed_where_it_selects_other_elements(
    words: str, resuming: tuple[ResumePoint, ...], longer: int
) -> None:
    text = f"list_files elements=16 | interleave cycle_length=4 block_length=1 | {words}"
    rewrites, silences = proposals("parallel-interleave", context(text, resuming=resuming))
    assert sum(rewrite.safety is Safety.REORDERS for rewrite in rewrites) == longer
    assert [silence.why for silence in silences if "different elements" in silence.why] == (
        [] if longer else [f"No longer cycle: {words.split()[0]} (train.py:4) would select different elements."]
    )


def test_parallel_calls_never_exceed_the_cycle_length() -> None:
    for cores in (1, 2, 3, 8, 64):
        for cycle in (1, 2, 3, 7, 16):
            words = f"list_files | interleave cycle_length={cycle}"
            for rewrite in check_proposes("parallel-interleave", words, cores=cores):
                values = {edit.name: edit.value for edit in rewrite.edits if isinstance(edit, SetArgument)}
                length, calls = values.get("cycle_length", cycle), values["num_parallel_calls"]
                assert isinstance(length, int) and isinstance(calls, int) and calls <= length


def test_predicted_bytes_count_the_readers_buffers() -> None:
    words = "list_files elements=2 | interleave cycle_length=2 block_length=1 bytes=1k"
    assert [rewrite.predicted_bytes for rewrite in check_proposes("parallel-interleave", words)] == [18_000] * 2
