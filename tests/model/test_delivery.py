"""The guide's twelve elements under every policy, and properties for all sizes, files, workers and replicas."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipetune.core.errors import PipetuneError
from pipetune.model.delivery import ReplicaDelivery, dataset_delivery, function_delivery
from pipetune.model.sharding import AutoShardPolicy, Rebatching

FILE, DATA, OFF = AutoShardPolicy.FILE, AutoShardPolicy.DATA, AutoShardPolicy.OFF

FILES = st.lists(st.integers(0, 15), min_size=1, max_size=6)
BATCH = st.integers(1, 20)
WORKERS = st.integers(1, 4)
REPLICAS = st.integers(1, 3)
POLICY = st.sampled_from([FILE, DATA, OFF])


def of(delivery: ReplicaDelivery, worker: int) -> list[list[list[int]]]:
    """The elements by step and replica."""
    mine = delivery.workers[worker]
    return [
        [list(mine.elements(step, replica)) for replica in range(delivery.replicas_per_worker)]
        for step in range(delivery.steps)
    ]


def alone(delivery: ReplicaDelivery) -> list[list[list[int]]]:
    """The elements by worker and step, for one replica per worker."""
    return [[replica for (replica,) in of(delivery, worker)] for worker in range(len(delivery.workers))]


def made(
    files: list[int], batch: int, workers: int, replicas: int, policy: AutoShardPolicy, **more: Any
) -> ReplicaDelivery:
    """A delivery, with policy DATA instead of FILE if there are too few files."""
    if policy is FILE and len(files) < workers:
        policy = DATA
    return dataset_delivery(files, batch, workers=workers, replicas_per_worker=replicas, policy=policy, **more)


@dataclass(frozen=True)
class ElementCounts:
    """How often the elements of the data are delivered, over all workers."""

    never: int
    once: int
    repeated: int
    most_deliveries: int


def coverage(delivery: ReplicaDelivery) -> ElementCounts:
    times = delivery.delivery_counts()
    never, once = times.count(0), times.count(1)
    return ElementCounts(never, once, delivery.elements - never - once, max(times, default=0))


@pytest.mark.mission("B3.examples")
class TestTwelveElements:
    """The examples of the section "Sharding": batches of 4, two workers with one replica each."""

    def test_two_files_by_file(self) -> None:
        guide = dataset_delivery([6, 6], 4, workers=2, policy=FILE, batch_size_known=False)
        assert alone(guide) == [[[0, 1], [2, 3], [4], [5]], [[6, 7], [8, 9], [10], [11]]]
        assert guide.steps == 4
        assert [(one.read, one.delivered_elements) for one in guide.workers] == [(6, 6)] * 2

    def test_two_files_by_file_with_known_batch_size(self) -> None:
        found = dataset_delivery([6, 6], 4, workers=2, policy=FILE)
        assert alone(found) == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
        assert found.step_sizes == (4, 4, 4)

    def test_one_file_by_data(self) -> None:
        guide = dataset_delivery([12], 4, workers=2, policy=DATA)
        assert alone(guide) == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]
        assert [(one.read, one.delivered_elements) for one in guide.workers] == [(12, 6)] * 2

    def test_one_file_unsharded(self) -> None:
        guide = dataset_delivery([12], 4, workers=2, policy=OFF)
        assert alone(guide) == [[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]] * 2
        assert coverage(guide) == ElementCounts(never=0, once=0, repeated=12, most_deliveries=2)

    def test_one_file_by_file_is_rejected(self) -> None:
        for policy in (FILE, AutoShardPolicy.AUTO):
            with pytest.raises(PipetuneError, match="1 file cannot be divided over 2 workers"):
                dataset_delivery([12], 4, workers=2, policy=policy)


@pytest.mark.parametrize(
    ("elements", "replicas", "expected"),
    [
        (6, 2, [[[0, 1], [2, 3]], [[4], [5]]]),
        (4, 5, [[[0], [1], [2], [3], []]]),
        (8, 3, [[[0, 1], [2, 3], []], [[4, 5], [6, 7], []]]),
    ],
)
@pytest.mark.mission("B2.examples")
def test_batches_of_four_in_guide(elements: int, replicas: int, expected: list[list[list[int]]]) -> None:
    found = dataset_delivery([elements], 4, replicas_per_worker=replicas, from_files=False)
    assert of(found, 0) == expected


def test_replicas_of_one_worker_get_every_second_part_by_data() -> None:
    """As measured: TensorFlow shards the minibatches of all replicas, independent of their worker."""
    found = dataset_delivery([16], 8, workers=2, replicas_per_worker=2, policy=DATA)
    assert of(found, 0) == [[[0, 1], [4, 5]], [[8, 9], [12, 13]]]
    assert of(found, 1) == [[[2, 3], [6, 7]], [[10, 11], [14, 15]]]


@pytest.mark.mission("B7.empty")
def test_worker_with_little_data_gets_dummy_batches() -> None:
    found = dataset_delivery([7, 1, 3], 5, workers=3, replicas_per_worker=2, policy=FILE)
    assert of(found, 1) == [[[7], []], [[], []], [[], []], [[], []]]
    assert found.step_sizes == (4, 4, 1, 2)
    assert found.first_out == 1
    assert [one.dummies for one in found.workers] == [0, 7, 4]
    assert [one.empty_minibatches for one in found.workers] == [1, 7, 5]
    assert found.messages == 5
    assert not found.balanced


def test_each_worker_drops_its_own_remainder_by_file() -> None:
    found = dataset_delivery([7, 1, 3], 3, workers=2, replicas_per_worker=2, policy=FILE, drop_remainder=True)
    assert found.delivered == 9
    assert found.idle_workers == (1,)
    assert coverage(found) == ElementCounts(never=2, once=9, repeated=0, most_deliveries=1)
    assert dataset_delivery([4, 4], 5, workers=2, policy=FILE, drop_remainder=True).delivered == 0
    assert dataset_delivery([4, 4], 5, workers=2, policy=DATA, drop_remainder=True).delivered == 5


def test_one_replica_gets_original_batches() -> None:
    found = dataset_delivery([6], 4)
    assert of(found, 0) == [[[0, 1, 2, 3]], [[4, 5]]]
    assert found.rebatching is None and found.messages == 0


def test_batches_of_function_go_to_replicas_in_turn() -> None:
    found = function_delivery([11], 2, replicas_per_worker=3)
    assert of(found, 0) == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10]]]
    assert found.global_batch == 6 and found.step_sizes == (6, 5)


def test_fixed_shapes_lose_batches_of_incomplete_step() -> None:
    """As measured: one worker, `drop_remainder`, five batches for three replicas."""
    found = function_delivery([11], 2, replicas_per_worker=3, drop_remainder=True)
    assert of(found, 0) == [[[0, 1], [2, 3], [4, 5]]]
    assert (found.workers[0].lost_minibatches, found.workers[0].dummies) == (2, 0)
    assert coverage(found).never == 5
    several = function_delivery([11], 2, workers=2, drop_remainder=True)
    assert [one.lost_minibatches for one in several.workers] == [0, 0]
    assert several.messages == several.steps + 1


def test_function_with_too_few_files_leaves_worker_idle() -> None:
    found = function_delivery([6, 6], 2, workers=3, policy=FILE)
    assert found.idle_workers == (2,)
    assert coverage(found) == ElementCounts(never=0, once=12, repeated=0, most_deliveries=1)
    assert function_delivery([6, 6], 2, workers=3, policy=DATA).idle_workers == ()


def test_endless_data_repeats_smaller_shard_more_often() -> None:
    found = dataset_delivery([6, 2], 4, workers=2, policy=FILE, steps=3)
    assert alone(found) == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [6, 7], [6, 7]]]
    assert found.messages == 0 and found.first_out is None
    assert coverage(found) == ElementCounts(never=0, once=6, repeated=2, most_deliveries=3)


def test_endless_data_without_elements_has_no_steps() -> None:
    """`repeat` of an empty dataset ends at once, and then the first step fails on that worker."""
    assert dataset_delivery([6, 0], 4, workers=2, policy=FILE, steps=3).steps == 0


def test_policy_auto_is_rejected_for_functions() -> None:
    with pytest.raises(ValueError, match="dataset_fn"):
        function_delivery([6], 2, policy=AutoShardPolicy.AUTO)


def test_sizes_below_one_are_rejected() -> None:
    for wrong in ({"global_batch": 0}, {"workers": 0}, {"replicas_per_worker": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            dataset_delivery([6], **{"global_batch": 4, **wrong})


@given(FILES, BATCH, WORKERS, REPLICAS, POLICY, st.booleans())
def test_each_element_is_delivered_once_or_to_every_worker(
    files: list[int], batch: int, workers: int, replicas: int, policy: AutoShardPolicy, known: bool
) -> None:
    found = made(files, batch, workers, replicas, policy, batch_size_known=known)
    times = workers if found.policy is OFF else 1
    total = sum(files)
    seen = Counter(element for one in range(workers) for step in of(found, one) for part in step for element in part)
    assert seen == dict.fromkeys(range(total), times)
    assert found.delivered == sum(found.step_sizes) == times * total
    expected = ElementCounts(0, total if times == 1 else 0, total if times > 1 else 0, times if total else 0)
    assert coverage(found) == expected


@given(FILES, BATCH, WORKERS, REPLICAS, POLICY, st.booleans(), st.booleans())
def test_invariants_of_steps(
    files: list[int], batch: int, workers: int, replicas: int, policy: AutoShardPolicy, known: bool, drop: bool
) -> None:
    found = made(files, batch, workers, replicas, policy, batch_size_known=known, drop_remainder=drop)
    largest = math.ceil(batch / (workers * replicas))
    assert len({len(one.steps) for one in found.workers}) == 1
    for index, one in enumerate(found.workers):
        assert all(len(step) == replicas and max(step) <= largest for step in one.sizes)
        assert one.lost_minibatches == 0 and 0 <= one.dummies <= one.empty_minibatches
        assert one.delivered_elements <= one.read
        order = [element for step in of(found, index) for part in step for element in part]
        assert order == sorted(order)
    assert all(size <= batch for size in found.step_sizes if found.policy is DATA)
    assert found.first_out is not None and found.first_out <= found.steps
    if found.policy is DATA and (drop or sum(files) % batch == 0):
        assert set(found.step_sizes) <= {batch}


@given(FILES, BATCH, WORKERS, REPLICAS)
def test_full_batches_split_evenly_give_full_steps(files: list[int], batch: int, workers: int, replicas: int) -> None:
    """Except for last steps without elements, which are caused by sizes of 0 (`rebatching.even`)."""
    found = made(files, batch, workers, replicas, OFF, drop_remainder=True)
    full = workers * (sum(files) // batch)
    assert found.step_sizes == (batch,) * full + (0,) * (found.steps - full)
    assert found.steps - full < workers
    assert found.steps == full or batch < workers * replicas


@given(FILES, BATCH, WORKERS, REPLICAS, st.booleans())
def test_sharding_by_data_keeps_number_of_steps(
    files: list[int], batch: int, workers: int, replicas: int, drop: bool
) -> None:
    total = sum(files)
    found = made(files, batch, workers, replicas, DATA, drop_remainder=drop)
    assert found.steps == (total // batch if drop else math.ceil(total / batch))
    assert found.balanced
    assert sum(one.dummies for one in found.workers) == 0
    assert all(one.read == total for one in found.workers)


@given(FILES, BATCH, WORKERS, REPLICAS, POLICY, st.integers(1, 6))
def test_endless_data_gives_full_steps_to_all_workers(
    files: list[int], batch: int, workers: int, replicas: int, policy: AutoShardPolicy, steps: int
) -> None:
    files = [size + 1 for size in files]
    found = made(files, batch, workers, replicas, policy, steps=steps)
    assert found.step_sizes == (batch,) * steps
    assert found.balanced and found.messages == 0
    assert sum(one.dummies for one in found.workers) == 0
    if found.policy is DATA and steps * batch <= sum(files):
        assert coverage(found).most_deliveries == 1


@given(FILES, st.integers(1, 6), WORKERS, REPLICAS, POLICY, st.booleans())
def test_invariants_of_functions(
    files: list[int], batch: int, workers: int, replicas: int, policy: AutoShardPolicy, drop: bool
) -> None:
    found = function_delivery(
        files, batch, workers=workers, replicas_per_worker=replicas, policy=policy, drop_remainder=drop
    )
    counts = coverage(found)
    assert counts.most_deliveries <= (workers if policy is OFF else 1)
    assert counts.never == 0 or drop
    for one in found.workers:
        assert all(max(step) <= batch for step in one.sizes)
        assert one.minibatches + one.dummies == one.lost_minibatches + sum(map(len, one.sizes))
        assert one.read == (one.stream.size if policy is not DATA else sum(files))


def test_rebatching_by_policy() -> None:
    ways = {policy: made([3, 3], 4, 2, 1, policy).rebatching for policy in (FILE, DATA, OFF)}
    assert ways == {FILE: Rebatching.STREAM, DATA: Rebatching.PER_BATCH, OFF: Rebatching.STREAM}
