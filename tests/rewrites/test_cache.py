"""`cache`: where it is proposed and where not, its price, and what its notes contain."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.edits import Consent, Insert, Plan, Rewrite, Safety, apply_edits
from pipetune.core.pipeline import UNKNOWN, Node, Pipeline
from pipetune.core.storage import FileUse, Sweep, SweepReader
from pipetune.model.memory import added_bytes
from pipetune.rewrites import cache, cache_places
from pipetune.rewrites.cache import RULE, cache_whole_passes, stores_no_more_work
from pipetune.rewrites.cache_places import (
    CachePosition,
    best_position,
    cache_group,
    describe_saved_dataset,
    epochs_to_break_even,
    position_after,
)
from pipetune.rewrites.conflicts import find_conflict
from pipetune.rewrites.epoch_constancy import Constancy
from tests.rewrites.tables import Row, functions, outlines, proposal_test, silent_test, with_measured, with_profile
from tests.rules import check_no_proposal, check_proposes, context, proposals

_FILES = "TFRecordDataset elements=10 bytes=1k"
_SLICES = "from_tensor_slices elements=10 bytes=1k"
_DRAWN = "list_files elements=9 | map bytes=1k cpu=1ms"
_OVERTAKING = "range 10 | map 4 deterministic=False elements=10 bytes=1k"
_LISTED = "list_files elements=4 | interleave elements=9 bytes=1k"
_CYCLE = "list_files shuffle=False | interleave elements=10 bytes=1k"
_SHUFFLED = f"{_SLICES} | shuffle 9"
_ZIPPED = (
    f"a = {_FILES} | map bytes=1k | repeat elements=-1; b = range 9 elements=9 | repeat elements=-1; "
    "zip a b elements=-1 | map random"
)
_UNORDERED = {"options": {"deterministic": False}}
_ENDING = f"a = {_FILES} | map bytes=1k; b = range 9"
_CHOSEN = f"a = {_FILES} | map bytes=1k | repeat; b = range 9 | repeat; s = random; choose s a b"
_PARTS = (
    f"a = {_FILES} | map bytes=1k cpu=1ms; b = a | map | map random; p = range 1 | repeat elements=-1; "
    "c = zip p a elements=10 | map | filter random"
)
_UNCOUNTED, _EARLY = "the number of elements is unknown", "may stop reading"


def _cache(*nodes: str, safety: str = "EXACT") -> list[str]:
    return [f"{safety} cache(filename=)>{node}" for node in nodes]


def _frozen(node: str) -> list[str]:
    return _cache(node, safety="REORDERS")


def _moved(moves: str) -> list[str]:
    """A cache behind what other operators move, too."""
    return [f"EXACT {moves} cache(filename=)>{moves.rpartition('>')[2]}"]


SILENT: list[Row] = [
    # What is upstream differs from epoch to epoch.
    *functions(
        "range 10 | map ? elements=10 bytes=1k | batch 2",
        "random seeded python_random variable=w writes table print unknown",
    ),
    # What raises in every epoch would raise in the first only.
    ("TFRecordDataset | [batch 4 or padded_batch 4] | map | batch 3 elements=10 bytes=1k",
     "rejects a shorter last batch"),
    ("range 9 | window 2 | flat_map inner=BatchDatasetV2 spec=TensorSpec(shape=(None,))"
     " | batch 3 elements=10 bytes=1k spec=TensorSpec(shape=(None,2))", "rejects a shorter last batch"),
    ("random elements=10 bytes=1k | map | batch 2", "draws random numbers"),
    ("opaque elements=10 bytes=1k | map | batch 2", "unknown what this operator does"),
    ("a = range 9 | map elements=9 bytes=1k; b = range 9; choose a b | batch 2", _EARLY),
    (f"a = {_FILES} | map bytes=1k | repeat | take 30; b = range 9 | repeat; s = random; choose s a b", _EARLY),
    (f"{_ENDING}; s = random elements=-1; choose s a b stop_on_empty_dataset=True", _EARLY),
    (f"{_ENDING}; s = range 9; choose s a b stop_on_empty_dataset=False", _EARLY),
    (_CHOSEN, {"elements_read": 21}, "may leave it before its end"),
    # Of two that read the same, none is read to the end: what chooses ends first, or one of them.
    (f"{_PARTS}; s = range 9; choose s b c stop_on_empty_dataset=[True or False]", _EARLY),
    (f"{_PARTS}; s = random elements=-1; d = range 9; choose s b c d stop_on_empty_dataset=True", _EARLY),
    (f"{_PARTS}; s = a | batch 4 | scan writes; choose s b c stop_on_empty_dataset=True", _EARLY),
    # Elements that are dropped with one that raises would be there from the second epoch on.
    (f"{_FILES} | map bytes=1k | map random | [batch 2 or shuffle 9 | padded_batch 2 or enumerate or window 2"
     " | flat_map or take 30] | ignore_errors", "takes others along"),
    # The order is not kept, and other elements would be taken.
    (f"{_CYCLE} 2 deterministic=False cycle_length=2 | take 5 | map bytes=1k", "depends on the order"),
    (f"{_OVERTAKING} | batch 3 drop_remainder=True | map bytes=1k", "drops different elements"),
    # The data is repeated upstream, and what follows depends on it.
    ("range 10 elements=10 | repeat[ or  -1] | take 25 | map bytes=1k | batch 2", "endlessly"),
    ("range 10 elements=10 | repeat 3 | map bytes=1k elements=30 | ignore_errors", "every epoch again"),
    ("range 10 elements=10 | repeat 3 | batch 2 | map bytes=1k", "every epoch again"),
    ("range 10 elements=10 | repeat 2 | map bytes=1k elements=20 | map random", {"epochs": 1}, "every epoch again"),
    # It would be empty each time.
    (f"{_FILES} | map | batch 2", {"rebuilt_operators": frozenset({"n0", "n1", "n2"})}, "in each iteration"),
    # It would never be complete.
    (f"{_FILES} | map | batch 2", {"partial_read": True}, "stops before the end of the data"),
    (f"{_FILES} | map bytes=1k | batch 2", {"elements_read": 5}, "may leave it before its end"),  # it asks for no sixth
    (f"{_FILES} | map bytes=1k | map random | repeat", {"elements_read": 10}, "may leave it before its end"),
    (f"{_FILES} | map | [batch 2 | take 3 or take_while | batch 2 or opaque or scan unknown]", _EARLY),
    (f"a = {_FILES} | map bytes=1k; b = range 99 | filter; zip b a | map random", _EARLY),
    (f"a = {_FILES} | map bytes=1k | map random; b = TFRecordDataset; zip a b", _EARLY),
    (f"{_FILES} | map bytes=1k | repeat | [take 10 or batch 5 | take 2]", _EARLY),  # asks for no eleventh
    (f"{_FILES} | map bytes=1k | map random | [repeat | shuffle 9 | take 2 or shuffle 9 | repeat | take 2 or "
     "shuffle 10 | take 1]", _EARLY),
    (f"{_FILES} | map bytes=1k | map random | repeat | flat_map inner=RangeDataset | take 11", _EARLY),
    (f"{_ZIPPED} | take 10", _EARLY),
    ("a = range 1 | repeat elements=-1; b = range 9 | repeat elements=-1; zip a b elements=-1 | map bytes=1k | take 5",
     "endlessly"),
    # After a shuffle, each epoch picks other elements, not just another order.
    (f"{_SHUFFLED} | [take 5 or skip 2 or shard 2 index=1 or enumerate or window 2 or take_while"
     " or group_by_window] | map bytes=1k",
     "depends on the order"),
    (f"{_SHUFFLED} | batch 3 drop_remainder=True | map bytes=1k", "drops different elements"),
    (f"a = {_SHUFFLED} | repeat elements=-1; b = range 9; zip a b elements=9 | map bytes=1k", "depends on the order"),
    ("list_files elements=9 | take 5 | map reads_file bytes=1k", "depends on the order"),
    (f"{_SHUFFLED} | cache | take 5 | map bytes=1k", "depends on the order"),  # the script's is never complete
    # It is read once.
    (f"{_FILES} | map bytes=1k | [batch 2 or repeat 1 | batch 2]", {"epochs": 1}, "at most once"),
    (f"{_FILES} | map bytes=1k | batch 2", {"epochs": 1, "steps_per_epoch": 5}, "1 epoch of 5 steps"),
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {"epochs": 2, "steps_per_epoch": 2}, "at most once"),
    # What varies with the order behind it would not: the shuffle between the two holds some elements only.
    (f"{_LISTED} | map random | shuffle [8 or 9"
     " reshuffle_each_iteration=False] | batch 2 drop_remainder=True", "leaves other elements out of its last batch"),
    (f"a = {_LISTED} | map random; b = a | shuffle 9; c = a | enumerate; concatenate b c", "selects or joins"),
    (f"{_LISTED} | map bytes=1k | repeat | [enumerate or window 2]", "selects or joins"),
    # The price is unknown.
    ("range 90 elements=90 | window 9 elements=10 | flat_map inner=BatchDatasetV2+FilterDataset bytes=1k | map random",
     _UNCOUNTED),
    ("range 90 elements=90 | [flat_map or unbatch or group_by_window] profiled=29 | map bytes=1k | map random",
     _UNCOUNTED),
    ("range 90 elements=90 | interleave profiled=30 bytes=1k | map random", _UNCOUNTED),
    ("TFRecordDataset bytes=1k | map bytes=1k | batch 2", _UNCOUNTED),
    ("from_generator bytes=1k | map random | batch 2", _UNCOUNTED),  # whatever is approved
    ("TFRecordDataset elements=9 | map | batch 2", "the size of an element"),
    ("TFRecordDataset bytes=1k elements=-1", "infinite"),
    # Nothing is saved.
    ("range 10 elements=10 static_bytes=8 | shuffle 10 | batch 2", ""),
    (f"{_SLICES} | [batch 2 or shuffle 10 | repeat]", ""),
    (f"a = {_SLICES}; b = range 10 elements=10; zip a b elements=10 bytes=1k | [batch 2 or map random]", None),
    (f"{_FILES} | map | cache[ or  | shuffle 10 | repeat]", "already"),
    (f"{_FILES} | map bytes=1k | snapshot bytes=1k", "already"),
    (f"{_FILES} | map bytes=1k | snapshot bytes=1k | map bytes=1k", "stores its elements"),
]  # fmt: skip

test_no_cache = silent_test("cache", SILENT, one_reason=False)


def test_only_the_deciding_operator_gives_a_reason() -> None:
    assert len(check_no_proposal("cache", "random elements=10 bytes=1k | map | map | batch 2")) == 1


@pytest.mark.parametrize(("words", "expected"), [
    ("range 10 | filter python elements=10 bytes=1k | batch 2", _cache("n2")),
    ("from_generator elements=10 bytes=1k | map bytes=1k | batch 2", _cache("n2")),
    ("range 3 | interleave inner=from_generator elements=10 bytes=1k | batch 2", _cache("n2")),
    ("list_files | interleave inner=GeneratorDataset elements=10 bytes=1k", _cache("n2", safety="REORDERS")),
    (f"{_SHUFFLED} | map python bytes=1k | batch 2", _moved("n1>n2")),
])  # fmt: skip
def test_what_python_returns_is_cached_with_consent(words: str, expected: list[str]) -> None:
    rewrites, silences = proposals("cache", context(words))
    assert [one for one in outlines(rewrites) if one in expected] == expected
    assert all(one.needs == {Consent.PYTHON_CACHE} and "same in every epoch" in one.notes[-1] for one in rewrites)
    assert any("runs Python" in one.why for one in silences)
    for one in rewrites:
        assert find_conflict(context(words), [one]) == ""
        assert "runs Python" in find_conflict(context(words), [replace(one, needs=frozenset())])


def test_what_python_returned_differently_when_read_again_is_not_cached() -> None:
    rule_context = context("range 10 | map python elements=10 bytes=1k | map python bytes=1k | batch 2")
    profile = rule_context.profile
    assert profile is not None
    operators = tuple(replace(one, varies=one.node == "n2") for one in profile.operators)
    rewrites, silences = proposals("cache", replace(rule_context, profile=replace(profile, operators=operators)))
    assert {one.node for one in rewrites} == {"n1"}
    assert [one.node for one in silences if "gave other elements when it was read again" in one.why] == ["n2"]


_MAP = "map bytes=1k cpu=1ms"
_OTHER = "range 10 elements=10 | map bytes=1k cpu=1ms | map random"

FIRES: list[Row] = [
    # The deepest place upstream of the first operator that differs; after the last one that works.
    (f"{_FILES} | map[ or  4] bytes=1k | map random | batch 2 | repeat", _cache("n1")),
    (f"{_FILES} | map bytes=1k | batch 2 | [prefetch 1 or with_options]", _cache("n2")),
    ("range 10 elements=10 | map bytes=1k | map variable=w", _cache("n1")),
    (f"{_CYCLE} 2 cycle_length=2 | map random | batch 2", _cache("n1")),
    (f"{_FILES} | map [raises reads_file or asserts] bytes=1k", _cache("n1")),
    (f"{_FILES} | [batch 5 or batch 4 drop_remainder=True] | batch 3 bytes=1k", _cache("n2")),
    (f"{_FILES} | map bytes=1k | take 3 | cache | map bytes=1k", _cache("n4")),
    # In the place of one of file names, whose order it keeps, unless that serves others or stays on disk.
    (f"{_SLICES} | cache | map bytes=1k cpu=1ms | map random", ["EXACT -n1 cache(filename=)>n2"]),
    (f"{_SLICES} | cache | shuffle 9 | {_MAP} | map random", ["EXACT n2>n3 -n1 cache(filename=)>n3"]),
    (f"{_SLICES} | cache | map bytes=1k cpu=1ms | map random", {"read_by_others": frozenset({"n1"})}, _cache("n2")),
    (f"{_SLICES} | shuffle 9 | cache | {_MAP} | map random", ["EXACT -n2 cache(filename=)>n3"]),
    (f"{_SLICES} | shuffle 9 | cache | shuffle 5 | {_MAP} | map random",
     ["EXACT n3>n4 -n2 cache(filename=)>n4"]),
    (f"{_SLICES} | cache [shared=2 or filename=x] | {_MAP} | map random", _cache("n2")),
    (f"a = {_SLICES} | cache; b = a | {_MAP}; zip b a | map random", _cache("n2")),
    # The smaller place too, where it is much smaller.
    (f"{_FILES} | map bytes=600k | map random | batch 2", _cache("n1", "n0")),
    # Each window becomes as many elements as the next; the count is measured.
    ("range 90 elements=90 | window 9 shift=9 elements=10 | flat_map inner=BatchDatasetV2 bytes=1k | map random",
     _cache("n2")),
    # What one becomes, or how many become one, differs, and there is a mean of enough of them.
    ("range 90 elements=90 | [flat_map or unbatch or group_by_window] profiled=30 | map bytes=1k | map random",
     _cache("n2")),
    # A cache of the user's makes what is upstream of it equal in every epoch.
    (f"{_FILES} | map random bytes=1k | cache | map bytes=1k | map random", _cache("n3")),
    # Three at most: the one that saves most, then those that save most per byte held.
    (f"{_FILES} | map bytes=10k cpu=1ms | map bytes=100k cpu=1ms | map bytes=1M cpu=1ms | map random",
     _cache("n3", "n1", "n2")),
    # No place that another beats in both.
    (f"{_FILES} | map bytes=600k cpu=1ms | {_MAP} | map random", _cache("n2")),
    # What would be read in part before a take is complete after it.
    (f"{_FILES} | map bytes=1k | batch 2 | take 3", _cache("n3")),
    # More than one pass is taken, and what is joined is longer.
    (f"{_FILES} | map bytes=1k | map random | repeat | [take 11 or batch 5 | take 3]", _cache("n1")),
    (f"{_FILES} | map bytes=1k | map random | [repeat | shuffle 9 | take 3 or shuffle 9 | repeat | take 3 or "
     "shuffle 10 | take 2]", _cache("n1")),
    (f"a = {_FILES} | map bytes=1k | map random[ or  | repeat | take 30]; b = range 99 elements=99; zip b a",
     _cache("n1")),
    (f"{_ZIPPED} | take 11", _cache("n1")),
    # What a loop builds in each iteration is filled in each, unless it saves far more.
    (f"{_FILES} cpu=1ms | map bytes=1k cpu=5ms | batch 2 cpu=1ms", {"built_in_loop": frozenset({"n2"})}, _cache("n1")),
    (f"{_FILES} cpu=1ms | map bytes=1k cpu=5ms | batch 2 cpu=1ms", {"built_in_loop": frozenset({"n1", "n2"})},
     _cache("n2")),
    # Of joined datasets all are read to the end that end together, or before the others.
    (f"a = {_FILES} | map bytes=1k; b = a | [map random or shuffle 9 | map random]; c = a | map random; zip b c",
     _cache("n1")),
    ("a = range 10 elements=10 | repeat 3 | map bytes=1k elements=30; zip a a", _moved("n1>n2")),
    # What repeats endlessly is the same in each epoch where a zip ends it, always after as many elements.
    ("a = range 1 | repeat elements=-1; b = range 9; zip a b elements=9 | map bytes=1k | map random", _cache("n4")),
    # A loop that may leave its data early reads more than one pass.
    (f"{_FILES} | map bytes=1k | batch 2", {"elements_read": 6}, _cache("n2")),
    (f"{_FILES} | map bytes=1k | map random | repeat", {"elements_read": 11}, _cache("n1")),
    # Each branch may have one.
    (f"a = {_FILES} | {_MAP} | map random; b = {_OTHER}; zip a b", _cache("n4", "n1")),
    # One for all that is joined, where more than one part does work.
    (f"a = {_FILES} | {_MAP}; b = {_FILES} | {_MAP}; concatenate a b elements=20 bytes=1k"
     " | shuffle 20", _cache("n4", "n3", "n1")),
    (f"a = {_FILES} | {_MAP} | map random | repeat elements=-1; b = {_OTHER} | repeat elements=-1; zip a b | batch 2",
     _cache("n5", "n1")),
    (f"a = {_FILES} | map bytes=900k; b = a | shuffle 9 | {_MAP}; c = a | shuffle 9 | map bytes=1k"
     " cpu=1ms; zip b c | map random", [*_moved("n4>n5"), *_moved("n2>n3")]),
    # What repeats endlessly is read again and again, and surely so where enough is read.
    (_CHOSEN, _cache("n1")),
    (_CHOSEN, {"elements_read": 22}, _cache("n1")),
    # Who chooses among several that read the same ends with one of them: `rejection_resample`, and where it estimates.
    (f"{_PARTS}; s = random elements=-1; choose s b c stop_on_empty_dataset=[True or False]", _cache("n1")),
    (f"{_PARTS}; s = random elements=-1; d = range 9; choose s b c d stop_on_empty_dataset=False", _cache("n1")),
    (f"{_PARTS}; s = a | map random | batch 4 | scan | unbatch; choose s b c stop_on_empty_dataset=True", _cache("n1")),
    # Or goes on until all of them have ended: `sample_from_datasets`.
    (f"a = {_FILES} | map bytes=1k[ or  | repeat | take 30] | map random; b = range 9; s = random elements=-1; "
     "choose s a b stop_on_empty_dataset=False", _cache("n1")),
    (f"a = {_FILES} | map bytes=1k | take [5 or 30]; b = range 9; s = random elements=-1; "
     "choose s a b stop_on_empty_dataset=False", _cache("n2")),
    # It is read more than once.
    (f"{_FILES} | map bytes=1k | repeat[ or  3] | batch 2", {"epochs": 1}, _cache("n1")),
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {"epochs": 2, "steps_per_epoch": 5}, _cache("n1")),
    # What raises is dropped alone, in every epoch.
    (f"{_FILES} | map bytes=1k | map random | [ignore_errors or shuffle 9 | repeat | prefetch 2 | ignore_errors]"
     " | batch 2", _cache("n1")),
    # A cache freezes the order of a shuffle.
    (f"{_FILES} | map bytes=1k | shuffle 9 | map bytes=1k | batch 2", [*_moved("n2>n3"), *_frozen("n4")]),
    (f"{_FILES} | map bytes=1k | shuffle 9 | map random | batch 2", _cache("n1")),
    (f"{_FILES} | shuffle 9 reshuffle_each_iteration=False | map bytes=1k | map random", _cache("n2")),
    # Or the one in which elements overtake each other.
    (f"{_CYCLE} 2 deterministic=False cycle_length=2 | batch 2", _frozen("n2")),
    (f"{_CYCLE} 2 cycle_length=2 | batch 2", _UNORDERED, _frozen("n2")),
    ("range 9 | parallel_interleave elements=9 bytes=1k | map random", _UNORDERED, _frozen("n1")),
    ("TextLineDataset num_parallel_reads=2 elements=9 bytes=1k | map random", _UNORDERED, _frozen("n0")),
    ("range 9 | flat_map elements=9 bytes=1k | map random", _UNORDERED, _cache("n1")),  # one after another
    ("range 9 | flat_map inner=ParallelInterleaveDatasetV4 elements=9 bytes=1k | map random", _UNORDERED,
     _frozen("n1")),
    (f"{_CYCLE} unordered | batch 2", _frozen("n2")),  # within
    ("range 10 | map elements=10 bytes=1k | map random", _UNORDERED, _frozen("n1")),
    (f"{_OVERTAKING} | shuffle 10 elements=10 | map random", _cache("n1", safety="STATISTICAL")),
    # Overtaking is no order that anybody can count on: a shuffle of some elements is enough, until there are batches.
    (f"{_OVERTAKING} | map random | repeat | shuffle 4", _cache("n1", safety="STATISTICAL")),
    (f"{_OVERTAKING} | map random | shuffle 4 reshuffle_each_iteration=False", _frozen("n1")),
    (f"{_OVERTAKING} | batch 2 | map random | shuffle 4", _frozen("n2")),
    (f"{_LISTED} | map random | shuffle 4", _frozen("n2")),
    # What varies with the order behind it still does where a shuffle of all elements is between the two.
    (f"{_LISTED} | {_MAP} | map random | shuffle 9 | batch 2 drop_remainder=True", _frozen("n3")),
    # Nothing is dropped at the end of an epoch where there is none.
    (f"{_LISTED} | {_MAP} | shuffle 4 | repeat | [batch or padded_batch] 2 drop_remainder=True", _frozen("n3")),
    # Nobody can tell the order of the files where every epoch draws the order of all elements.
    (f"{_DRAWN} | map random | shuffle 9 elements=9 | batch 2", _cache("n2", safety="STATISTICAL")),
    # Otherwise list_files leaves its shuffle to one after the cache.
    (f"{_DRAWN} | map random | shuffle [8 elements=9 or 9 or 9 elements=9"
     " reshuffle_each_iteration=False] | batch 2", _moved("n1>n2")),
    (f"{_DRAWN} | map [python_random or variable=w] | shuffle 9 elements=9", _moved("n1>n2")),
    (f"{_DRAWN} | batch 1 | map random elements=9 | shuffle 9 elements=9", [*_moved("n1>n2"), *_frozen("n3")]),
    # Unless the shuffle can move after the cache: past maps that depend on their element alone.
    (f"{_FILES} | shuffle 9 seed=1 | {_MAP} | map random", _moved("n1>n2")),
    (f"{_SHUFFLED} | map bytes=1k | prefetch | {_MAP} | map random | batch 3", _moved("n1>n4")),
    (f"{_SHUFFLED} | {_MAP} | map random", {"epochs": 3}, _moved("n1>n2")),
    (f"{_SHUFFLED} | {_MAP} | map random", {"epochs": 2}, _frozen("n2")),
    (f"{_FILES} | map bytes=1k | shuffle 9 | {_MAP} | batch 2", {"randomness_fixed": True},
     [*_moved("n2>n3"), *_frozen("n4")]),  # consecutive calls: it gets the same seed
    (f"{_FILES} | map bytes=1k | shuffle 9 | prefetch | {_MAP} | batch 2", {"randomness_fixed": True},
     [*_cache("n1"), "STATISTICAL n2>n4 cache(filename=)>n4",
      *_frozen("n5")]),  # it may get another seed
    (f"{_SHUFFLED} | filter | {_MAP} | map random", _frozen("n3")),
    (f"{_SHUFFLED} | shuffle 5 | {_MAP} | map random", _moved("n2>n3 n1>n3")),
    # So can a repeat, as scripts have it that were written for TensorFlow 1.
    (f"{_SHUFFLED} | repeat[ or  9] | {_MAP} reads_file | map random | batch 2", _moved("n2>n3 n1>n3")),
    (f"{_SLICES} | repeat elements=-1 | shuffle 9 elements=-1 | map elements=-1 bytes=1k"
     " cpu=1ms | batch 2", _moved("n2>n3 n1>n3")),
    (f"{_FILES} | {_MAP} | repeat | prefetch | {_MAP} | map random", _moved("n2>n4")),
    (f"{_SHUFFLED} reshuffle_each_iteration=False | repeat | {_MAP} reads_file | batch 2", _moved("n2>n3")),
    (f"{_SHUFFLED} | repeat | {_MAP} reads_file | batch 2", {"epochs": 6, "steps_per_epoch": 5}, _moved("n2>n3 n1>n3")),
]  # fmt: skip

test_proposed_places = proposal_test("cache", FIRES, group="cache(@n[0-9]+)?")


@pytest.mark.parametrize(("counted", "expected"), [((10, 10), _cache("n4", "n1")), ((10, 9), []), ((10,), [])])
def test_joined_files_are_read_to_the_end_if_they_have_as_many_records(counted, expected) -> None:
    branch = f"TFRecordDataset | {_MAP} | shuffle 4"
    described = context(f"a = {branch}; b = {branch}; zip a b | map random")
    counts = dict(zip(("n0", "n3"), counted, strict=False))
    assert outlines(proposals("cache", with_profile(described, cardinality=counts))[0]) == expected


def test_what_branches_share_is_saved_only_where_all_of_them_read_the_cache() -> None:
    described = context(f"a = {_FILES} | map bytes=1k cpu=4ms; b = a | {_MAP}; c = a | map random; zip b c")
    places = {node: position_after(described, described.pipeline[node]) for node in ("n1", "n2")}
    saved = {name: place.cpu_seconds_per_output for name, place in places.items() if isinstance(place, CachePosition)}
    assert saved["n1"] is not None and saved["n2"] is not None and saved["n1"] > saved["n2"]


def _cache_rewrite(node: str, pipeline: Pipeline) -> Rewrite:
    insert = Insert(node, "cache", f"cache@{node}", {"filename": ""})
    return Rewrite("cache", node, Safety.EXACT, (insert,), "", group=cache_group(pipeline, node))


def test_caches_stand_beside_each_other_in_branches_only() -> None:
    words = f"a = {_FILES} | map bytes=9k; b = a | map bytes=1k | map random; c = a | map bytes=2k; zip b c"
    described = context(words)
    found = {name: _cache_rewrite(name, described.pipeline) for name in ("n1", "n2", "n4")}
    assert not find_conflict(described, [found["n2"], found["n4"]])
    assert "on one path" in find_conflict(described, [found["n1"], found["n2"]])


@pytest.mark.parametrize(("together", "expected"), [
    ((2, 3), ["n3", "n0", "n1"]),
    ((3, 4), ["n3", "n0", "n2"]),
    ((4, 5), ["n3", "n0"]),
    ((1, 2), ["n3", "n0"]),
])  # fmt: skip
def test_if_one_call_makes_the_best_place_and_others_there_is_one_elsewhere(together, expected) -> None:
    described = context(f"{_FILES} | map bytes=4k | map bytes=3k | map bytes=2k | map random | map random")
    nodes, (first, second) = list(described.pipeline), together
    nodes[second] = replace(nodes[second], location=nodes[first].location)
    described = replace(described, pipeline=replace(described.pipeline, nodes=tuple(nodes)))
    assert [one.node for one in proposals("cache", described)[0]] == expected


@pytest.mark.parametrize(("words", "first", "second", "no_more"), [
    (f"{_FILES} | map | shuffle 9 | batch 2 | prefetch 1", "n1", "n3", True),
    (f"{_FILES} | map | shuffle 9 | batch 2 | map", "n1", "n4", False),
    (f"{_FILES} | map | shuffle 9 | batch 2", "n0", "n3", False),
    (f"a = {_FILES} | map; b = {_FILES} | map; zip a b | batch 2", "n1", "n5", False),
    (f"a = {_FILES} | map; b = {_FILES} | map; zip a b | batch 2", "n1", "n3", False),
])  # fmt: skip
def test_a_cache_behind_a_shuffle_stores_no_more_work_than_one_before_it(words, first, second, no_more) -> None:
    pipeline = context(words).pipeline
    planned, other = (_cache_rewrite(name, pipeline) for name in (first, second))
    assert stores_no_more_work(pipeline, other, Plan("tuned", (planned,))) is no_more
    assert not stores_no_more_work(pipeline, other, Plan("tuned"))


def test_repeat_that_moves_after_the_cache_leaves_one_pass_in_front_of_it() -> None:
    words = f"{_FILES} | repeat elements=-1 | shuffle 10 elements=-1 | {_MAP} elements=-1 | map random elements=-1"
    described = context(f"{words} | batch 5 elements=-1 | take 1 elements=1")
    (found,), _ = proposals("cache", described)
    assert outlines([found]) == _moved("n2>n3 n1>n3")
    assert find_conflict(described, [found]) == ""
    assert apply_edits(described.pipeline, found.edits)["n3"].cardinality == UNKNOWN


def test_note_says_that_a_cache_freezes_an_order() -> None:
    moved, frozen = check_proposes("cache", f"{_FILES} | map bytes=1k | shuffle 9 | map bytes=1k | batch 2")
    assert "freezes" not in " ".join(moved.notes) and "order of the first one" in " ".join(frozen.notes)
    (shuffled,) = check_proposes("cache", f"{_LISTED} | shuffle 9 | map random")
    assert "shuffle (train.py:4) still gives each epoch another one." in shuffled.notes[-1]


def test_all_that_is_approved_is_in_the_last_note() -> None:
    (python,) = [one for one in check_proposes("cache", f"{_LISTED} python | map random") if one.needs]
    assert python.safety is Safety.REORDERS
    assert "order of the first one" in python.notes[-1] and "what Python functions" in python.notes[-1]


@pytest.mark.parametrize(("size", "less", "places"), [
    ("1k", "1ms", ["n3"]),  # saves nearly all
    ("1k", "9ms", ["n5"]),  # or hardly half of it
    ("9k", "1ms", ["n5"]),  # or does not fit
])  # fmt: skip
def test_a_cache_in_front_of_a_shuffle_goes_before_one_that_gives_all_epochs_one_order(
    size: str, less: str, places: list[str]
):
    words = f"{_LISTED} | map bytes={size} cpu=9ms | shuffle 4 elements=9 bytes=1k | padded_batch 2 bytes=2k cpu={less}"

    def caches(text: str) -> list[Rewrite]:
        found = proposals(RULE, context(text, memory_limit_bytes=2e4))[0]
        return [one for one in found if one.safety is Safety.REORDERS and not one.needs]

    assert [one.node for one in caches(words)] == places
    note = caches(words)[0].notes[-1]
    assert ("as far as its buffer reaches" in note) == (places == ["n3"])
    assert ("padded_batch (train.py:6) makes the same batches in every" in note) == (places == ["n5"])
    behind = caches(f"{words} | shuffle 9")
    assert [one.node for one in behind] == places, "a shuffle of batches leaves them the same"
    assert ("shuffle (train.py:7) still gives these another order" in behind[0].notes[-1]) == (places == ["n5"])


def test_counted_elements_pass_through_operators_that_keep_them() -> None:
    counted = with_profile(context("TFRecordDataset | map bytes=2k | map random"), cardinality={"n0": 7})
    assert [rewrite.predicted_bytes for rewrite in proposals(RULE, counted)[0]] == [14_000]


@pytest.mark.parametrize(("words", "price"), [
    ("range 10 elements=10 | take 4 | map bytes=1k", 4_000),
    ("range 10 elements=10 | skip 4 | map bytes=1k", 6_000),
    ("range 10 elements=10 | filter | map bytes=1k", 10_000),  # at most
    (f"{_FILES} | shard 3 index=1 | map bytes=1k", 4_000),  # at most
    ("range 10 elements=10 | map static_bytes=8 | batch 3", 12 * 8),  # four batches of at most three
    ("range 10 | map bytes=1k | map random elements=32 | batch 2", 32_000),
])  # fmt: skip
@pytest.mark.mission("A7.cache")
def test_price(words: str, price: float) -> None:
    assert check_proposes("cache", words)[0].predicted_bytes == price


def test_size_is_read_from_the_input_of_the_next_operator() -> None:
    described = with_measured(context("range 10 elements=10 | map | map random"), "n2", bytes_in=2_000)
    assert [rewrite.predicted_bytes for rewrite in proposals(RULE, described)[0]] == [20_000]


@pytest.mark.mission("A7.elsewhere")
def test_cache_above_the_memory_limit_is_proposed_as_a_file() -> None:
    words = f"{_FILES} | map! bytes=600k | map random | batch 2"
    described = context(words, memory_limit_bytes=1e6, fingerprint="abcd")
    rewrites, silences = proposals(RULE, described)
    assert outlines(rewrites) == ["EXACT cache(filename=pipetune-cache-abcd)>n1", *_cache("n0")]
    looped = replace(described, built_in_loop=frozenset({"n0", "n1", "n2", "n3"}))
    in_loop, _ = proposals(RULE, looped)
    assert not any("pipetune-cache" in one for one in outlines(in_loop)), "the next iteration would read that file"
    in_file, in_memory = rewrites
    assert in_file.needs == frozenset({Consent.FILE_CACHE}) and in_file.predicted_bytes == 0
    assert any("remains after the run" in note for note in in_file.notes)
    assert in_memory.needs == frozenset() and in_memory.predicted_bytes == 1e4
    (offer,) = [silence for silence in silences if silence.node == "n1"]
    for part in ("5.7 MiB", "977 KiB", "Dataset.save", "Dataset.load", "100 ms of CPU time to compute once"):
        assert part in offer.why


def test_note_names_other_readers_of_the_branch() -> None:
    assert "creates 2 datasets" in _notes(f"{_FILES} shared=2 | map bytes=1k shared=2")
    branches = "b = a | map random; c = a | map random; concatenate b c"
    assert "Two branches" in _notes(f"a = {_FILES} | map bytes=1k; {branches}")


_SLOW = f"{_FILES} | map bytes=600k cpu=9990us | map random"
"""10 ms per element, ten elements."""


def _notes(words: str, **fields: Any) -> str:
    return " ".join(check_proposes("cache", words, **fields)[0].notes)


@pytest.mark.parametrize(("facts", "epochs"), [
    ({"epochs": 5}, 15.0),
    ({}, None),
    ({"epochs_in_loop": 4}, None),  # the next iteration finds it full
    ({"epochs_in_loop": 4, "built_in_loop": frozenset({"n0", "n1", "n2", "n3"})}, 12.0),
])  # fmt: skip
def test_rewrite_knows_in_how_many_epochs_the_cache_is_read(facts: dict[str, Any], epochs: float | None) -> None:
    rewrites, _ = proposals(RULE, context(f"{_SLOW} | repeat 3", **facts))
    assert {one.epochs_read for one in rewrites} == {epochs}


def test_note_states_saved_time_per_epoch() -> None:
    notes = _notes(_SLOW, epochs=5)
    assert "From the second epoch on, it saves 100 ms of CPU time per epoch" in notes
    assert "400 ms over the 5 epochs of the script" in notes
    assert "100 s over the 1,000 epochs of the script" in _notes(_SLOW, epochs=1000)
    assert "epochs of the script" not in _notes(_SLOW)
    rewrites, _ = proposals(RULE, with_measured(context(_SLOW), "n0", waiting_seconds=0.05))
    assert "100 ms of CPU time and 500 ms of waiting per epoch" in " ".join(rewrites[0].notes)
    saved_already = f"{_FILES} | map cpu=1s bytes=1k | cache cpu=0us | map cpu=10ms bytes=1k | map random"
    assert "saves 100 ms of CPU time per epoch" in _notes(saved_already)


@pytest.mark.parametrize(("bytes_per_second", "in_file", "saved"), [
    (None, "more than 57.2 MiB per second can be read", "more than 57.2 MiB per second can be read"),
    (1e9, "6.0 ms; if writing is equally fast, it pays off after 2 epochs", "it pays off after 2 epochs"),
    (1.1e8, "55 ms; if writing is equally fast, it pays off after 3 epochs", "it pays off after 4 epochs"),
    (1e7, "600 ms, so it never pays off", "it never pays off"),
])  # fmt: skip
def test_note_states_when_reading_from_disk_pays_off(bytes_per_second: float | None, in_file: str, saved: str) -> None:
    described = context(_SLOW, memory_limit_bytes=1e5)
    sweep = Sweep(SweepReader.FILES, (), ceiling=bytes_per_second)
    rewrites, silences = proposals(RULE, with_profile(described, files=FileUse(sweeps=(sweep,))))
    assert ("reading takes at least " * (bytes_per_second is not None) + in_file) in " ".join(rewrites[0].notes)
    assert saved in next(silence.why for silence in silences if silence.node == "n1")


def test_cache_must_fit_beside_the_memory_already_used() -> None:
    """As in the search: the cache alone would fit in 7 MiB."""
    described = context(_SLOW, memory_limit_bytes=7 * 2**20)
    assert outlines(proposals(RULE, described)[0]) == _cache("n1", "n0")
    rewrites, silences = proposals(RULE, with_profile(described, peak_rss_mib=5.0))
    assert rewrites[0].needs == frozenset({Consent.FILE_CACHE}) and outlines(rewrites[1:]) == _cache("n0")
    assert "more than what the pipeline leaves of the limit of 7.0 MiB" in silences[-1].why


def test_no_place_without_a_second_epoch_or_a_price() -> None:
    assert best_position(context("list_files elements=4 | map random cpu=1s bytes=1k | batch 2")) is None
    assert best_position(context(f"{_FILES} | map cpu=1s bytes=1k", profiled=False)) is None


@pytest.mark.parametrize(("bytes_per_second", "paid"), [(None, None), (1e7, None), (1e9, 2)])
def test_saved_dataset_is_priced_even_if_it_fits_in_memory(bytes_per_second: float | None, paid: int | None) -> None:
    described = context(_SLOW)
    place = best_position(described)
    assert place is not None and place.node.id == "n1"
    facts = with_profile(described, files=FileUse(sweeps=(Sweep(SweepReader.FILES, (), ceiling=bytes_per_second),)))
    assert epochs_to_break_even(facts, place, before_training=True) == paid
    sentence = describe_saved_dataset(facts, place)
    assert "5.7 MiB on storage that every host can reach, 100 ms of CPU time to compute once" in sentence
    assert ("pays off after 2 epochs" in sentence) is (paid == 2)
    assert "Dataset.snapshot" in sentence and "order in which it was saved" not in sentence


def test_advice_says_what_a_cache_would_save_if_the_dataset_were_built_once() -> None:
    words = "list_files shuffle=False elements=4 | map bytes=1k cpu=9ms | map random cpu=1ms | batch 2"
    built = frozenset({"n0", "n1", "n2"})
    (advice,) = cache.suggest_building_once(context(words, rebuilt_operators=built, buildable_once=built))
    assert "cached after map (train.py:2), the input needs 90 % less CPU time" in advice.message
    for kept in (frozenset(), frozenset({"n2"})):  # what the loop builds does not matter: the cache is before it
        assert not list(cache.suggest_building_once(context(words, rebuilt_operators=kept, buildable_once=kept)))
    (advice,) = cache.suggest_building_once(
        context(words, rebuilt_operators=built, buildable_once=frozenset({"n0", "n2"}))
    )
    assert "builds another one" in advice.message and "only the rest in the loop" in advice.hint
    cheap = words.replace("9ms", "9us")
    assert not list(cache.suggest_building_once(context(cheap, rebuilt_operators=built, buildable_once=built)))
    repeated, built = f"{words} | repeat 4", built | {"n3", "n4"}
    for read, share in ((None, "67 %"), (4, "45 %")):  # the first of the passes that an iteration takes fills the cache
        facts = context(repeated, rebuilt_operators=built, buildable_once=built, elements_read=read)
        (advice,) = cache.suggest_building_once(facts)
        assert advice.code == "cache-in-each-iteration" and f"needs {share} less CPU time" in advice.message


@pytest.mark.parametrize(("words", "share"), [
    ("map bytes=1k cpu=9ms | map random cpu=1ms", "89 %"),
    ("prefetch | map bytes=2k cpu=4ms | map bytes=1k cpu=5ms | map random cpu=1ms", "89 %"),
    ("map bytes=1k cpu=1ms | map random cpu=9ms", ""),
    ("map random bytes=1k cpu=9ms", ""),
])  # fmt: skip
@pytest.mark.parametrize(("source", "known"), [("repeat", True), ("repeat 3", False), ("shuffle 9", False)])
def test_advice_says_what_caches_in_sampled_sources_save(words: str, share: str, source: str, known: bool) -> None:
    sources = f"s = random; a = range 40 elements=40 | {source}; b = range 60 elements=60 | map | repeat"
    found = list(cache.suggest_caching_sources(context(f"{sources}; choose s a b | {words} | batch 2")))
    assert bool(found) == bool(share and known)
    for advice in found:
        assert share in advice.message and "100 calls would do" in advice.message and "97.7 KiB" in advice.hint


@pytest.mark.parametrize(("words", "said"), [
    (f"{_LISTED} | map bytes=1k cpu=9ms | map random cpu=1ms | shuffle 4 | batch 2 drop_remainder=True", True),
    (f"{_LISTED} | map bytes=1k cpu=1ms | map random cpu=9ms | shuffle 4 | batch 2 drop_remainder=True", False),
    (f"{_LISTED} | map bytes=1k cpu=9ms | map random cpu=1ms | shuffle 9 | batch 2 drop_remainder=True", False),
    (f"{_LISTED} | map bytes=1k cpu=9ms | map random cpu=1ms | batch 2 drop_remainder=True | shuffle 4", False),
    (f"{_LISTED} | map bytes=1k cpu=9ms | map random cpu=1ms | shuffle 4 | batch 2", False),  # with consent
    (f"{_LISTED} | map bytes=1k cpu=9ms | map random cpu=1ms | shuffle 4 | batch 2 | take 3", False),
])  # fmt: skip
def test_advice_says_when_a_shuffle_of_all_elements_would_allow_a_cache(words: str, said: bool) -> None:
    found = list(cache.suggest_larger_shuffle(context(words, memory_limit_bytes=1e6)))
    assert bool(found) == said and not list(cache.suggest_larger_shuffle(context(words, memory_limit_bytes=1e3)))
    for advice in found:
        assert "No cache before batch" in advice.message and "90 %" in advice.message
        assert "shuffle(9)" in advice.hint and "again with --allow reorder" in advice.hint


def test_best_position_is_upstream_of_a_shuffle_where_possible() -> None:
    shuffled = "list_files elements=4 | interleave elements=9 bytes=600k | map random"
    for words, op in (
        (f"{_FILES} | map bytes=600k cpu=9990us | shuffle 10 | batch 2", "map"),
        (shuffled, "interleave"),
    ):
        found = best_position(context(words))
        assert found is not None and found.node.op == op


@pytest.mark.parametrize(("files", "frozen"), [("list_files", True), ("list_files shuffle=False", False)])
def test_dataset_saved_after_a_shuffle_keeps_its_saved_order(files: str, frozen: bool) -> None:
    words = f"{files} elements=4 | interleave elements=9 bytes=600k | map random"
    rewrites, silences = proposals(RULE, context(words, memory_limit_bytes=1e6))
    assert [bool(rewrite.needs) for rewrite in rewrites] == [True]
    (offer,) = [silence.why for silence in silences if "Dataset.save" in silence.why]
    assert ("the order in which it was saved" in offer) == frozen


def test_validation_may_be_cached_behind_what_only_passes_its_batches_on() -> None:
    words = "TFRecordDataset elements=100 | map elements=100 | batch 16 elements=7 | prefetch 2 | repeat 1 elements=7"
    found = cache_whole_passes(context(words), elements=7, element_bytes=lambda node: 1e3)
    assert [edit.after for one in found for edit in one.edits if isinstance(edit, Insert)] == ["n2", "n3", "n4"]
    small = context(words, memory_limit_bytes=1e3)
    assert not cache_whole_passes(small, elements=7, element_bytes=lambda node: 1e3), "more than the memory"
    counted_behind = "TFRecordDataset | map | batch 16 drop_remainder=True | repeat 1"
    assert cache_whole_passes(context(counted_behind), elements=7, element_bytes=lambda node: 1e3)


@pytest.mark.parametrize(
    ("words", "after"),
    [
        ("list_files shuffle=False elements=5 | cache elements=5 | map elements=5", "n3"),
        ("TFRecordDataset elements=5 | cache elements=5 | map elements=5", "n3"),
        ("TFRecordDataset elements=5 | map elements=5 | cache elements=5", ""),
        ("TFRecordDataset elements=5 | map elements=5 | cache elements=5 | map elements=5 | cache elements=5", ""),
    ],
    ids=["names of files", "files", "nothing but batch", "last of two"],
)
def test_validation_is_cached_behind_a_cache_that_leaves_work(words: str, after: str) -> None:
    described = context(f"{words} | batch 2 elements=3 | prefetch 1")
    found = cache_whole_passes(described, elements=3, element_bytes=lambda node: 1e3)
    assert [edit.after for one in found[:1] for edit in one.edits if isinstance(edit, Insert)] == after.split()


@pytest.mark.parametrize(
    ("built", "after"),
    [("", "n3"), ("n3", "n2"), ("n2 n3", "n3"), ("n1 n2 n3", "n3")],
    ids=["nothing", "batch", "take and batch", "the map too"],
)
def test_validation_is_cached_in_front_of_the_loop_that_batches_it(built: str, after: str) -> None:
    described = context(
        "TFRecordDataset elements=100 | map elements=100 | take 80 elements=80 | batch 16 elements=5",
        built_in_loop=frozenset(built.split()),
    )
    found = cache_whole_passes(described, elements=5, element_bytes=lambda node: 1e3)
    assert [edit.after for one in found[:1] for edit in one.edits if isinstance(edit, Insert)] == [after]


# -- which places are tried

_NUMBERS = st.one_of(st.integers(0, 6), st.floats(0, 1e6))


def _place(index: int, size: float, spared: float | None) -> CachePosition:
    return CachePosition(Node(f"n{index}", "map"), Constancy.SAME, 10, float(size), cpu_seconds_per_output=spared)


_PLACES = st.builds(
    lambda parts: [_place(index, size, spared) for index, (size, spared) in enumerate(parts)],
    st.lists(st.tuples(_NUMBERS, st.one_of(_NUMBERS, st.just(3.0))), max_size=9),
)


def _beats(one: CachePosition, other: CachePosition) -> bool:
    """Whether `one` saves at least as much and holds at most as much, and they are not equal in both."""
    assert one.saved_seconds_per_output is not None and other.saved_seconds_per_output is not None
    no_worse = one.saved_seconds_per_output >= other.saved_seconds_per_output and one.size_bytes <= other.size_bytes
    return no_worse and not _same(one, other)


def _same(one: CachePosition, other: CachePosition) -> bool:
    return (one.saved_seconds_per_output, one.size_bytes) == (other.saved_seconds_per_output, other.size_bytes)


@given(_PLACES)
def test_pareto_frontier_keeps_exactly_the_unbeaten_places(places: list[CachePosition]) -> None:
    kept = cache_places.pareto_frontier(places)
    assert not any(_beats(other, place) for place in kept for other in places)
    assert all(any(_beats(one, place) or _same(one, place) for one in kept) for place in places)
    assert len({(place.saved_seconds_per_output, place.size_bytes) for place in kept}) == len(kept)
    savings = [place.saved_seconds_per_output or 0.0 for place in kept]
    assert savings == sorted(savings, reverse=True)
    for place in kept:  # of equal places the last, which leaves the least to run
        assert place is [other for other in places if _same(other, place)][-1]


@given(_PLACES, st.integers(1, 4))
def test_places_for_trial_are_few_and_differ_in_size(places: list[CachePosition], most: int) -> None:
    kept, chosen = cache_places.pareto_frontier(places), cache_places.select_for_trial(places, most=most)
    assert len(chosen) <= most and chosen[:1] == kept[:1]
    assert all(place in kept for place in chosen)
    sizes = sorted(place.size_bytes for place in chosen)
    assert all(less <= cache_places.MAX_SIZE_RATIO * more for less, more in itertools.pairwise(sizes))
    if len(chosen) > 1:  # the second saves most per byte among those that hold much less
        far = [one for one in kept[1:] if one.size_bytes <= cache_places.MAX_SIZE_RATIO * kept[0].size_bytes]
        assert chosen[1] is max(far, key=lambda one: (one.saved_seconds_per_output or 0.0) / max(one.size_bytes, 1.0))


def test_without_costs_the_later_place_counts_as_saving_more() -> None:
    places = [_place(0, 10, None), _place(1, 10, 5.0), _place(2, 30, 1.0)]
    assert [place.node.id for place in cache_places.pareto_frontier(places)] == ["n2", "n1"]


@pytest.mark.parametrize("above", [
    "TFRecordDataset elements=10 bytes=1k",
    "TFRecordDataset elements=10 bytes=1k | shard 3 index=1",
    "TFRecordDataset elements=10 bytes=1k | skip 3 | filter | batch 2 | map bytes=5k",
    "TFRecordDataset elements=10 bytes=1k | map bytes=2k | ragged_batch 4 bytes=9k",
    "TFRecordDataset elements=10 bytes=1k | map bytes=2k | take 7",
])  # fmt: skip
def test_predicted_bytes_equal_those_checked_against_the_limit(above: str) -> None:
    described = context(f"{above} | map random | batch 2")
    assert described.profile is not None
    rewrites, _ = proposals(RULE, described)
    assert rewrites
    for rewrite in rewrites:
        edited = apply_edits(described.pipeline, rewrite.edits)
        assert added_bytes(described.pipeline, edited, described.profile) == pytest.approx(rewrite.predicted_bytes)


@given(st.floats(0, 10), st.floats(0.01, 10), st.booleans())
def test_break_even_is_the_first_epoch_that_is_ahead(each: float, saved: float, before: bool) -> None:
    place = replace(_place(0, each, saved), outputs_per_epoch=1.0)  # in files that are read at one byte per second
    found, once = epochs_to_break_even(_STORED, place, before_training=before), saved + each * before
    if found is None:
        assert saved <= each
        return
    ahead = [epochs * saved - once - epochs * each for epochs in (found - 1, found)]
    assert ahead[0] <= 1e-6 * max(1.0, once, found * saved) and ahead[1] >= -1e-6 * max(1.0, once, found * saved)


_ONE_BYTE_PER_SECOND = Sweep(SweepReader.FILES, (), ceiling=1.0)
_STORED = with_profile(context("range 9"), files=FileUse(sweeps=(_ONE_BYTE_PER_SECOND,)))
