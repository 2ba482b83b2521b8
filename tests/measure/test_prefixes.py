"""Prefixes of pipelines: they run in one thread, produce every element, and have the expected visits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.profile import OperatorProfile, Stage
from pipetune.measure import prefixes
from pipetune.pipelines import live
from tests.measure.test_profiler import write_records

Dataset = tf.data.Dataset


def cut(dataset: Any, folder: Path, *, full_caches: bool = False, **costs: float) -> prefixes.Prefixes:
    """The prefixes; `costs` are microseconds by node id in a quick profile, one visit each."""
    operators = {
        name: OperatorProfile(name, Stage.TRANSFORM, cost * 1e-6, cost * 1e-6, visits=1.0)
        for name, cost in costs.items()
    }
    return prefixes.cut(live.read(dataset), operators, str(folder), full_caches=full_caches)


def test_every_nth_element_computes_all_elements() -> None:
    made = tf.Variable(0, dtype=tf.int64)
    dataset = Dataset.range(10).map(lambda x: made.assign_add(1)).repeat()
    iterator = iter(prefixes.every_nth_element(dataset, 7, prefixes.plain_options(dataset)))
    for calls in (1, 2, 3):
        assert int(next(iterator)) == int(made) == 7 * calls


def test_source_that_supports_skipping_is_read(tmp_path: Path) -> None:
    """A corrupt record raises an error, which it would not if records were skipped."""
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(8):
            writer.write(b"x" * 50)
    data = bytearray(path.read_bytes())
    data[3 * 66 + 20] ^= 0xFF
    path.write_bytes(bytes(data))
    dataset = tf.data.TFRecordDataset(str(path))
    iterator = iter(prefixes.every_nth_element(dataset, 5, prefixes.plain_options(dataset)))
    with pytest.raises(tf.errors.DataLossError):
        for _ in range(8):
            next(iterator)


def kinds(dataset: Any) -> list[str]:
    """The classes of a dataset and of all upstream of it."""
    return [*(kind for above in dataset._inputs() for kind in kinds(above)), type(dataset).__name__]


def test_prefixes_have_no_parallelism_or_prefetching_and_the_options_of_the_pipeline(tmp_path: Path) -> None:
    records = tf.data.TFRecordDataset(write_records(tmp_path), num_parallel_reads=2)
    dataset = records.map(tf.strings.length, num_parallel_calls=2)
    dataset = dataset.prefetch(3).batch(2, num_parallel_calls=2).prefetch(tf.data.AUTOTUNE)
    own = tf.data.Options()
    own.threading.max_intra_op_parallelism = 3
    own.experimental_optimization.map_parallelization = True
    found = cut(dataset.with_options(own), tmp_path)
    assert [node.op for node in found.pipeline] == ["TFRecordDataset", "map", "batch", "with_options"]
    run = kinds(found.datasets[found.pipeline.output.id])
    assert not any("Parallel" in kind or "Prefetch" in kind for kind in run)
    options = found.every_nth("n3", 1).options()
    assert options.experimental_optimization.map_parallelization is False
    assert options.experimental_optimization.inject_prefetch is False
    assert options.threading.max_intra_op_parallelism == 3


def test_visits_follow_from_known_ratios(tmp_path: Path) -> None:
    dataset = Dataset.range(100).map(lambda x: x).shuffle(10).take(90).batch(20).repeat(2).prefetch(1)
    found = cut(dataset, tmp_path)
    assert found.visits("n4") == {"n4": 1, "n3": 18, "n2": 18, "n1": 18, "n0": 18}  # 90 in five batches
    written = found.visits("n6", live.read(dataset).pipeline)
    assert written["n6"] == written["n5"] == written["n4"] == 1 and written["n0"] == 18
    assert found.measured_nodes == ("n0", "n1", "n2", "n4")  # take, repeat and prefetch only pass elements on
    assert found.nodes_to_count() == ()


def test_parts_of_different_length_that_follow_each_other_are_visited_by_their_share(tmp_path: Path) -> None:
    first, second = Dataset.range(30).map(lambda x: x), Dataset.range(10).map(lambda x: x)
    found = cut(first.concatenate(second).batch(4), tmp_path)
    assert {"n5": 1, "n4": 4, "n1": 3, "n3": 1}.items() <= found.visits("n5").items()
    assert found.nodes_to_count() == ()


def test_skipped_elements_are_counted_unless_the_source_skips_them(tmp_path: Path) -> None:
    numbers = Dataset.range(100)
    mapped = numbers.map(lambda x: x)
    for dataset, visits in (
        (numbers.shard(4, 1), {"n0": 1}),
        (mapped.shard(4, 1), {"n1": 4}),
        (numbers.skip(60), {"n0": 1}),
        (mapped.skip(60).batch(4), {"n3": 1, "n2": 4, "n1": 10, "n0": 10}),
        (mapped.repeat().skip(60), {"n2": 1}),  # endless: they are skipped once
    ):
        found = cut(dataset, tmp_path)
        assert visits.items() <= found.visits(found.pipeline.output.id).items()


def test_negligible_operators_are_not_measured(tmp_path: Path) -> None:
    dataset = Dataset.range(100).map(lambda x: x).map(lambda x: x)
    assert cut(dataset, tmp_path, n0=0.1, n1=100.0, n2=50.0).measured_nodes == ("n1", "n2")
    assert cut(dataset, tmp_path, n0=0.1, n1=100.0).measured_nodes == ("n1", "n2")  # the cost of n2 is unknown


def counts(dataset: Any, node: str, folder: Path, elements: int) -> dict[str, float]:
    found = cut(dataset, folder)
    (operator,) = (one for one in found.nodes_to_count() if one.id == node)
    counted, read = prefixes.counting_prefix(found, live.read(dataset), operator)
    iterator = iter(prefixes.every_nth_element(counted.repeat(), 1, found.options))
    for _ in range(elements):
        next(iterator)
    return {name: count / elements for name, count in read().items()}


def test_unknown_ratios_are_counted_by_running(tmp_path: Path) -> None:
    numbers = Dataset.range(1200).map(lambda x: x)
    third = numbers.filter(lambda x: x % 3 == 2)
    assert counts(third, "n2", tmp_path, 400) == {"n1": 3, "": 1}
    several = numbers.flat_map(lambda x: Dataset.range(4))
    assert counts(several, "n2", tmp_path, 400) == {"n1": 0.25, "": 1}
    windows = numbers.window(8, shift=2, drop_remainder=True).flat_map(lambda part: part.batch(8))
    assert counts(windows, "n3", tmp_path, 100)["n2"] == pytest.approx(1, rel=0.05)
    choice = Dataset.range(3).map(lambda x: x % 2).repeat()
    mixed = Dataset.choose_from_datasets([numbers, numbers.map(lambda x: x)], choice)
    found = counts(mixed, next(node.id for node in live.read(mixed).pipeline if node.op == "choose"), tmp_path, 300)
    assert sorted(found.values())[-1] == 1


def test_datasets_chosen_from_are_visited_as_often_as_in_the_profile(tmp_path: Path) -> None:
    numbers = Dataset.range(100).map(lambda x: x)
    mixed = live.read(Dataset.sample_from_datasets([numbers, numbers.map(lambda x: x)]).batch(8))
    (choose,) = (node for node in mixed.pipeline if node.op == "choose")
    counted = dict(zip((choose.id, *choose.inputs), (1000, 1000, 300, 700), strict=True))
    operators = {name: OperatorProfile(name, Stage.TRANSFORM, elements=count) for name, count in counted.items()}
    found = prefixes.cut(mixed, operators, str(tmp_path))
    assert [found.visits(choose.id)[name] for name in choose.inputs] == pytest.approx([1.0, 1.0, 0.7])  # one feeds two
    assert choose.id not in {node.id for node in found.nodes_to_count()}


def test_cache_is_filled_with_a_sample(tmp_path: Path) -> None:
    made = tf.Variable(0, dtype=tf.int64)
    mine = str(tmp_path / "mine")
    work = tmp_path / "work"
    work.mkdir()
    dataset = Dataset.range(100_000).map(lambda x: made.assign_add(1)).cache(mine).map(lambda x: x + 1).batch(64)
    found = cut(dataset, work)
    found.fill()
    kept = int(made)
    assert 1 <= kept < 5000 and not list(tmp_path.glob("mine*"))
    iterator = iter(found.every_nth("n4", 100))
    assert next(iterator).shape == (64,)  # whole batches, also from a small sample
    assert int(made) == kept
    assert found.visits("n4") == {"n4": 1, "n3": 64, "n2": 64, "n1": 0, "n0": 0}
    assert "n1" in found.measured_nodes  # measured, although it does not run in later epochs


def test_shuffle_buffer_is_limited_by_the_time_to_fill_it(tmp_path: Path) -> None:
    dataset = Dataset.range(10**6).map(lambda x: x).shuffle(10**5).batch(2)
    assert cut(dataset, tmp_path, n0=1.0, n1=999.0, n2=1.0, n3=1.0).pipeline["n2"].argument("buffer_size") == 300
    small = Dataset.range(1000).shuffle(20).batch(2)
    assert cut(small, tmp_path, n0=1.0, n1=1.0, n2=1.0).pipeline["n1"].argument("buffer_size") == 20


def test_what_is_idle_behind_a_full_cache_has_no_prefix_and_does_not_run(tmp_path: Path) -> None:
    taken = tf.Variable(0, dtype=tf.int64)
    data = Dataset.range(8).map(lambda x: taken.assign_add(1), num_parallel_calls=2).prefetch(2).cache()
    dataset = data.shuffle(4).map(lambda x: x + 1, num_parallel_calls=2)
    for _ in data:
        pass
    found = cut(dataset, tmp_path, full_caches=True, n3=1, n4=1, n5=1)
    assert found.measured_nodes == ("n3", "n4", "n5")
    found.fill()
    for name in found.measured_nodes:
        next(iter(found.every_nth(name, 20)))
    assert int(taken) == 8
    assert found.visits("n5")["n3"] == 1.0 and found.visits("n5")["n2"] == 0.0
