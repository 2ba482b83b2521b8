"""Coverage of a script's original pipeline by its workers: under a strategy, and with separate processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune import tensorflow_private
from pipetune.distributed.verify import counting, original
from pipetune.distributed.verify.original import WorkerJob, measure_worker_coverage
from pipetune.pipelines import live
from tests.distributed.numbered_files import lines

Data = tf.data.Dataset


def divided(dataset: Any, **job: Any) -> Coverage:
    found = measure_worker_coverage(live.read(dataset), WorkerJob(**job))
    assert found.coverage is not None, found.why
    return found.coverage


@pytest.mark.parametrize(
    ("policy", "files", "batch", "job", "elements", "batches"),
    [
        # the guide's twelve elements in batches of 4, on two workers
        ("FILE", (6, 6), 4, {}, (6, 6), (3, 3)),
        ("FILE", (6, 6), 4, {"hidden": True}, (6, 6), (4, 4)),  # 4, 4, 2 and 2 are split, each by itself
        ("DATA", (12,), 4, {}, (6, 6), (3, 3)),
        ("OFF", (12,), 4, {}, (12, 12), (6, 6)),
        # others
        ("FILE", (5, 1, 3, 4), 4, {}, (8, 5), (4, 3)),
        ("AUTO", (6, 6), 4, {"replicas_per_worker": 2}, (6, 6), (6, 6)),
        ("DATA", (7, 2, 3, 1), 3, {"workers": 4}, (5, 4, 4, 0), (5, 5, 5, 5)),
    ],
)
@pytest.mark.mission("B3.examples")
def test_elements_and_batches_of_each_worker_under_a_strategy(
    tmp_path: Path,
    policy: str,
    files: tuple[int, ...],
    batch: int,
    job: dict[str, Any],
    elements: tuple[int, ...],
    batches: tuple[int, ...],
) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, *files)).map(tf.strings.length).batch(batch)
    job = dict(job)
    if job.pop("hidden", False):
        dataset = dataset.map(lambda lengths: lengths + 0)
    found = divided(dataset, **{"workers": 2, "policy": policy, **job})
    times = 2 if policy == "OFF" else 1
    count = sum(files)
    once, twice = count * (2 - times), count * (times - 1)
    assert (found.elements, found.never, found.once, found.twice) == (count, 0, once, twice)
    assert found.told_by is ElementIdentity.INDEX, "lines of equal length are told apart"
    assert tuple(one.elements for one in found.workers) == elements
    assert tuple(one.batches for one in found.workers) == batches
    reads_all = policy in ("DATA", "OFF")
    assert tuple(one.read for one in found.workers) == ((count,) * len(elements) if reads_all else elements)
    assert len(files) == 1 or (found.by_file and found.cells == files)


@pytest.mark.parametrize(
    "read",
    [
        lambda names: Data.from_tensor_slices(names).interleave(tf.data.TextLineDataset, cycle_length=2),
        lambda names: Data.from_tensor_slices(names).flat_map(lambda name: tf.data.TextLineDataset(name).skip(1)),
        lambda names: Data.from_tensor_slices(names).map(tf.identity).shuffle(4).interleave(
            tf.data.TextLineDataset, cycle_length=3, num_parallel_calls=2
        ),
        lambda names: tf.data.TextLineDataset(Data.from_tensor_slices(names).shuffle(9)),
    ],
)  # fmt: skip
def test_files_are_divided_as_by_tensorflow(tmp_path: Path, read: Any) -> None:
    workers = 3
    names = lines(tmp_path, 3, 2, 4, 3)
    dataset = read(names).map(tf.strings.to_number).batch(2)
    found = divided(dataset, workers=workers, policy="AUTO")
    cells = []
    for worker in range(workers):
        mine = tensorflow_private.worker_pipeline(dataset, workers=workers, worker=worker, replicas=workers)
        numbers = [int(number) for batch in mine.as_numpy_iterator() for number in batch]
        ends = [0, 3, 5, 9, 12]
        cells.append(tuple(sum(low <= number < high for number in numbers) for low, high in pairwise(ends)))
    assert [one.cells for one in found.workers] == cells and found.complete


@pytest.mark.mission("B3.waste")
def test_sharding_by_data_reads_all_files_on_every_worker(tmp_path: Path) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, 4, 4)).batch(4)
    found = divided(dataset, workers=2, policy="DATA")
    assert found.complete and found.read_over_used == 2.0
    source = live.read(tf.data.TextLineDataset(lines(tmp_path, 4, 4)).enumerate().batch(4))
    hidden = measure_worker_coverage(source, WorkerJob(2, "AUTO"))
    assert hidden.policy == "DATA" and not source.pipeline[hidden.stopped_at].inputs, "what counts them is no file"
    assert [one.cells for one in found.workers] == [(2, 2), (2, 2)]
    by_file = divided(dataset, workers=2, policy="AUTO")
    assert by_file.read_over_used == 1.0 and [one.cells for one in by_file.workers] == [(4, 0), (0, 4)]


@pytest.mark.sample(1)
@pytest.mark.mission("B8.stateful")
@pytest.mark.parametrize("read", [False, True])
def test_unseeded_shuffle_before_sharding_by_data_loses_and_repeats_elements(tmp_path: Path, read: bool) -> None:
    """Observed with two real workers: of range(16).shuffle(16) five elements reached neither, and five both."""
    source = tf.data.TextLineDataset(lines(tmp_path, 300, 300)) if read else Data.range(600)
    unseeded = divided(source.map(tf.identity).shuffle(600).map(tf.identity).batch(4), workers=2, policy="DATA")
    assert unseeded.never == unseeded.twice and 75 < unseeded.never < 225, "about a quarter"
    assert divided(source.shuffle(600, seed=7).batch(4), workers=2, policy="DATA").complete, "one order for all"
    assert divided(source.shuffle(600).batch(4), workers=1, policy="DATA").complete
    tf.random.set_seed(1)
    assert divided(source.shuffle(600).batch(4), workers=2, policy="DATA").complete
    if read:
        assert divided(source.shuffle(600).batch(4), workers=2, policy="FILE").complete, "shuffled by itself alone"


FIRST, SECOND = ({"own_index": index, "queries_index": True} for index in (0, 1))


@pytest.mark.parametrize(
    ("made", "job", "expected"),
    [
        (lambda: Data.range(12), {"workers": 2}, (0, 0, 12, 0)),
        (lambda: Data.range(12), {"workers": 3}, (0, 0, 0, 12)),
        (lambda: Data.range(12).shard(3, 1), {"workers": 3, **SECOND}, (0, 12, 0, 0)),
        (lambda: Data.range(12).shard(4, 1), {"workers": 2, **SECOND}, (6, 6, 0, 0)),
        (lambda: Data.range(12).shard(2, 0), {"workers": 2, "own_index": 0}, (6, 0, 6, 0)),  # the same on all
        (lambda: Data.range(12).shard(2, 1).repeat(3).shuffle(5), {"workers": 2, **SECOND}, (0, 12, 0, 0)),
        (lambda: Data.range(16).shard(2, 0), {"workers": 2, "policy": "AUTO", **FIRST}, (8, 8, 0, 0)),  # divided again
        (lambda: Data.range(16).shard(2, 0), {"workers": 2, "policy": "OFF", **FIRST}, (0, 16, 0, 0)),
    ],
)
def test_coverage_of_datasets_that_the_script_divides(
    made: Callable[[], Any], job: dict[str, Any], expected: tuple[int, ...]
) -> None:
    found = divided(made().batch(4), **job)
    assert (found.never, found.once, found.twice, found.oftener) == expected


@pytest.mark.mission("B3.idle", "B7.lost")
def test_first_exhausted_idle_workers_and_short_batches_are_counted(tmp_path: Path) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, 9, 1)).batch(4)
    found = divided(dataset, workers=2, policy="FILE")
    assert [(one.batches, one.short_batches) for one in found.workers] == [(5, 1), (1, 1)]  # of two rows each
    assert (found.first_out, found.idle_workers) == (1, ())
    idle = divided(tf.data.TextLineDataset(lines(tmp_path, 4, 0)).batch(4), workers=2, policy="FILE")
    assert idle.idle_workers == (1,)


@pytest.mark.parametrize(
    ("made", "job", "why"),
    [
        (lambda: Data.range(9).batch(3), {"queries_index": True}, "queries its worker index"),
        (lambda: Data.range(9).shard(2, 0).batch(3), SECOND, "is not"),
        (lambda: Data.range(9).shard(1, 0).batch(3), {**SECOND, "own_index": 0}, "fewer than 2 parts"),
        (lambda: Data.range(9).batch(3).take(2), {"policy": "AUTO"}, "operator after the last `batch` selects, joins"),
        (lambda: Data.range(9), {"policy": "AUTO"}, "has no `batch"),
        (lambda: Data.range(50).shuffle(50).take(20).batch(5), {}, "at random"),
        (lambda: Data.range(9).map(lambda x: 1 // (x - x)).filter(lambda x: x > 0).batch(3), {}, "does not run"),
    ],
)
def test_unknown_coverage_has_a_reason(made: Callable[[], Any], job: dict[str, Any], why: str) -> None:
    found = measure_worker_coverage(live.read(made()), WorkerJob(workers=2, **job))
    assert found.coverage is None and not found.refused and why in found.why


@pytest.mark.mission("B3.idle")
def test_dataset_that_tensorflow_refuses_to_shard_is_refused(tmp_path: Path) -> None:
    source = live.read(tf.data.TextLineDataset(lines(tmp_path, 5)).batch(2))
    for policy in ("FILE", "AUTO"):
        found = measure_worker_coverage(source, WorkerJob(workers=2, policy=policy))
        assert found.refused and found.policy == "FILE" and "fewer files than workers" in found.why
    memory = measure_worker_coverage(live.read(Data.range(8).batch(2)), WorkerJob(workers=2, policy="FILE"))
    assert memory.refused and "finds none to divide" in memory.why


@pytest.mark.parametrize(("policy", "expected"), [("AUTO", (0, 9, 0)), ("OFF", (0, 0, 9)), ("", (0, 0, 9))])
def test_coverage_of_long_datasets_is_computed(
    monkeypatch: pytest.MonkeyPatch, policy: str, expected: tuple[int, ...]
) -> None:
    dataset = Data.range(9).map(lambda x: x + 1).batch(4)
    counted = divided(dataset, workers=2, policy=policy)
    monkeypatch.setattr(counting, "MOST_COUNTED", 5)
    computed = divided(dataset, workers=2, policy=policy)
    assert (computed.never, computed.once, computed.twice) == expected
    assert (counted.told_by, computed.told_by) == (ElementIdentity.INDEX, ElementIdentity.ARITHMETIC)
    assert [replace(one, read=None) for one in computed.workers] == [replace(one, read=None) for one in counted.workers]
    shard = measure_worker_coverage(live.read(Data.range(9).shard(2, 0).batch(2)), WorkerJob(2, policy))
    assert shard.coverage is None and "more than 5" in shard.why, "a shard of the script's own is not followed"


@pytest.mark.parametrize(("policy", "each_reads_all"), [("AUTO", False), ("DATA", True), ("OFF", True)])
def test_files_too_long_to_count_have_their_bytes(tmp_path: Path, policy: str, each_reads_all: bool) -> None:
    names = lines(tmp_path, 9, 1, 30)
    source = live.read(tf.data.TextLineDataset(names).filter(lambda line: line != "").batch(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(original, "MOST_BYTES", 10)
        found = measure_worker_coverage(source, WorkerJob(2, policy))
    assert found.coverage is None and "too long" in found.why
    assert (found.files, found.file_bytes) == (3, sum(Path(name).stat().st_size for name in names))
    assert found.each_reads_all is each_reads_all
    memory = measure_worker_coverage(live.read(Data.range(10**12).batch(4)), WorkerJob(2, policy))
    assert (memory.files, memory.file_bytes, memory.each_reads_all) == (0, None, False)
