"""Rewrites that are legal alone but not together."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Consent, Edit, Insert, Move, Rewrite, Safety, SetArgument
from pipetune.core.operators import OPTION
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.rewrites import propose_all
from pipetune.rewrites.conflicts import find_conflict
from tests.rewrites.tables import conflict, first
from tests.rules import context

_PHOTOS = (
    "list_files elements=16 shuffle=False | interleave elements=2000 bytes=80k | map bytes=600k cpu=5ms"
    " | shuffle 100 | batch 32 | repeat"
)


_ONE = "range 90 elements=90 bytes=8 | map rows=exact bytes=8 cpu=1ms | shuffle 9 | batch 3"
_TWO = (
    "from_tensor_slices gathers elements=90 bytes=100 | map rows=exact bytes=8 cpu=1ms"
    " | map rows=exact bytes=1k cpu=1ms | shuffle 50 | batch 3"
)
_SERIAL = "range 9 | map 4 | shuffle 5 | map 4 | batch 2"
_FUSED = "range 90 elements=90 bytes=8 cpu=1us | map bytes=8 cpu=1ms rows=exact | map fused=n1 rows=exact bytes=8"
_MOVES = (
    "TFRecordDataset elements=100 bytes=1k | map bytes=60k cpu=5ms | shuffle 50"
    " | map bytes=600k cpu=5ms draws=2k head=90% random | batch 4"
)
_REPEATS = (
    "TFRecordDataset elements=100 bytes=1k | map bytes=600k cpu=5ms | repeat | shuffle 50 | map bytes=60k cpu=5ms"
    " | map random | batch 4"
)
_PADS = "from_tensor_slices elements=90 | map AUTOTUNE | map AUTOTUNE pads=256 | shuffle 10 | repeat | batch 4"


@pytest.mark.parametrize(("words", "wanted", "why"), [
    (_PHOTOS, "cache n2, map-and-batch-fusion n4", "downstream of shuffle"),
    (_PHOTOS, "prefetch n5, parallel-map n2, parallel-interleave n1", ""),
    (_ONE, "cache n1, vectorize-map n1", "cache would stay in place while n1 is moved"),
    (_ONE, "prefetch n3, vectorize-map n1", ""),
    # A shuffle that moves behind a map, which another rewrite puts behind the batch, would shuffle batches.
    (_TWO, "gather-batches n0, map-and-batch-fusion n4", "batch would move in front of shuffle"),
    (_TWO, "map-and-batch-fusion n4, vectorize-map n2", ""),
    (_TWO, "gather-batches n0, vectorize-map n2", "exclude each other"),
    (_SERIAL, "serial-map n4, parallel-map n1", "num_parallel_calls of n1 is set twice"),
    (_SERIAL, "serial-map n4, prefetch n4", ""),
    (f"{_FUSED} | batch 3", "map-fusion n2, parallel-map n2", ""),
    (f"{_FUSED} | batch 3", "map-fusion n2, vectorize-map n2", "fused into it"),
    (f"{_FUSED} | batch 3", "map-fusion n2, vectorize-map n1", "fused into it"),
    (f"{_FUSED} | batch 3", "map-fusion n2, parallel-map n1", "names operator n1"),
    (f"{_FUSED} | filter early=1", "filter-early n3, map-fusion n2", "There is an operator between n2"),
    (f"{_FUSED} | filter early=2", "filter-early n3, map-fusion n2", ""),
    ("range 9 | map | map pads=7 fused=n1 | batch 2", "map-fusion n2, pad-batches n2", "functions of other maps"),
    ("range 9 | map | map pads=7 fused=n1 | batch 2", "pad-batches n2, map-fusion n2", "names operator n2"),
    ("range 9 | map pads=7 rows=exact | batch 2", "pad-batches n1, vectorize-map n1", "exclude each other"),
    # Of two places to move a shuffle or repeat to, the later one won, and the other rewrite did nothing.
    (_MOVES, "shuffle-small n2, split-map n3", "n2 would be moved to two places"),
    (_MOVES, "split-map n3, shuffle-small n2", "n2 would be moved to two places"),
    (_REPEATS, "cache n4, shuffle-repeat-order n2", "n2 would be moved to two places"),
    # An unknown operator is the edit's problem, and ended a whole analysis.
    (_PADS, "pad-batches n2, shuffle-repeat-order n4", "n2"),
    ("range 9 | map rows=exact crop=yes calls=DecodeJpeg | batch 2", "vectorize-map, decode-and-crop", "replaced"),
    ("TFRecordDataset elements=9 | map crop=yes random calls=DecodeJpeg cpu=1ms draws=2k head=90%",
     "decode-and-crop, split-map", "split in two"),
])  # fmt: skip
def test_rewrites_that_are_legal_alone_may_conflict(words: str, wanted: str, why: str) -> None:
    assert not any(conflict(words, one) for one in wanted.split(", "))
    found = conflict(words, *wanted.split(", "))
    assert why in found and bool(why) is bool(found)


def test_cache_conflicts_with_a_shuffle_moved_upstream_of_it_if_a_batch_drops_elements() -> None:
    """Every epoch would drop the same elements."""
    words = "list_files elements=4 | interleave elements=9 bytes=1k | map bytes=9k | shuffle 9"
    described, moved = context(f"{words} | batch 2 drop_remainder=True"), _free(Move("n4", "n2"))
    cached = first(propose_all(described)[0], "cache", "n3")
    assert not find_conflict(described, [cached]) and not find_conflict(described, [moved])
    assert "fix the order in front of batch" in find_conflict(described, [cached, moved])


def test_cache_conflicts_with_a_repeat_moved_upstream_of_it() -> None:
    described = context(_PHOTOS)
    rewrites, _ = propose_all(described)
    (moved,) = [r for r in rewrites if r.node == "n5" and not r.epochs_kept and "before the shuffle" in r.summary]
    assert "downstream of repeat" in find_conflict(described, [first(rewrites, "cache", "n2"), moved])


@pytest.mark.parametrize(("words", "rewrite", "needed"), [
    ("range 9 | map python cpu=4ms | map python cpu=4ms | batch 2", "prefetch n1", True),
    ("range 9 | map python cpu=4ms | map python cpu=4ms | batch 2", "prefetch n3", False),
    ("from_generator elements=9 | batch 2 | map python", "map-and-batch-fusion n1", True),
    ("a = from_generator | batch 2; b = range 9 | map python; zip a b", "map-and-batch-fusion n1", True),
    ("from_generator elements=9 | batch 2 | map", "map-and-batch-fusion n1", False),
    ("range 9 | map python | prefetch 2 | batch 2 | map python", "map-and-batch-fusion n3", False),  # they do so now
])  # fmt: skip
def test_python_of_two_operators_runs_at_once_only_with_consent(words: str, rewrite: str, needed: bool) -> None:
    """What draws from one generator, as `np.random` is, would get other numbers."""
    ids = tuple(node.id for node in context(words).pipeline)
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=ids[1], sequential_segments=(ids,))
    rewrites, _ = propose_all(context(words, diagnosis=diagnosis))
    found = first(rewrites, *rewrite.split())
    assert found.safety is (Safety.STATISTICAL if needed else Safety.EXACT)
    assert found.needs == ({Consent.PYTHON_PARALLEL} if needed else set())
    assert found.reproducible is not needed


def _allows(words: str, rule: str, why: str, **fields: Any) -> bool:
    """Whether a rule proposes something; asserts that it gives the reason `why` exactly where it does not."""
    rewrites, silences = propose_all(context(words, **fields))
    proposes = any(one.rule == rule for one in rewrites)
    assert any(one.rule == rule and why in one.why for one in silences) is not proposes
    return proposes


def _free(*edits: Edit, safety: Safety = Safety.EXACT) -> Rewrite:
    return Rewrite(rule="free", node="n0", safety=safety, edits=edits, summary="Does it.")


@pytest.mark.parametrize(("words", "rewrites", "why"), [
    ("range 9 | batch 2", [_free(SetArgument("n7", "batch_size", 1))], "names operator n7"),
    ("range 9 | batch 2", [_free(Insert("n1", "prefetch", "p"))] * 2, "p would be inserted twice"),
    ("list_files | interleave cycle_length=4",
        [_free(SetArgument("n2", "num_parallel_calls", 4)), _free(SetArgument("n2", "cycle_length", 2))],
        "exceed the cycle length of 2"),
    ("range 9 | map random | batch 2", [_free(Insert("n1", "cache", "c"))], "random numbers"),
    ("range 9 | map | batch 2 | take 2", [_free(Insert("n1", "cache", "c"))], "may not read it to the end"),
    ("range 9 | shuffle 9 | batch 2", [_free(Insert("n1", "cache", "c"))], "reshuffles"),
    ("range 9 | shuffle 9 | batch 2", [_free(Insert("n1", "cache", "c"), safety=Safety.APPROXIMATE)], "reshuffles"),
])  # fmt: skip
def test_invalid_plan_is_rejected(words: str, rewrites: list[Rewrite], why: str) -> None:
    assert why in find_conflict(context(words), rewrites)


@pytest.mark.parametrize(("words", "rewrite"), [
    ("range 9 | shuffle 9 | batch 2", _free(Insert("n1", "cache", "c"), safety=Safety.REORDERS)),  # needs consent
    # What the script does itself is not checked.
    ("list_files | interleave 4 cycle_length=2 | batch 2", _free(Insert("n3", "prefetch", "p"))),
    ("range 9 | map random | cache | batch 2", _free(Insert("n3", "prefetch", "p"))),
])  # fmt: skip
def test_valid_plan_is_accepted(words: str, rewrite: Rewrite) -> None:
    assert find_conflict(context(words), [rewrite]) == ""


_ROWS = "from_tensor_slices gathers elements=25 bytes=12"


@pytest.mark.parametrize(("words", "rule", "fires"), [
    # The last batch of one row is dropped: it is never examined only where each batch is assembled by itself.
    ("range 9 elements=9 | batch 2 | batch 4 drop_remainder=True", "map-and-batch-fusion", False),
    ("range 9 elements=9 | batch 2 | shuffle 3 | batch 4 drop_remainder=True", "map-and-batch-fusion", False),
    (f"{_ROWS} | batch 4 | batch 4 drop_remainder=True", "gather-batches", False),
    ("range 9 elements=9 | batch 2 | map cpu=1ms | filter | batch 4 drop_remainder=True", "filter-early", False),
    ("range 9 elements=9 | batch 2 | batch 4", "map-and-batch-fusion", True),  # refused in any case
    ("range 8 elements=8 | batch 2 | batch 3 drop_remainder=True", "map-and-batch-fusion", True),
    (f"{_ROWS} | batch 5 | batch 4 drop_remainder=True", "gather-batches", True),
])  # fmt: skip
def test_dropped_elements_of_different_sizes_are_not_batched_together(words: str, rule: str, fires: bool) -> None:
    rewrites, silences = propose_all(context(words))
    last = context(words).pipeline.output.id
    found = [one for one in rewrites if one.rule == rule and (last in str(one.edits) or rule != "map-and-batch-fusion")]
    assert bool(found) is fires, found
    assert fires or any("elements of different sizes" in one.why for one in silences)


_SHUFFLED = "a = range 9 | shuffle 9 seed=4"


@pytest.mark.parametrize(("words", "op", "conflicts"), [
    (f"{_SHUFFLED}; b = a | repeat 2 | batch 2; c = a | repeat 2 | batch 2; zip b c", "batch", True),
    (f"{_SHUFFLED}; b = a | repeat 2 | map writes=w; c = a | repeat 2; zip b c", "map", True),
    (f"{_SHUFFLED}; b = a | concatenate a | batch 2; c = a | repeat 2 | batch 2; zip b c", "batch", True),
    ("a = random | take 9; b = a | repeat 2 | batch 2; c = a | repeat 2 | batch 2; zip b c", "batch", True),
    (f"{_SHUFFLED} | repeat 2 | batch 2; zip a a", "batch", True),
    (f"{_SHUFFLED}; b = a | repeat 2 | map; c = a | repeat 2; zip b c", "map", False),  # TensorFlow does so itself
    (f"{_SHUFFLED} reshuffle_each_iteration=False; b = a | repeat | batch 2; c = a; zip b c", "batch", False),
    (f"{_SHUFFLED}; b = a | batch 2; c = a | batch 2; zip b c | repeat 2", "batch", False),
    (f"{_SHUFFLED}; b = a | repeat 2; c = a | repeat 2; zip b c | batch 2", "batch", False),
    ("a = range 9; b = a | shuffle 9 seed=4 | repeat 2 | batch 2; c = a | repeat 2; zip b c", "batch", False),
    (f"{_SHUFFLED} | repeat 2 | batch 2", "batch", False),
])  # fmt: skip
def test_branches_that_restart_one_shuffle_keep_their_order(words: str, op: str, conflicts: bool) -> None:
    """Each new iterator takes the next seed: if one started earlier, other elements would be paired."""
    described = context(words)
    node = next(node for node in described.pipeline if node.op == op)
    edits = [SetArgument(node.id, "num_parallel_calls", 2), Insert(node.id, "prefetch", "p")]
    for edit in edits if op == "batch" else edits[:1]:
        assert ("exchange orders" in find_conflict(described, [_free(edit)])) is conflicts


def test_operator_that_already_runs_ahead_may_change_its_parallelism() -> None:
    words = f"{_SHUFFLED}; b = a | repeat 2 | batch 2 num_parallel_calls=2 elements=9; c = a | repeat 2 | batch 2; "
    words += "zip b c elements=9"
    described = context(words)
    node = next(node for node in described.pipeline if node.op == "batch")
    assert find_conflict(described, [_free(SetArgument(node.id, "num_parallel_calls", 4))]) == ""


_REPEATED = "range 9 elements=9 | shuffle 9 seed=4 | repeat"


@pytest.mark.parametrize(("words", "rule", "fires"), [
    (f"{_REPEATED} | batch 3 | take 3", "map-and-batch-fusion", False),
    (f"{_REPEATED} | map 4 | take 9", "split-early", False),
    (f"{_REPEATED} | map 4 | take 9", "serial-map", False),
    (f"{_REPEATED} | map AUTOTUNE | take 9", "parallel-map", True),  # nobody knows how far that reads ahead
    (f"{_REPEATED} | map 4 | take 9", "parallel-map", False),
    (f"{_REPEATED} | map 4 rows=exact | batch 3 | take 3", "vectorize-map", False),
    (f"a = {_REPEATED} | map 4; b = range 9 | repeat elements=-1; zip a b elements=-1", "parallel-map", True),
    ("range 9 elements=9 | shuffle 9 seed=4 | map elements=9 | repeat | take 9 elements=9",
     "shuffle-repeat-order", False),
    ("range 9 elements=9 | shuffle 9 | repeat | batch 3 | take 3", "map-and-batch-fusion", True),  # not seeded
    ("range 9 elements=9 | shuffle 9 seed=4 | batch 3 | take 3", "map-and-batch-fusion", True),
    ("range 9 elements=9 | shuffle 9 seed=4 reshuffle_each_iteration=False | repeat | batch 3 | take 3",
     "map-and-batch-fusion", True),
    (f"{_REPEATED} 2 | batch 3", "map-and-batch-fusion", True),
])  # fmt: skip
def test_shuffle_that_a_take_ends_is_restarted_as_often(words: str, rule: str, fires: bool) -> None:
    """A restart that is read ahead takes the seed of a later epoch."""
    assert _allows(words, rule, "after more or fewer restarts") is fires


@pytest.mark.parametrize(("words", "fires"), [
    ("range 9 elements=9 | map random | cache | batch 2 | take 3", False),
    ("range 9 elements=9 | map random | snapshot | batch 2 | take 3", False),
    ("range 9 elements=9 | shuffle 9 | cache | batch 2 | take 3", False),
    ("range 9 elements=9 | map random | cache | batch 2 2 | take 3", False),
    ("range 9 elements=9 | map random | cache | batch 2 AUTOTUNE | take 3", True),
    ("range 9 elements=9 | map | cache | batch 2 | take 3", True),  # complete or not, it holds the same
    ("range 9 elements=9 | map random | cache | batch 2", True),
    ("range 9 elements=9 | map random | cache | batch 2 elements=5 | take 9 elements=5", True),
])  # fmt: skip
def test_cache_that_a_take_ends_is_not_completed_ahead_of_it(words: str, fires: bool) -> None:
    """The draws of one epoch would then be those of all later ones."""
    words = re.sub(r"batch 2 (2|AUTOTUNE)", r"batch 2 num_parallel_calls=\1", words)
    rewrites, silences = propose_all(context(words))
    parallel = [one for one in rewrites if "in parallel" in one.summary and one.rule == "map-and-batch-fusion"]
    assert bool(parallel) is fires
    assert any("until it has been read to its end" in one.why for one in silences) is not fires


def test_prefetch_does_not_move_behind_a_take_that_ends_a_shuffle() -> None:
    rewrites, _ = propose_all(context(f"{_REPEATED} | prefetch 4 | take 9"))
    assert not any("Move the prefetch" in one.summary for one in rewrites)


@pytest.mark.parametrize(("words", "rule", "fires"), [
    ("a = range 90 elements=90; b = a | map | skip 5; c = a | map; zip b c", "split-early", False),
    ("a = range 90 bytes=8; b = a | map bytes=1k | shuffle 9; c = a; zip b c | batch 2", "shuffle-small", False),
    ("a = range 90 elements=90 | map; b = a | map | skip 5; c = a; zip b c", "split-early", False),
    ("a = range 90 elements=90; b = a | map | skip 5; c = range 90 | map; zip b c", "split-early", True),
    ("a = range 90 elements=90 | map | skip 5; b = a | map; zip a b", "split-early", True),
    ("a = range 90 bytes=8 elements=90; b = a | shuffle 9 | map bytes=1k cpu=1ms; c = a; zip b c", "cache", True),
])  # fmt: skip
def test_operator_of_one_branch_does_not_move_in_front_of_another(words: str, rule: str, fires: bool) -> None:
    assert _allows(words, rule, "into every branch") is fires


_WITH_ERRORS = "would begin or cease to be fused"


@pytest.mark.parametrize(("words", "edits", "why"), [
    ("range 9 | map | batch 4 2 | ignore_errors", [SetArgument("n2", "num_parallel_calls", None)], _WITH_ERRORS),
    ("range 9 | map | batch 4 | ignore_errors", [Insert("n1", "cache", "c")], _WITH_ERRORS),
    ("range 9 | map | prefetch 2 | batch 4 | ignore_errors", [Move("n2", "n4")], _WITH_ERRORS),
    ("range 9 | map | batch 4 | prefetch 2", [Insert("n1", "cache", "c")], ""),
    ("range 9 | map | ignore_errors | batch 4", [Insert("n1", "cache", "c")], ""),
    ("list_files | interleave cycle_length=4 | ignore_errors | batch 4",
     [SetArgument("n2", "num_parallel_calls", 2)], "go on in another order after an error"),
    ("list_files | interleave 4 cycle_length=4 | ignore_errors | batch 4",
     [SetArgument("n2", "num_parallel_calls", 2)], ""),
])  # fmt: skip
def test_ignored_errors_drop_the_same_elements(words: str, edits: list[Edit], why: str) -> None:
    words = words.replace("batch 4 2", "batch 4 num_parallel_calls=2")
    found = find_conflict(context(words), [_free(*edits)])
    assert why in found and bool(why) is bool(found)


def test_rewrites_that_only_together_make_a_seeded_shuffle_fuse_conflict() -> None:
    words = "range 10 elements=10 | shuffle 9 seed=1 | prefetch 2 | map rows=exact bytes=8 | repeat 2 | batch 2"
    described = context(words)
    rewrites, _ = propose_all(described)
    vectorized, move = first(rewrites, "vectorize-map"), _free(Move("n2", "n5"))
    assert find_conflict(described, [vectorized]) == find_conflict(described, [move]) == ""
    rounded = replace(vectorized, safety=Safety.APPROXIMATE)  # who allows that has not allowed another order
    for order in ([vectorized, move], [move, vectorized], [rounded, move]):
        assert "fuses a shuffle with the repeat" in find_conflict(described, order)
    reordered = replace(rounded, needs=frozenset({Consent.REORDER}))
    assert find_conflict(described, [reordered, move]) == ""


def test_rewrite_with_a_conflict_of_its_own_is_not_proposed() -> None:
    """The option lets files that are read ahead overtake each other, and the cache would keep that order."""
    words = "TFRecordDataset elements=50 bytes=1k | cache | with_options deterministic=False"
    rewrites, silences = propose_all(context(words))
    assert "read-shards" not in {rewrite.rule for rewrite in rewrites}
    (why,) = {silence.why for silence in silences if silence.rule == "read-shards"}
    assert why.startswith("The cache would then be downstream of TFRecordDataset")
    assert "read-shards" in {rewrite.rule for rewrite in propose_all(context(words.rpartition(" | ")[0]))[0]}


@pytest.mark.parametrize(("words", "allowed"), [
    ("a = range 9 | map random cpu=1ms; b = range 9; zip a b", False),  # images would get the labels of others
    ("range 9 | map random cpu=1ms | take 4", False),
    ("range 9 | map random cpu=1ms | shuffle 5", True),
    # They overtake each other as it is: TensorFlow runs stateless maps in parallel.
    ("a = range 9 | map cpu=1ms | map random cpu=1ms; b = range 9; zip a b", True),
])  # fmt: skip
def test_elements_do_not_begin_to_overtake_where_positions_count(words: str, allowed: bool) -> None:
    unordered = f"{words} | batch 2 | with_options deterministic=False"
    assert _allows(unordered, "parallel-map", "would overtake upstream of") is allowed


_AHEAD = "would run ahead of training"
_LABELS = "a = range 9 | map cpu=1ms; b = range 9 | map variable=w cpu=1ms"


@pytest.mark.parametrize(("words", "rule", "allowed"), [
    (f"{_LABELS}; concatenate a b | batch 2", "map-and-batch-fusion", False),
    ("range 9 | map table | shuffle 4 | batch 2", "map-and-batch-fusion", False),
    ("range 9 | map variable=w | map random cpu=1ms", "parallel-map", False),
    # What runs ahead as it is, or by TensorFlow's own passes, and what reads nothing that training changes.
    ("range 9 | map variable=w | map 2 random cpu=1ms", "parallel-map", True),
    ("range 9 | map variable=w | map cpu=1ms", "parallel-map", True),
    (f"{_LABELS.replace('variable=w', '')}; concatenate a b | batch 2", "map-and-batch-fusion", True),
])  # fmt: skip
def test_nothing_runs_ahead_behind_what_training_changes(words: str, rule: str, allowed: bool) -> None:
    assert _allows(words, rule, _AHEAD) is allowed


def test_batch_is_not_fused_with_a_map_that_reads_what_training_changes() -> None:
    """Where the script switches the fusion off, such a map runs when training asks for a batch."""
    off = {f"{OPTION}apply_default_optimizations": False}
    assert not _allows("range 9 | map variable=w | batch 2", "map-and-batch-fusion", _AHEAD, options=off)
