"""`cache`: where it must stay silent, where it fires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import Consent, Insert
from pipetune.core.storage import FileUse, Reader, Sweep
from pipetune.rules.cache import RULE, best_place
from pipetune.rules.cache_costs import epochs_until_paid, stored_once
from pipetune.testing.rules import check_fires, check_silent, context, proposals
from tests.rules.outline import outlines

_FILES = "TFRecordDataset elements=10 bytes=1k"
_CYCLE = "list_files shuffle=False | interleave elements=10 bytes=1k"
_SHUFFLED = "from_tensor_slices elements=10 bytes=1k | shuffle 9"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    # What is above differs from epoch to epoch.
    ("range 10 | map random elements=10 bytes=1k | batch 2", {}, "draws random numbers"),
    ("range 10 | map seeded elements=10 bytes=1k | batch 2", {}, "draws random numbers"),
    ("range 10 | map python_random elements=10 bytes=1k | batch 2", {}, "draws random numbers"),
    ("range 10 | map python elements=10 bytes=1k | batch 2", {}, "runs Python"),
    ("range 10 | map variable=w elements=10 bytes=1k | batch 2", {}, "reads the variable w"),
    (
        "range 10 | map variable=w elements=10 bytes=1k",
        {"trained_variables": frozenset()},
        "reads the variable",
    ),
    ("range 10 | map writes elements=10 bytes=1k | batch 2", {}, "writes a variable"),
    ("range 10 | map table elements=10 bytes=1k | batch 2", {}, "table that can change"),
    ("range 10 | map print elements=10 bytes=1k | batch 2", {}, "side effect"),
    # What is refused in every epoch would be refused in the first alone.
    ("range 10 | map asserts elements=10 bytes=1k | batch 2", {}, "refuses elements"),
    ("TFRecordDataset | batch 4 | map | batch 3 elements=10 bytes=1k", {}, "refuses a last batch"),
    ("TFRecordDataset | padded_batch 4 | map | batch 3 elements=10 bytes=1k", {}, "refuses a last batch"),
    (
        "range 9 | window 2 | flat_map inner=BatchDatasetV2 spec=(None,) | batch 3 elements=10 bytes=1k spec=(None,2)",
        {},
        "refuses a last batch",
    ),
    ("range 10 | map unknown elements=10 bytes=1k | batch 2", {}, "nothing is known about its function"),
    ("from_generator elements=10 bytes=1k | map | batch 2", {}, "runs Python"),
    ("from_generator elements=10 bytes=1k | batch 2", {}, "runs Python"),
    ("random elements=10 bytes=1k | map | batch 2", {}, "draws random numbers"),
    ("opaque elements=10 bytes=1k | map | batch 2", {}, "not known what this step does"),
    ("list_files | interleave inner=GeneratorDataset elements=10 bytes=1k", {}, "runs Python"),
    ("list_files | interleave inner=TFRecordDatasetV2+ShuffleDatasetV3 elements=9 bytes=1k", {}, "random"),
    ("range 10 | filter python elements=10 bytes=1k | batch 2", {}, "runs Python"),
    ("a = range 9 | map elements=9 bytes=1k; b = range 9; choose a b | batch 2", {}, "may stop reading"),
    # Order is not kept.
    (f"{_CYCLE} 2 deterministic=False cycle_length=2 | batch 2", {}, "overtake"),
    (f"{_CYCLE} 2 cycle_length=2 | batch 2", {"options": {"deterministic": False}}, "overtake"),
    ("range 10 | map 4 deterministic=False elements=10 bytes=1k | batch 2", {}, "overtake"),
    ("range 10 | map elements=10 bytes=1k | batch 2", {"options": {"deterministic": False}}, "overtake"),
    # The data has no end, or comes again.
    ("range 10 | repeat | map bytes=1k | batch 2", {}, "without end"),
    ("range 10 | repeat -1 | map bytes=1k | batch 2", {}, "without end"),
    ("range 10 | repeat 3 | map bytes=1k elements=30 | batch 2", {}, "each epoch again"),
    # It would never be complete.
    (f"{_FILES} | map | batch 2", {"partial_read": True}, "stops before the data ends"),
    (f"{_FILES} | map | batch 2 | take 3", {}, "may stop reading"),
    (f"{_FILES} | map | take_while | batch 2", {}, "may stop reading"),
    (f"{_FILES} | map | opaque", {}, "may stop reading"),
    (f"{_FILES} | map | scan unknown", {}, "may stop reading"),
    (f"a = {_FILES} | map; b = range 9; zip a b", {}, "may stop reading"),
    ("a = range 9; b = range 9; choose a b | map elements=9 bytes=1k", {}, "draws random numbers"),
    # Behind a shuffle other elements are picked in each epoch, not only in another order.
    (f"{_SHUFFLED} | take 5 | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | skip 2 | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | shard 2 index=1 | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | enumerate | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | window 2 | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | take_while | map bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | batch 3 drop_remainder=True | map bytes=1k", {}, "drops other elements"),
    (f"a = {_SHUFFLED}; b = range 9; zip a b | map bytes=1k elements=9", {}, "depends on the order"),
    ("list_files elements=9 | take 5 | map reads_file bytes=1k", {}, "depends on the order"),
    (f"{_SHUFFLED} | cache | take 5 | map bytes=1k", {}, "depends on the order"),  # the script's own is never complete
    # It is read once.
    (f"{_FILES} | map bytes=1k | batch 2", {"epochs": 1}, "no more than once"),
    (f"{_FILES} | map bytes=1k | batch 2", {"epochs": 1, "steps_per_epoch": 5}, "1 epoch of 5 steps"),
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {"epochs": 2, "steps_per_epoch": 2}, "no more than once"),
    (f"{_FILES} | map bytes=1k | repeat 1 | batch 2", {"epochs": 1}, "no more than once"),
    (f"{_FILES} | map bytes=600k", {"epochs": 1, "memory_limit_bytes": 1e4}, "no more than once"),
    # No price.
    ("TFRecordDataset bytes=1k | map bytes=1k | batch 2", {}, "how many elements"),
    ("TFRecordDataset elements=9 | map | batch 2", {}, "how large an element"),
    ("TFRecordDataset bytes=1k elements=-1", {}, "no end"),
    # Nothing to save.
    ("range 10 elements=10 static_bytes=8 | shuffle 10 | batch 2", {}, None),
    ("from_tensor_slices elements=10 bytes=1k | batch 2", {}, None),
    ("from_tensor_slices elements=10 bytes=1k | shuffle 10 | repeat", {}, None),
    (f"{_FILES} | map | cache", {}, "already"),
    (f"{_FILES} | map bytes=1k | snapshot bytes=1k", {}, "already"),
    (f"{_FILES} | map bytes=1k | snapshot bytes=1k | map bytes=1k", {}, "stores its elements already"),
    (f"{_FILES} | map | cache | shuffle 10 | repeat", {}, "already"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_silent(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_silent("cache", words, **fields)
    if why is None:
        assert silences == []
    else:
        assert any(why in silence.why for silence in silences), silences


def test_one_sentence_for_the_operator_that_decides() -> None:
    silences = check_silent("cache", "from_generator elements=10 bytes=1k | map | map | batch 2")
    assert len(silences) == 1


def _cache(node: str, safety: str = "EXACT") -> str:
    return f"{safety} cache(filename=)>{node}"


FIRES: list[tuple[str, dict[str, Any], list[str]]] = [
    # Deepest place above the first operator that differs; behind the last one that works.
    (f"{_FILES} | map bytes=1k | map random | batch 2 | repeat", {}, [_cache("n1")]),
    (f"{_FILES} | map bytes=1k | batch 2 | prefetch 1", {}, [_cache("n2")]),
    (f"{_FILES} | map bytes=1k | batch 2 | with_options", {}, [_cache("n2")]),
    (f"{_FILES} | map bytes=1k | filter | map random", {}, [_cache("n2")]),
    ("range 10 elements=10 | map bytes=1k | map variable=w", {}, [_cache("n1")]),
    (f"{_FILES} | map 4 bytes=1k | map random", {}, [_cache("n1")]),
    (f"{_CYCLE} 2 cycle_length=2 | map random | batch 2", {}, [_cache("n1")]),
    (f"{_FILES} | map raises reads_file bytes=1k", {}, [_cache("n1")]),
    (f"{_FILES} | batch 5 | batch 3 bytes=1k", {}, [_cache("n2")]),
    (f"{_FILES} | batch 4 drop_remainder=True | batch 3 bytes=1k", {}, [_cache("n2")]),
    (f"{_FILES} | map bytes=1k | take 3 | cache | map bytes=1k", {}, [_cache("n4")]),
    ("range 10 elements=10 | take 5 | map bytes=1k | map random", {}, [_cache("n2")]),
    # The small one too, where it is much smaller.
    (f"{_FILES} | map bytes=600k | map random | batch 2", {}, [_cache("n1"), _cache("n0")]),
    # A user's cache makes what is above it the same.
    (f"{_FILES} | map random bytes=1k | cache | map bytes=1k | map random", {}, [_cache("n3")]),
    # Three at most: what saves most, then what saves most per byte held.
    (f"{_FILES} | map bytes=10k cpu=1ms | map bytes=100k cpu=1ms | map bytes=1M cpu=1ms | map random",
     {}, [_cache("n3"), _cache("n1"), _cache("n2")]),
    # Nothing that another beats in both.
    (f"{_FILES} | map bytes=600k cpu=1ms | map bytes=1k cpu=1ms | map random", {}, [_cache("n2")]),
    (f"{_FILES} | shard 2 index=1 | map random", {}, [_cache("n1")]),
    (f"{_FILES} | map bytes=1k | skip 3 | map random", {}, [_cache("n2")]),
    # What would be read partly above a take is whole behind it.
    (f"{_FILES} | map bytes=1k | batch 2 | take 3", {}, [_cache("n3")]),
    # It is read more than once.
    (f"{_FILES} | map bytes=1k | batch 2", {"epochs": 2}, [_cache("n2")]),
    (f"{_FILES} | map bytes=1k | repeat 3 | batch 2", {"epochs": 1}, [_cache("n1")]),
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {"epochs": 2, "steps_per_epoch": 5}, [_cache("n1")]),
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {"epochs": 1}, [_cache("n1")]),
    # A shuffle freezes.
    ("list_files elements=4 | interleave elements=9 bytes=1k | map random", {}, [_cache("n2", "REORDERS")]),
    (f"{_FILES} | map bytes=1k | shuffle 9 | map bytes=1k | batch 2",
     {}, ["EXACT n2>n3 cache(filename=)>n3", _cache("n4", "REORDERS")]),
    (f"{_FILES} | map bytes=1k | shuffle 9 | map random | batch 2", {}, [_cache("n1")]),
    (f"{_FILES} | shuffle 9 reshuffle_each_iteration=False | map bytes=1k | map random", {}, [_cache("n2")]),
    # Unless it can stand behind the cache: past maps that depend on their element alone.
    (f"{_FILES} | shuffle 9 seed=1 | map bytes=1k cpu=1ms | map random", {}, ["EXACT n1>n2 cache(filename=)>n2"]),
    (f"{_SHUFFLED} | map bytes=1k | prefetch | map bytes=1k cpu=1ms | map random | batch 3", {},
     ["EXACT n1>n4 cache(filename=)>n4"]),
    (f"{_SHUFFLED} | map bytes=1k cpu=1ms | map random", {"epochs": 3}, ["EXACT n1>n2 cache(filename=)>n2"]),
    (f"{_SHUFFLED} | map bytes=1k cpu=1ms | map random", {"epochs": 2}, [_cache("n2", "REORDERS")]),
    (f"{_FILES} | map bytes=1k | shuffle 9 | map bytes=1k cpu=1ms | batch 2", {"randomness_fixed": True},
     [_cache("n1"), "STATISTICAL n2>n3 cache(filename=)>n3", _cache("n4", "REORDERS")]),  # its seed may be another
    (f"{_SHUFFLED} | filter | map bytes=1k cpu=1ms | map random", {}, [_cache("n3", "REORDERS")]),
    (f"{_SHUFFLED} | shuffle 5 | map bytes=1k cpu=1ms | map random", {}, [_cache("n3", "REORDERS")]),
    ("list_files elements=9 | map bytes=1k cpu=1ms | map random", {}, [_cache("n2", "REORDERS")]),
    (f"{_SHUFFLED} | batch 3 | map bytes=1k", {}, [_cache("n3", "REORDERS")]),
    (f"{_SHUFFLED} reshuffle_each_iteration=False | take 5 | map bytes=1k | map random", {}, [_cache("n3")]),
    # A repeat below is what makes it worth while.
    (f"{_FILES} | map bytes=1k | repeat | batch 2", {}, [_cache("n1")]),
    (f"{_FILES} | map bytes=1k", {"options": {"deterministic": True}}, [_cache("n1")]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "fields", "expected"), FIRES)
@pytest.mark.mission("A7.cache")
def test_fires(words: str, fields: dict[str, Any], expected: list[str]) -> None:
    rewrites = check_fires("cache", words, **fields)
    assert outlines(rewrites) == expected
    assert all(rewrite.group == "cache" and not rewrite.needs for rewrite in rewrites)
    for rewrite in rewrites:
        assert ("frozen" in " ".join(rewrite.notes)) == (rewrite.safety.name == "REORDERS")


def test_the_price_is_elements_times_bytes() -> None:
    rewrites = check_fires("cache", f"{_FILES} | map bytes=600k | map random | batch 2")
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [6e6, 1e4]


def test_counts_are_taken_through_operators_that_keep_them() -> None:
    words = "range 10 | map bytes=1k | map random elements=32 | batch 2"
    assert [rewrite.predicted_bytes for rewrite in check_fires("cache", words)] == [32_000]
    counted = context("TFRecordDataset | map bytes=2k | map random")
    assert counted.profile is not None
    counted = replace(counted, profile=replace(counted.profile, cardinality={"n0": 7}))
    rewrites, _ = proposals(RULE, counted)
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [14_000]


@pytest.mark.parametrize(
    ("words", "price"),
    [
        ("range 10 elements=10 | take 4 | map bytes=1k", 4_000),
        ("range 10 elements=-1 | take 4 | map bytes=1k", 4_000),
        ("range 10 elements=10 | take -1 | map bytes=1k", 10_000),
        ("range 10 elements=10 | skip 4 | map bytes=1k", 6_000),
        ("range 10 elements=10 | filter | map bytes=1k", 10_000),  # at most
        (f"{_FILES} | shard 3 index=1 | map bytes=1k", 4_000),  # at most
        ("range 10 elements=10 | map static_bytes=8 | batch 3", 12 * 8),  # four batches of at most three
        ("range 10 | map bytes=1k | batch 3 elements=4", 4 * 3 * 1_000),
    ],
)
@pytest.mark.mission("A7.cache")
def test_prices(words: str, price: float) -> None:
    assert check_fires("cache", words)[0].predicted_bytes == price


def test_a_size_is_read_from_the_operator_that_takes_it_in() -> None:
    described = context("range 10 elements=10 | map | map random")
    assert described.profile is not None
    first, second, third = described.profile.operators
    measured = replace(described.profile, operators=(first, second, replace(third, bytes_in=2_000)))
    rewrites, _ = proposals(RULE, replace(described, profile=measured))
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [20_000]


@pytest.mark.mission("A7.elsewhere")
def test_what_does_not_fit_is_named_and_a_file_cache_offered() -> None:
    words = f"{_FILES} | map! bytes=600k | map random | batch 2"
    described = context(words, memory_limit_bytes=1e6, fingerprint="abcd", rank=3)
    rewrites, silences = proposals(RULE, described)
    assert outlines(rewrites) == ["EXACT cache(filename=pipetune-cache-abcd-rank3)>n1", _cache("n0")]
    in_file, in_memory = rewrites
    assert in_file.needs == frozenset({Consent.FILE_CACHE}) and in_file.predicted_bytes == 0
    assert any("outlives the run" in note for note in in_file.notes)
    assert in_memory.needs == frozenset() and in_memory.predicted_bytes == 1e4
    (offer,) = [silence for silence in silences if silence.node == "n1"]
    for part in ("5.7 MiB", "977 KiB", "Dataset.save", "Dataset.load", "100 ms of CPU time to make once"):
        assert part in offer.why


def test_a_file_cache_carries_the_pipelines_own_fingerprint() -> None:
    described = context(f"{_FILES} | map bytes=600k", memory_limit_bytes=1)
    rewrites, _ = proposals(RULE, described)
    (edit,) = rewrites[0].edits
    assert isinstance(edit, Insert)
    assert edit.arguments["filename"] == f"pipetune-cache-{described.pipeline.fingerprint}-rank0"


def test_says_who_else_reads_the_branch() -> None:
    described = context(f"{_FILES} shared=2 | map bytes=1k shared=2")
    shared = replace(described, pipeline=replace(described.pipeline, shared_with=("validation",)))
    rewrites, _ = proposals(RULE, shared)
    notes = " ".join(rewrites[0].notes)
    assert "validation" in notes and "makes 2 datasets" in notes


def test_says_where_two_branches_read_behind_it() -> None:
    words = f"a = {_FILES} | map bytes=1k; b = a | map random; c = a | map random; concatenate b c"
    (rewrite,) = check_fires("cache", words)
    assert "Two branches" in " ".join(rewrite.notes)


_SLOW = f"{_FILES} | map bytes=600k cpu=9990us | map random"
"""10 ms per element, ten elements."""


def _notes(words: str, **fields: Any) -> str:
    return " ".join(check_fires("cache", words, **fields)[0].notes)


def test_says_what_it_saves_and_from_when_on() -> None:
    notes = _notes(_SLOW, epochs=5)
    assert "From the second epoch on it saves 100 ms of CPU time per epoch" in notes
    assert "400 ms in the 5 epochs of the script" in notes
    assert "epochs of the script" not in _notes(_SLOW)


def test_waiting_is_saved_too_and_told_apart() -> None:
    described = context(_SLOW)
    assert described.profile is not None
    first, *rest = described.profile.operators
    waits = replace(described.profile, operators=(replace(first, waiting_seconds=0.05), *rest))
    rewrites, _ = proposals(RULE, replace(described, profile=waits))
    assert "100 ms of CPU time and 500 ms of waiting per epoch" in " ".join(rewrites[0].notes)


def test_what_the_script_caches_already_is_not_saved_again() -> None:
    words = f"{_FILES} | map cpu=1s bytes=1k | cache cpu=0us | map cpu=10ms bytes=1k | map random"
    assert "saves 100 ms of CPU time per epoch" in _notes(words)


@pytest.mark.parametrize(
    ("bytes_per_second", "in_file", "saved"),
    [
        (None, "more than 57.2 MiB per second are read", "more than 57.2 MiB per second are read"),
        (1e9, "reading takes 6.0 ms at least; written as fast, it has paid after 2 epochs", "has paid after 2 epochs"),
        (1.1e8, "reading takes 55 ms at least; written as fast, it has paid after 3 epochs", "has paid after 4 epochs"),
        (1e7, "reading takes 600 ms at least, so it never pays", "it never pays"),
    ],
)
def test_when_reading_from_disk_has_paid(bytes_per_second: float | None, in_file: str, saved: str) -> None:
    described = context(_SLOW, memory_limit_bytes=1e5)
    assert described.profile is not None
    sweep = Sweep(Reader.FILES, (), ceiling=bytes_per_second)
    known = replace(described.profile, files=FileUse(sweeps=(sweep,)))
    rewrites, silences = proposals(RULE, replace(described, profile=known))
    assert in_file in " ".join(rewrites[0].notes)
    assert saved in next(silence.why for silence in silences if silence.node == "n1")


def test_a_cache_has_to_fit_beside_what_the_pipeline_holds_already() -> None:
    """As the search refuses it: 7 MiB would be enough for the cache alone."""
    described = context(_SLOW, memory_limit_bytes=7 * 2**20)
    assert described.profile is not None
    assert outlines(proposals(RULE, described)[0]) == [_cache("n1"), _cache("n0")]
    holding = replace(described, profile=replace(described.profile, peak_rss_mib=5.0))
    rewrites, silences = proposals(RULE, holding)
    assert rewrites[0].needs == frozenset({Consent.FILE_CACHE}) and outlines(rewrites[1:]) == [_cache("n0")]
    assert "more than what the pipeline leaves of the limit of 7.0 MiB" in silences[-1].why


def test_no_place_to_store_anything_where_nothing_repeats_or_has_a_price() -> None:
    assert best_place(context("list_files elements=4 | map random cpu=1s bytes=1k | batch 2")) is None
    assert best_place(context(f"{_FILES} | map cpu=1s bytes=1k", profiled=False)) is None


@pytest.mark.parametrize(("bytes_per_second", "paid"), [(None, None), (1e7, None), (1e9, 2)])
def test_what_is_stored_in_place_of_a_service_is_priced_whether_it_fits_in_memory_or_not(
    bytes_per_second: float | None, paid: int | None
) -> None:
    described = context(_SLOW)
    place = best_place(described)
    assert place is not None and place.node.id == "n1" and described.profile is not None
    known = replace(described.profile, files=FileUse(sweeps=(Sweep(Reader.FILES, (), ceiling=bytes_per_second),)))
    facts = replace(described, profile=known)
    assert epochs_until_paid(facts, place, before_training=True) == paid
    sentence = stored_once(facts, place)
    assert "5.7 MiB on storage that every host reaches, 100 ms of CPU time to make once" in sentence
    assert ("paid after 2 epochs" in sentence) is (paid == 2)
    assert "Dataset.snapshot" in sentence and "order it was saved in" not in sentence


def test_what_is_stored_stands_in_front_of_a_shuffle_where_it_can() -> None:
    found = best_place(context(f"{_FILES} | map bytes=600k cpu=9990us | shuffle 10 | batch 2"))
    assert found is not None and found.node.op == "map"
    shuffled = best_place(context("list_files elements=4 | interleave elements=9 bytes=600k | map random"))
    assert shuffled is not None and shuffled.node.op == "interleave"


@pytest.mark.parametrize(("files", "frozen"), [("list_files", True), ("list_files shuffle=False", False)])
def test_a_dataset_saved_behind_a_shuffle_has_the_order_it_was_saved_in(files: str, frozen: bool) -> None:
    words = f"{files} elements=4 | interleave elements=9 bytes=600k | map random"
    rewrites, silences = proposals(RULE, context(words, memory_limit_bytes=1e6))
    assert [bool(rewrite.needs) for rewrite in rewrites] == [True]
    (offer,) = [silence.why for silence in silences if "Dataset.save" in silence.why]
    assert ("the order it was saved in" in offer) == frozen
