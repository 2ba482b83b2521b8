"""What each worker gets of a script's own pipeline: under a strategy, and where each process is on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipetune.core.coverage import Coverage, Identity
from pipetune.model.distributing import dataset_delivery
from pipetune.model.sharding import AutoShardPolicy

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.tf import private
from pipetune.tf.measure.as_written import divide
from pipetune.tf.measure.worker_pipelines import Job
from pipetune.tf.pipelines import live
from pipetune.tf.standalone import counting

Data = tf.data.Dataset


def lines(folder: Path, *counts: int) -> list[str]:
    number, names = 0, []
    for index, count in enumerate(counts):
        path = folder / f"part{index}"
        path.write_text("".join(f"{number + line}\n" for line in range(count)))
        number += count
        names.append(str(path))
    return names


def divided(dataset: Any, **job: Any) -> Coverage:
    found = divide(live.read(dataset), Job(**job))
    assert found.coverage is not None, found.why
    return found.coverage


@pytest.mark.parametrize(
    ("policy", "counts", "batch", "workers", "replicas"),
    [
        ("AUTO", (6, 6), 4, 2, 2),
        ("FILE", (5, 1, 3, 4), 4, 2, 1),
        ("DATA", (5, 1, 3, 4), 4, 2, 1),
        ("DATA", (7, 2, 3, 1), 3, 4, 1),
        ("OFF", (5, 1, 3, 4), 4, 2, 1),
    ],
)
@pytest.mark.mission("B3.examples")
def test_under_a_strategy_it_is_what_the_arithmetic_says(
    tmp_path: Path, policy: str, counts: tuple[int, ...], batch: int, workers: int, replicas: int
) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, *counts)).map(tf.strings.length).batch(batch)
    found = divided(dataset, workers=workers, policy=policy, replicas_per_worker=replicas)
    wanted = dataset_delivery(
        counts, batch, workers=workers, replicas_per_worker=replicas, policy=AutoShardPolicy(policy.lower())
    )
    expected = wanted.coverage()
    assert (found.elements, found.never, found.once, found.repeated) == (
        sum(counts), expected.never, expected.once, expected.repeatedly
    )  # fmt: skip
    assert found.told_by is Identity.NUMBER, "lines of equal length are told apart"
    assert [one.elements for one in found.workers] == [one.kept for one in wanted.workers]
    assert [one.batches for one in found.workers] == [one.minibatches for one in wanted.workers]
    assert [one.read for one in found.workers] == [one.read for one in wanted.workers]
    assert found.by_file and found.cells == counts


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
def test_files_are_divided_as_tensorflow_divides_them(tmp_path: Path, read: Any) -> None:
    workers = 3
    names = lines(tmp_path, 3, 2, 4, 3)
    dataset = read(names).map(tf.strings.to_number).batch(2)
    found = divided(dataset, workers=workers, policy="AUTO")
    cells = []
    for worker in range(workers):
        mine = private.pipeline_of_worker(dataset, workers=workers, worker=worker, replicas=workers)
        numbers = [int(number) for batch in mine.as_numpy_iterator() for number in batch]
        ends = [0, 3, 5, 9, 12]
        cells.append(tuple(sum(low <= number < high for number in numbers) for low, high in pairwise(ends)))
    assert [one.cells for one in found.workers] == cells and found.complete


@pytest.mark.mission("B3.waste")
def test_by_data_each_worker_reads_what_the_other_uses(tmp_path: Path) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, 4, 4)).batch(4)
    found = divided(dataset, workers=2, policy="DATA")
    assert found.complete and found.read_over_used == 2.0
    source = live.read(tf.data.TextLineDataset(lines(tmp_path, 4, 4)).enumerate().batch(4))
    hidden = divide(source, Job(2, "AUTO"))
    assert hidden.policy == "DATA" and not source.pipeline[hidden.stopped_at].inputs, "what counts them is no file"
    assert [one.cells for one in found.workers] == [(2, 2), (2, 2)]
    by_file = divided(dataset, workers=2, policy="AUTO")
    assert by_file.read_over_used == 1.0 and [one.cells for one in by_file.workers] == [(4, 0), (0, 4)]


@pytest.mark.mission("B8.stateful")
@pytest.mark.parametrize("read", [False, True])
def test_workers_that_shuffle_by_themselves_divide_orders_of_their_own(tmp_path: Path, read: bool) -> None:
    """Seen with two real workers: of range(16).shuffle(16) five came to nobody, and five to both."""
    source = tf.data.TextLineDataset(lines(tmp_path, 300, 300)) if read else Data.range(600)
    unseeded = divided(source.map(tf.identity).shuffle(600).map(tf.identity).batch(4), workers=2, policy="DATA")
    assert unseeded.never == unseeded.twice and 75 < unseeded.never < 225, "about a quarter"
    assert divided(source.shuffle(600, seed=7).batch(4), workers=2, policy="DATA").complete, "one order for all"
    assert divided(source.shuffle(600).batch(4), workers=1, policy="DATA").complete
    tf.random.set_seed(1)
    assert divided(source.shuffle(600).batch(4), workers=2, policy="DATA").complete
    if read:
        assert divided(source.shuffle(600).batch(4), workers=2, policy="FILE").complete, "shuffled by itself alone"


def test_a_shard_of_the_script_that_a_strategy_shards_again_leaves_data_out() -> None:
    dataset = Data.range(16).shard(2, 0).batch(4)
    found = divided(dataset, workers=2, policy="AUTO", own_index=0, asks=True)
    assert (found.elements, found.never, found.once) == (16, 8, 8)
    assert divided(dataset, workers=2, policy="OFF", own_index=0, asks=True).complete


@pytest.mark.parametrize(
    ("made", "job", "expected"),
    [
        (lambda: Data.range(12), {"workers": 2}, (0, 0, 12, 0)),
        (lambda: Data.range(12), {"workers": 3}, (0, 0, 0, 12)),
        (lambda: Data.range(12).shard(3, 1), {"workers": 3, "own_index": 1, "asks": True}, (0, 12, 0, 0)),
        (lambda: Data.range(12).shard(4, 1), {"workers": 2, "own_index": 1, "asks": True}, (6, 6, 0, 0)),
        (lambda: Data.range(12).shard(2, 0), {"workers": 2, "own_index": 0}, (6, 0, 6, 0)),  # the same on all
        (lambda: Data.range(12).shard(2, 1).repeat(3).shuffle(5), {"workers": 2, "own_index": 1, "asks": True},
         (0, 12, 0, 0)),
    ],
)  # fmt: skip
def test_processes_that_each_read_for_themselves(
    made: Callable[[], Any], job: dict[str, Any], expected: tuple[int, ...]
) -> None:
    found = divided(made().batch(4), **job)
    assert (found.never, found.once, found.twice, found.oftener) == expected


@pytest.mark.mission("B3.idle", "B7.lost")
def test_steps_until_the_first_is_out_and_short_batches(tmp_path: Path) -> None:
    dataset = tf.data.TextLineDataset(lines(tmp_path, 9, 1)).batch(4)
    found = divided(dataset, workers=2, policy="FILE")
    assert [(one.batches, one.short_batches) for one in found.workers] == [(5, 1), (1, 1)]  # of two rows each
    assert (found.first_out, found.idle_workers) == (1, ())
    idle = divided(tf.data.TextLineDataset(lines(tmp_path, 4, 0)).batch(4), workers=2, policy="FILE")
    assert idle.idle_workers == (1,)


@pytest.mark.parametrize(
    ("made", "job", "why"),
    [
        (lambda: Data.range(9).batch(3), {"asks": True}, "asks which worker it is"),
        (lambda: Data.range(9).shard(2, 0).batch(3), {"asks": True, "own_index": 1}, "does not follow the number"),
        (lambda: Data.range(9).shard(1, 0).batch(3), {"asks": True, "own_index": 0}, "no part for 2 workers"),
        (lambda: Data.range(9).batch(3).take(2), {"policy": "AUTO"}, "Whole batches are taken"),
        (lambda: Data.range(9), {"policy": "AUTO"}, "does not batch"),
        (lambda: Data.range(50).shuffle(50).take(20).batch(5), {}, "at random"),
        (lambda: Data.range(9).map(lambda x: 1 // (x - x)).filter(lambda x: x > 0).batch(3), {}, "does not run"),
    ],
)
def test_what_cannot_be_found_out_says_why(made: Callable[[], Any], job: dict[str, Any], why: str) -> None:
    found = divide(live.read(made()), Job(workers=2, **job))
    assert found.coverage is None and not found.refused and why in found.why


@pytest.mark.mission("B3.idle")
def test_what_tensorflow_refuses_is_told_apart_from_what_is_not_known(tmp_path: Path) -> None:
    source = live.read(tf.data.TextLineDataset(lines(tmp_path, 5)).batch(2))
    for policy in ("FILE", "AUTO"):
        found = divide(source, Job(workers=2, policy=policy))
        assert found.refused and found.policy == "FILE" and "fewer of them than workers" in found.why
    memory = divide(live.read(Data.range(8).batch(2)), Job(workers=2, policy="FILE"))
    assert memory.refused and "finds none to divide" in memory.why


@pytest.mark.parametrize(("policy", "expected"), [("AUTO", (0, 9, 0)), ("OFF", (0, 0, 9)), ("", (0, 0, 9))])
def test_what_is_too_long_to_be_counted_follows_from_the_arithmetic(
    monkeypatch: pytest.MonkeyPatch, policy: str, expected: tuple[int, ...]
) -> None:
    dataset = Data.range(9).map(lambda x: x + 1).batch(4)
    counted = divided(dataset, workers=2, policy=policy)
    monkeypatch.setattr(counting, "MOST_COUNTED", 5)
    computed = divided(dataset, workers=2, policy=policy)
    assert (computed.never, computed.once, computed.twice) == expected
    assert (counted.told_by, computed.told_by) == (Identity.NUMBER, Identity.ARITHMETIC)
    assert [replace(one, read=None) for one in computed.workers] == [replace(one, read=None) for one in counted.workers]
    shard = divide(live.read(Data.range(9).shard(2, 0).batch(2)), Job(2, policy))
    assert shard.coverage is None and "more than 5" in shard.why, "a shard of the script's own is not followed"


@pytest.mark.parametrize(("policy", "each_reads_all"), [("AUTO", False), ("DATA", True), ("OFF", True)])
def test_what_is_too_long_to_be_counted_is_weighed(tmp_path: Path, policy: str, each_reads_all: bool) -> None:
    names = lines(tmp_path, 9, 1, 30)
    source = live.read(tf.data.TextLineDataset(names).filter(lambda line: line != "").batch(4))
    found = divide(source, Job(2, policy), most_bytes=10)
    assert found.coverage is None and "too long" in found.why
    assert (found.files, found.file_bytes) == (3, sum(Path(name).stat().st_size for name in names))
    assert found.each_reads_all is each_reads_all
    memory = divide(live.read(Data.range(10**12).batch(4)), Job(2, policy))
    assert (memory.files, memory.file_bytes, memory.each_reads_all) == (0, None, False)
