"""Elements and bytes that workers receive: how pipelines and batches are divided, and what comes never or twice."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.distribution import Coverage, ElementIdentity, WorkerShare
from pipetune.core.errors import PipetuneError
from pipetune.model import coverage
from pipetune.model.coverage import AutoShardPolicy, DeliveryCounts, StoredBytes, computed_coverage, worst_coverage
from tests.words import pipeline

WANTED = Counter(range(6))


def of_two(first: list[int], second: list[int], **options: object) -> Coverage:
    return worst_coverage([WANTED], [[Counter(first)], [Counter(second)]], told_by=ElementIdentity.INDEX, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("wanted", "came", "expected"), [
    ("abc", "abbccc", DeliveryCounts(once=1, twice=1, more_than_twice=1)),
    # equal elements: both received once; one not received; one received at least twice
    ("aab", "aab", DeliveryCounts(once=3)),
    ("aab", "ab", DeliveryCounts(never=1, once=2)),
    ("aab", "aaab", DeliveryCounts(once=2, twice=1)),
    ("aab", "aaaab", DeliveryCounts(once=1, twice=2)),
    ("aaa", "aaaaaaaaaa", DeliveryCounts(more_than_twice=3)),
])  # fmt: skip
def test_delivery_counts(wanted: str, came: str, expected: DeliveryCounts) -> None:
    assert coverage.count_deliveries(Counter(map(ord, wanted)), Counter(map(ord, came))) == expected


@given(st.dictionaries(st.integers(0, 9), st.integers(1, 4)), st.lists(st.integers(0, 12)))
def test_every_element_is_counted_once(wanted: dict[int, int], came: list[int]) -> None:
    found = coverage.count_deliveries(wanted, Counter(came))
    assert found.never + found.once + found.twice + found.more_than_twice == sum(wanted.values())
    assert found.unexpected == sum(key not in wanted for key in came)
    missing, surplus = Counter(wanted) - Counter(came), Counter(came) - Counter(wanted)
    assert found.never == missing.total()  # also with equal elements: no more than are certainly missing
    assert (found.not_once > 0) == bool(missing or surplus)


@pytest.mark.parametrize(
    ("elements", "size", "drop", "expected"),
    [(12, 4, False, (3, 0)), (13, 4, False, (4, 1)), (13, 4, True, (3, 0)), (3, 4, True, (0, 0)), (0, 4, True, (0, 0))],
)
def test_batch_counts(elements: int, size: int, drop: bool, expected: tuple[int, int]) -> None:
    assert coverage.count_batches(elements, size, drop_remainder=drop) == expected


def test_coverage_of_complete_division() -> None:
    found = of_two([0, 2, 4], [1, 3, 5])
    assert found.complete and (found.never, found.once, found.twice, found.idle_workers) == (0, 6, 0, ())
    assert [worker.cells for worker in found.workers] == [(1, 0, 1, 0, 1, 0), (0, 1, 0, 1, 0, 1)]
    assert found.cells == (1,) * 6 and not found.by_file


def test_all_elements_to_all_workers_and_idle_worker() -> None:
    both = of_two(list(range(6)), list(range(6)))
    assert (both.never, both.once, both.twice, both.repeated) == (0, 0, 6, 6) and not both.complete
    one = of_two(list(range(6)), [])
    assert one.complete and one.idle_workers == (1,)
    assert of_two([], []).idle_workers == (), "where nobody gets anything nobody idles"


def test_worst_worker_counts_if_each_should_get_everything_and_so_does_the_worst_epoch() -> None:
    found = of_two(list(range(6)), [0, 1, 2, 3, 3], each_everything=True)
    assert (found.never, found.once, found.twice) == (2, 3, 1)
    assert of_two(list(range(6)), list(range(6)), each_everything=True).complete
    workers = [[Counter({0: 1, 1: 1}), Counter({0: 1})], [Counter({2: 1}), Counter({0: 1})]]
    found = worst_coverage([Counter(range(3))] * 2, workers, told_by=ElementIdentity.DIGEST)
    assert (found.never, found.once, found.twice, found.epochs) == (2, 0, 1, 2)
    assert [worker.elements for worker in found.workers] == [1, 1]


def test_cells_are_files_if_there_are_few() -> None:
    found = of_two([0, 1, 5], [2, 3, 4], files=(2, 3, 1))
    assert found.by_file and found.cells == (2, 3, 1) and found.files == 3
    assert [worker.cells for worker in found.workers] == [(2, 0, 1), (0, 3, 0)]
    assert not of_two([0, 1, 2], [3, 4, 5], files=(6,)).by_file, "one file is no division"
    other = of_two([0, 1, 2], [3, 4, 5], files=(2, 3))
    assert not other.by_file and other.files == 0, "these files hold other elements"
    many = worst_coverage([dict.fromkeys(range(60), 1)], [[{}]], told_by=ElementIdentity.INDEX, files=(1,) * 60)
    assert not many.by_file and many.files == 60 and len(many.cells) < 60, "too many to be shown apart"


@given(st.lists(st.integers(1, 3), max_size=60), st.integers(1, 10))
def test_cells_contain_all_elements(equal: list[int], most: int) -> None:
    wanted = dict(enumerate(equal))
    found = coverage.divide_into_cells(wanted, max_cells=most)
    assert sum(found.sizes) == sum(equal) and len(found.sizes) <= most
    assert sum(found.count(wanted)) == sum(equal)
    assert list(found.of_key.values()) == sorted(found.of_key.values())
    assert found.count({99: 4}) == (0,) * len(found.sizes), "what is not of the data lies nowhere"


def test_properties_derived_from_worker_shares() -> None:
    def shares(*workers: WorkerShare) -> Coverage:
        return Coverage(workers, "elements", ElementIdentity.INDEX, 6, 0, 6, 0, 0)

    uneven = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2, 1, 1, 6))
    assert (uneven.first_out, uneven.short_batches, uneven.read_over_used) == (1, 1, 2.0)
    assert replace(uneven, workers=(WorkerShare(9, 9), WorkerShare(5, 5)), replicas_per_worker=2).first_out == 3
    unknown = shares(WorkerShare(4, 2, 0, 6), WorkerShare(2))
    assert (unknown.first_out, unknown.short_batches, unknown.read_over_used) == (None, None, None)


POLICIES = st.sampled_from([AutoShardPolicy.DATA, AutoShardPolicy.OFF, None])


@given(st.integers(0, 120), st.integers(1, 9), st.integers(1, 4), st.integers(1, 2), POLICIES, st.booleans())
def test_computed_coverage_equals_count_of_elements(elements, batch, workers, replicas, policy, known) -> None:
    job = {"workers": workers, "replicas_per_worker": replicas, "policy": policy, "batch_size_known": known}
    found = computed_coverage(elements, batch, **job)  # type: ignore[arg-type]
    batches = [list(coverage.worker_batches(elements, batch, worker=one, **job)) for one in range(workers)]  # type: ignore[arg-type]
    received = [[Counter(number for part in mine for number in part)] for mine in batches]
    counted = worst_coverage([Counter(range(elements))], received, told_by=ElementIdentity.INDEX)
    for name in ("elements", "never", "once", "twice", "oftener", "cells", "idle_workers"):
        assert getattr(found, name) == getattr(counted, name), name
    for one, other in zip(found.workers, counted.workers, strict=True):
        assert (one.elements, one.cells) == (other.elements, other.cells)
    assert [one.batches for one in found.workers] == list(map(len, batches))


def test_twelve_elements_of_guide_by_data() -> None:
    found = computed_coverage(12, 4, workers=2, policy=AutoShardPolicy.DATA)
    assert found.complete and found.told_by is ElementIdentity.ARITHMETIC and found.read_over_used == 2.0
    assert [(one.elements, one.batches, one.short_batches) for one in found.workers] == [(6, 3, 0)] * 2
    assert found.workers[0].cells == (1, 1, 0, 0) * 3


@pytest.mark.parametrize(("counts", "rows", "replicas", "expected"), [
    ([8, 8], 4, 1, (0, 0)),
    ([9, 8], 4, 1, (1, 3)),
    ([33], 2, 2, (1, 3)),  # steps of 4: the last step would have a full batch of 2 and one of 1
    ([34], 2, 2, (2, 2)),  # the last batch of 2 is for one of two replicas: that step is not taken
])  # fmt: skip
def test_dropped_elements_and_padding_rows(counts, rows, replicas, expected) -> None:
    assert coverage.epoch_remainder(counts, rows, replicas_per_worker=replicas) == expected


# -- policies

RECORDS = "TFRecordDataset"


@pytest.mark.parametrize(("text", "stopped_at", "divided_at"), [
    ("range | batch 4", "n0", ()),
    ("list_files | map | batch 4", "n0", ()),  # a map that reads the file itself
    ("list_files | interleave inner=CSVDataset", "n0", ()),
    (f"{RECORDS} | scan", "n1", ()),
    (f"{RECORDS} | group_by_window | prefetch 1", "n1", ()),
    (f"{RECORDS} | enumerate", "n1", ()),
    (f"a = {RECORDS}; b = range 9; zip a b", "n1", ()),
    (f"{RECORDS} | shuffle 9 | repeat | map | batch 4 | prefetch 1", None, ("n0",)),
    ("list_files | interleave | map | batch 4", None, ("n2",)),
    ("list_files | flat_map inner=TFRecordDatasetV2+MapDataset | batch 4", None, ("n2",)),
    (f"a = {RECORDS}; b = TextLineDataset; zip a b | batch 4", None, ("n1", "n0")),
    (f"{RECORDS} | assert_cardinality | unbatch", None, ("n0",)),
])  # fmt: skip
def test_operators_that_are_sharded_by_file(text: str, stopped_at: str | None, divided_at: tuple[str, ...]) -> None:
    files = coverage.find_shardable_files(pipeline(text))
    assert bool(files) is (stopped_at is None) and files.divided_at == divided_at
    assert stopped_at is None or files.stopped_at == stopped_at


@pytest.mark.parametrize(("text", "known"), [
    ("range | flat_map inner=RangeDataset+BatchDataset", False),
    ("a = range | batch 4; b = range | batch 2; zip a b", False),
    ("a = range | batch 4; b = range | batch 4 | map; zip a b", False),
    ("range | padded_batch 4 | shuffle 9 | repeat | take 3", True),
    ("a = range | batch 4; b = range | batch 4; zip a b | filter", True),
])  # fmt: skip
def test_known_batch_size(text: str, known: bool) -> None:
    assert coverage.batch_size_known(pipeline(text)) is known


@pytest.mark.parametrize(
    ("shapes", "known"), [(["None, 2"], False), (["4,", "None,"], False), (["4,", "2,"], False), (["4, 2", "4,"], True)]
)
def test_fixed_shapes_determine_batch_size_after_map(shapes: list[str], known: bool) -> None:
    made = pipeline("range | batch 4 | map")
    specs = ", ".join(f"TensorSpec(shape=({one}), dtype=tf.int64, name=None)" for one in shapes)
    output = replace(made.output, spec=specs if len(shapes) == 1 else f"({specs})")
    assert coverage.batch_size_known(replace(made, nodes=(*made.nodes[:-1], output))) is known


@pytest.mark.parametrize(("policy", "from_files", "applied"), [
    ("auto", True, "file"),
    ("auto", False, "data"),
    ("file", True, "file"),
    ("data", True, "data"),
    ("off", True, "off"),
])  # fmt: skip
def test_applied_policy(policy: str, from_files: bool, applied: str) -> None:
    for workers in (1, 2):
        assert coverage.applied_policy(AutoShardPolicy(policy), from_files=from_files, workers=workers).value == applied


def test_policy_file_requires_files_for_several_workers() -> None:
    assert coverage.applied_policy(AutoShardPolicy.FILE, from_files=False, workers=1) is AutoShardPolicy.FILE
    with pytest.raises(PipetuneError, match="reads files"):
        coverage.applied_policy(AutoShardPolicy.FILE, from_files=False, workers=2)


# -- batches of replicas


@pytest.mark.mission("B2.examples")
@pytest.mark.parametrize(("elements", "replicas", "expected"), [
    (6, 2, [[0, 1], [2, 3], [4], [5]]),
    (4, 5, [[0], [1], [2], [3], []]),
    (8, 3, [[0, 1], [2, 3], [], [4, 5], [6, 7], []]),
])  # fmt: skip
def test_batches_of_four_in_the_guide(elements: int, replicas: int, expected: list[list[int]]) -> None:
    assert [list(part) for part in coverage.split_batches(coverage.batch_ranges(elements, 4), replicas)] == expected


def test_sizes_of_example_in_tensorflow_source() -> None:
    """`batch_sizes_for_worker`: a global batch of 7, two workers with two replicas each."""
    assert coverage.stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=0) == (2, 2, 2, 1)
    assert coverage.stream_split_sizes(7, workers=2, replicas_per_worker=2, worker=1) == (2, 1, 2, 2)


@pytest.mark.parametrize(("elements", "sizes", "expected"), [
    (6, (2, 2), [2, 2, 2]),
    (4, (3,), [3, 1]),
    # the end is detected when an element is requested
    (2, (1, 0), [1, 0, 1, 0]),
    (2, (0, 1), [0, 1, 0, 1, 0]),
    (0, (0, 1), [0]),
    (1, (2, 0), [1]),
])  # fmt: skip
def test_stream_is_split_across_batches(elements: int, sizes: tuple[int, ...], expected: list[int]) -> None:
    assert [len(part) for part in coverage.split_stream(elements, sizes)] == expected


@given(st.integers(0, 60), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3))
def test_splitting_keeps_all_elements_in_order(count: int, batch: int, workers: int, replicas: int) -> None:
    by = {"workers": workers, "replicas_per_worker": replicas}
    every = [coverage.stream_split_sizes(batch, **by, worker=one) for one in range(workers)]
    for first in range(0, workers * replicas, replicas):
        assert sum(sum(sizes[first : first + replicas]) for sizes in every) == batch, "in every step"
    batches = coverage.split_batches(coverage.batch_ranges(count, batch), workers * replicas)
    for parts in (coverage.split_stream(count, every[-1]), batches):
        assert list(itertools.chain.from_iterable(parts)) == list(range(count))


BITS = 4
KEYS = {0: 10, 1: 90, 16: 5, 17: 15, 32: 40}  # two elements in each of two files, one in a third
STORED_KEYS = dict.fromkeys(KEYS, 1)
FILES = StoredBytes(KEYS, file_sizes=(100, 20, 50), file_index_shift=BITS)  # 10 bytes of the last are of no element


def sent(*workers: dict[int, int], stored: StoredBytes | None = FILES, reads_all: bool = False) -> Coverage:
    given = [[worker] for worker in workers]
    return worst_coverage([STORED_KEYS], given, told_by=ElementIdentity.INDEX, stored=stored, reads_all=reads_all)


def counts(*keys: int) -> dict[int, int]:
    return dict.fromkeys(keys, 1)


@pytest.mark.parametrize(("workers", "reads_all", "expected"), [
    ([counts(0, 1, 32), counts(16, 17)], False, [(150, 140), (20, 20)]),  # by file
    ([counts(0, 16, 32), counts(1, 17)], True, [(170, 55), (170, 105)]),  # by element
    ([STORED_KEYS, STORED_KEYS], True, [(170, 160), (170, 160)]),  # all elements to both
    ([counts(0, 16), counts(0, 16)], False, [(120, 15), (120, 15)]),  # the same part for both
    ([STORED_KEYS, {}], False, [(170, 160), (0, 0)]),  # one idle worker
    ([{0: 2, 1: 1}, {}], False, [(100, 110), (0, 0)]),  # an element received twice is used twice and read once
])  # fmt: skip
def test_bytes_read_and_used_by_each_worker(workers, reads_all, expected) -> None:
    found = sent(*workers, reads_all=reads_all)
    assert [(one.read_bytes, one.used_bytes) for one in found.workers] == expected
    read, used = map(sum, zip(*expected, strict=True))
    assert (found.read_bytes, found.used_bytes, found.bytes_read_over_used) == (read, used, read / used)


def test_ratios_of_elements_and_of_bytes_differ() -> None:
    found = sent(counts(0, 16), {}, reads_all=True)
    read = replace(found, workers=tuple(replace(one, read=5) for one in found.workers))
    assert (read.read_over_used, read.bytes_read_over_used) == (5.0, 340 / 15)


def test_early_end_stops_reading_after_last_element() -> None:
    early = replace(FILES, ends_early=True)
    found = sent(counts(0), counts(16, 17), stored=early)
    assert [one.read_bytes for one in found.workers] == [10, 20]
    assert [one.read_bytes for one in sent(counts(0), {}, stored=early, reads_all=True).workers] == [160, 160]


@pytest.mark.parametrize("stored", [None, replace(FILES, bytes_by_key={0: 10})])
def test_unknown_size_of_one_element_makes_total_unknown(stored: StoredBytes | None) -> None:
    found = sent(counts(0), counts(16), stored=stored)
    assert found.used_bytes is None and found.bytes_read_over_used is None
    assert sent(counts(0), counts(16), stored=replace(FILES, file_index_shift=None)).read_bytes is None, "which files?"
    assert sent({}, {}).bytes_read_over_used is None, "nothing is used"


def test_elements_of_equal_share_sum_up_to_file() -> None:
    thirds = StoredBytes(dict.fromkeys(range(3), 100 / 3), file_sizes=(100,), file_index_shift=BITS)
    assert (thirds.used_bytes(counts(0, 1, 2)), thirds.used_bytes(counts(1))) == (100, 33)
