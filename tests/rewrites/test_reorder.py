"""`filter-early`, `split-early` and `shard-early`: where they are proposed and where not."""

from __future__ import annotations

from pipetune.core.edits import ReplaceFunction, apply_edits
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.rewrites.tables import Row, first, functions, proposal_test, silent_test
from tests.rules import check_proposes, context

_OFF = {"options": {"experimental_optimization.apply_default_optimizations": False}}
_UNORDERED = {"options": {"deterministic": False}}
_FILTER = "filter early=1"
_SHARD = "shard 3 index=1"

FILTER_SILENT: list[Row] = [
    # No map upstream that could run later.
    (f"range 9 | [map or {_FILTER} or {_FILTER} | map or prefetch 2 | {_FILTER}]", None),
    # The predicate does not decide equally there.
    ("range 9 | map | filter", "unknown whether the map leaves unchanged"),
    ("range 9 | map | filter early=no", "reads what the map makes"),
    *functions(
        f"range 9 | map | {_FILTER} ?", "python random seeded variable=w writes table print", whose="its predicate "
    ),
    ("range 9 | map | filter unknown", "nothing is known about its predicate"),
    # The map's function must be called on every element.
    *functions(
        f"range 9 | map ? | {_FILTER}", "python variable=w writes table print file raises", whose="its function "
    ),
    (f"range 9 | map unknown | {_FILTER}", "nothing is known about its function"),
    (f"range 9 | map | {_FILTER} | ignore_errors", "ignore_errors"),
    # An operator between them counts, orders, keeps or combines elements.
    (f"range 9 | map | [shuffle 9 or repeat or batch 2 or unbatch or cache or snapshot or take 5] | {_FILTER}", None),
    (f"range 9 | map | [skip 5 or shard 2 index=0 or take_while or unique or enumerate] | {_FILTER}", None),
    (f"range 9 | map | [ignore_errors or assert_cardinality] | {_FILTER}", None),
    (f"range 9 | [scan or flat_map or interleave or opaque] | {_FILTER}", None),
    (f"a = range 9 | map; b = a | {_FILTER}; c = a | batch 2; zip b c", None),
    (f"a = range 9 | map; b = range 9; zip a b | {_FILTER}", None),
]

_GETS = "on what the map gets"

FILTER_FIRES: list[Row] = [
    (f"range 9 | map[ or  4 or  2 deterministic=False] | {_FILTER}", [f"EXACT n2>n0 n2 {_GETS}"]),
    (f"range 9 | map | {_FILTER} [raises or | batch 2 or | filter early=1]", [f"EXACT n2>n0 n2 {_GETS}"]),
    (f"range 9 | map | prefetch 2 | {_FILTER}", [f"EXACT n3>n0 n3 {_GETS}"]),
    (f"range 9 | [prefetch 2 or shuffle 9 or map random or map] | map | {_FILTER}",
     [f"EXACT n3>n1 n3 {_GETS}"]),
    ("range 9 | map | map | filter early=1+no", [f"EXACT n3>n1 n3 {_GETS}"]),
    (f"range 9 | map [random or seeded or python_random] | {_FILTER}", [f"STATISTICAL n2>n0 n2 {_GETS}"]),
]  # fmt: skip

SPLIT_SILENT: list[Row] = [
    # No computation upstream.
    ("range 9 | [batch 2 or map | batch 2 or skip 3 or take 3 | skip 1 | batch 2 or skip 3 | map]", None),
    ("range 9 | [prefetch 2 or with_options] | skip 3", None),
    ("range 9 | map | shard 3 index=1", None),  # left to shard-early
    # The function may not be called on fewer or other elements.
    *functions("range 9 | map ? | skip 3", "unknown python variable=w writes table print file raises"),
    ("range 9 | map | skip 3 | ignore_errors", "ignore_errors"),
    ("range 9 | map 4 deterministic=False | skip 3", "keep the order"),
    ("range 9 | map[ or  4] | skip 3", _UNORDERED, "keep the order"),  # TensorFlow makes the first one parallel
    # Operators that count, order, keep, drop or multiply elements.
    ("range 9 | map | [shuffle 9 or repeat or filter or batch 2 or padded_batch 2 or unbatch or window 2] | skip 3",
     None),
    ("range 9 | map | [cache or snapshot or ignore_errors or assert_cardinality or enumerate] | skip 3", None),
    ("range 9 | map | [unique or take_while] | skip 3", None),
    ("range 9 | [scan or flat_map or interleave or group_by_window or opaque] | skip 3", None),
    # What is upstream has other readers, or branches join there.
    ("a = range 9 | map; b = a | skip 3; c = a | take 3; zip b c", None),
    ("a = range 9 | map; b = range 9; zip a b | skip 3", None),
    # Nothing is saved.
    ("range 9 | map | [skip 0 or take -1]", "elements are dropped"),
    ("range 9 | map | [skip or take] None", "unknown how many"),
    ("range 9 | map | take 1000", "at most 2 of the elements"),  # two cores
    ("range 9 | map 4 | prefetch 16 | take 1000", "at most 20 of the elements"),
    ("range 9 | map | take 5", _OFF, "at most 0 of the elements"),
    ("range 9 | map | take 0", "compared with 0"),
    # A take limits reading ahead; the operators upstream of its new place would lose that.
    ("range 9 | cache | map 4 | take 5", "cache (train.py:2) upstream"),
    ("range 9 | snapshot | map 4 | take 5", "snapshot (train.py:2) upstream"),
    ("range 9 | map [random or variable=w or print] | map 4 | take 5", "upstream has state"),
    ("from_generator | map 4 | take 5", "upstream has state"),
    ("range 9 | cache | map 4 | take 5 | skip 2", "might never be read to its end"),
]  # fmt: skip

SPLIT_FIRES: list[Row] = [
    ("range 9 | map[ or  4] | [skip 3 or skip 3 | batch 2 or skip -1]", ["EXACT n2>n0"]),
    ("range 9 | map 4 deterministic=True | skip 3", _UNORDERED, ["EXACT n2>n0"]),
    ("range 9 | [map | map or map | prefetch 2] | skip 3", ["EXACT n3>n0"]),
    ("range 9 | [map raises or shuffle 9 or cache or assert_cardinality] | map | skip 3", ["EXACT n3>n1"]),
    # Nothing is drawn for what is dropped.
    ("range 9 | map [random or seeded or python_random] | skip 3", ["STATISTICAL n2>n0"]),
    ("range 9 | prefetch 2 | map | skip 3", ["EXACT n3>n1"]),  # nothing is gained by passing the prefetch
    ("range 9 | map | [take 90 | skip 3 or skip 3 | take 90 or shard 2 index=0 | skip 3]", ["EXACT n2>n0 n3>n2"]),
    ("range 9 | map | skip 3 | map | skip 2", ["EXACT n2>n0", "EXACT n4>n2"]),
    # A take alone, where much is read ahead upstream of it.
    ("range 9 | map[ or  4] | take 20", ["EXACT n2>n0"]),
    ("range 9 | map | prefetch AUTOTUNE | take 100", ["EXACT n3>n0"]),
    ("range 9 | shuffle 9 | map 4 | take 20", ["EXACT n3>n1"]),
]  # fmt: skip

SHARD_SILENT: list[Row] = [
    (f"range 9 | [map | batch 2 or {_SHARD} or {_SHARD} | map or prefetch 2 | {_SHARD}]", None),
    ("range 9 | map | skip 3", None),  # left to split-early
    ("range 9 | map | shard 1 index=0", "elements are dropped"),
    ("range 9 | map | shard None index=0", "unknown how many"),
    *functions(f"range 9 | map ? | {_SHARD}", "unknown python variable=w writes table print file raises"),
    (f"range 9 | map | {_SHARD} | ignore_errors", "ignore_errors"),
    (f"range 9 | map 4 deterministic=False | {_SHARD}", "keep the order"),
    (f"range 9 | map | {_SHARD}", _UNORDERED, "keep the order"),
    (f"range 9 | map | [shuffle 9 or repeat or filter or batch 2 or unbatch or cache or snapshot] | {_SHARD}", None),
    (f"range 9 | map | [enumerate or assert_cardinality] | {_SHARD}", None),
    (f"range 9 | [scan or flat_map or opaque] | {_SHARD}", None),
    (f"list_files | interleave | {_SHARD}", None),
    (f"a = range 9 | map; b = a | {_SHARD}; c = a | batch 2; zip b c", None),
    (f"a = range 9 | map; b = range 9; concatenate a b | {_SHARD}", None),
    (f"range 9 | cache | map | take 5 | {_SHARD}", "might never be read to its end"),
]

SHARD_FIRES: list[Row] = [
    (f"range 9 | map | {_SHARD} [| batch 2 or | skip 3]", ["EXACT n2>n0"]),
    (f"range 9 | map 4 | map random | map | {_SHARD}", ["STATISTICAL n4>n0"]),
    (f"list_files | interleave | map | {_SHARD}", ["EXACT n4>n2"]),
    (f"range 9 | map | prefetch 2 | {_SHARD}", ["EXACT n3>n0"]),
    (f"range 9 | map | [skip 3 or take 1000] | {_SHARD}", ["EXACT n2>n0 n3>n2"]),
    (f"range 9 | map | {_SHARD} | shard 2 index=0", ["EXACT n2>n0 n3>n2"]),
]

test_no_early_filter = silent_test("filter-early", FILTER_SILENT)
test_early_filters = proposal_test("filter-early", FILTER_FIRES, group="place@.*")
test_no_early_split = silent_test("split-early", SPLIT_SILENT)
test_early_splits = proposal_test("split-early", SPLIT_FIRES, group="place@.*")
test_no_early_shard = silent_test("shard-early", SHARD_SILENT)
test_early_shards = proposal_test("shard-early", SHARD_FIRES, group="place@.*")


def test_edit_has_the_digest_of_the_predicate_before_the_last_map_passed() -> None:
    (rewrite,) = check_proposes("filter-early", "range 9 | map | map | filter early=2")
    assert [edit.digest for edit in rewrite.edits if isinstance(edit, ReplaceFunction)] == ["above 2"]
    assert "no longer ends the run" in rewrite.notes[0]


def test_plan_is_valid_when_an_operator_upstream_moves_too() -> None:
    described = context("range 9 elements=9 bytes=8 | map random bytes=9k | shuffle 9 | map | skip 3")
    rewrites, _ = propose_all(described)
    plan = sorted((first(rewrites, rule) for rule in ("shuffle-small", "split-early")), key=rewrites.index)
    assert find_conflict(described, plan) == ""
    edited = apply_edits(described.pipeline, [edit for one in plan for edit in one.edits])
    assert [node.id for node in edited] == ["n0", "n2", "n1", "n4", "n3"]  # the random map is not passed


def test_split_and_shard_that_move_together_exclude_the_split_alone() -> None:
    words = f"range 9 | map | skip 3 | {_SHARD}"
    (alone,), (both,) = check_proposes("split-early", words), check_proposes("shard-early", words)
    assert alone.group == both.group
    assert "no longer ends the run" in alone.notes[0] and alone.summary.startswith("Let skip drop elements before map")
