"""Cost per operator: the operator it is attributed to, its visits, and its stage."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.measurement import RunFailed
from pipetune.core.profile import OperatorProfile
from pipetune.measure import profiler
from pipetune.measure.profiler import Counters, _operator_profiles, complete_counters
from pipetune.pipelines import live

Dataset = tf.data.Dataset


def profile(dataset: Any, *, seconds: float = 0.25) -> tuple[profiler.InputProfile, dict[str, OperatorProfile]]:
    """The profile and its operators by name: "map", "map 2" for the second."""
    source = live.read(dataset)
    found = profiler.profile_input(source, seconds=seconds)
    names: dict[str, OperatorProfile] = {}
    for node, operator in zip(source.pipeline, found.operators, strict=True):
        assert operator.node == node.id
        number = sum(name.split()[0] == node.op for name in names)
        names[f"{node.op} {number + 1}" if number else node.op] = operator
    return found, names


def busy(loops: int) -> Any:
    """A function whose kernels take a time proportional to `loops`, as a chain of ops."""

    def work(x: Any) -> Any:
        values = tf.fill([4000], tf.cast(x, tf.float32))
        for _ in range(loops):
            values = tf.sin(values) + 1.0
        return x + tf.cast(tf.reduce_sum(values) * 0.0, tf.int64)

    return work


@pytest.mark.one_core
def test_costs_of_the_operators_add_up_to_the_cpu_seconds_of_the_run() -> None:
    found, operators = profile(Dataset.range(60).map(busy(10)).filter(lambda x: x % 2 == 0).batch(3))
    charged = sum(one.visits * one.cpu_seconds for one in operators.values())
    assert charged == pytest.approx(found.cpu_seconds, rel=1e-6)
    assert found.cpu_seconds > 0 and not found.notes


@pytest.mark.one_core
def test_parallel_operators_are_profiled_at_parallelism_one() -> None:
    pipeline = profiler.at_parallelism_one(live.read(
        Dataset.range(60).map(busy(1), num_parallel_calls=2).batch(2, num_parallel_calls=tf.data.AUTOTUNE).take(9)
    ).pipeline)  # fmt: skip
    assert [node.argument("num_parallel_calls") for node in pipeline] == [None, 1, 1, None]
    assert dict(pipeline.options)["autotune.enabled"] is True
    _, operators = profile(Dataset.range(60).map(busy(5), num_parallel_calls=2).batch(4))
    assert operators["map"].cpu_seconds > operators["batch"].cpu_seconds / 4


def test_what_cannot_be_rebuilt_is_profiled_with_its_own_parallel_calls() -> None:
    parallel = Dataset.range(60).map(busy(1), num_parallel_calls=2)

    class Unknown(Dataset):  # type: ignore[misc, name-defined]
        element_spec = parallel.element_spec

        def __init__(self) -> None:
            super().__init__(parallel._variant_tensor)

        def _inputs(self) -> list[Any]:
            return [parallel]

    found, operators = profile(Unknown().batch(4))
    assert operators["batch"].visits == pytest.approx(1, rel=0.1)
    assert "as many parallel calls as the script makes" in found.notes[0]


def test_visits_ratios_and_bytes_of_operators() -> None:
    _, operators = profile(Dataset.range(64).map(busy(1)).filter(lambda x: x % 2 == 0).batch(4))
    assert operators["batch"].visits == pytest.approx(1, rel=0.05)
    assert operators["filter"].visits == pytest.approx(4, rel=0.1)
    assert operators["map"].visits == operators["range"].visits == pytest.approx(8, rel=0.1)
    assert operators["filter"].ratio == pytest.approx(2, rel=0.1)
    assert operators["batch"].ratio == pytest.approx(4, rel=0.1)
    assert operators["range"].ratio is None and operators["range"].bytes_in is None
    assert operators["batch"].bytes_out == pytest.approx(32, rel=0.1)
    assert operators["batch"].bytes_in == pytest.approx(32, rel=0.1)
    assert operators["map"].elements > operators["batch"].elements


def test_operators_upstream_of_ragged_batches_are_counted() -> None:
    _, operators = profile(Dataset.range(64).map(lambda x: tf.range(3 + x % 2)).ragged_batch(4))
    assert operators["to_ragged"].visits == operators["map"].visits == pytest.approx(4, rel=0.1)
    assert operators["map"].elements and operators["map"].bytes_out == pytest.approx(8 * 3.5, rel=0.1)


@pytest.mark.parametrize("count", [None, 3])
def test_operators_upstream_of_a_repeat_are_counted(count: int | None) -> None:
    """Each epoch creates them again, and with them the runtime's counters."""
    _, operators = profile(Dataset.range(6).map(busy(5)).repeat(count).batch(2))
    assert operators["repeat"].visits == pytest.approx(2, rel=0.1)
    assert operators["map"].visits == pytest.approx(2, rel=0.35)  # an epoch between two readings may be missed
    assert operators["map"].cpu_seconds > operators["repeat"].cpu_seconds


def write_records(folder: Path, files: int = 3, records: int = 20) -> list[str]:
    names = []
    for number in range(files):
        names.append(str(folder / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for _ in range(records):
                writer.write(b"x" * 100)
    return names


def test_readers_opened_by_an_interleave_belong_to_it(tmp_path: Path) -> None:
    files = Dataset.from_tensor_slices(write_records(tmp_path)).repeat()
    _, operators = profile(files.interleave(tf.data.TFRecordDataset, cycle_length=2).map(busy_bytes).batch(4))
    assert list(operators) == ["from_tensor_slices", "repeat", "interleave", "map", "batch"]
    assert operators["interleave"].visits == pytest.approx(4, rel=0.1)
    assert operators["interleave"].elements == pytest.approx(operators["map"].elements, rel=0.1)
    assert operators["interleave"].cpu_seconds > 0
    assert operators["repeat"].visits < 1  # type: ignore[operator] - twenty records per name


def busy_bytes(record: Any) -> Any:
    return tf.strings.length(record)


@pytest.mark.parametrize("source", ["TFRecordDataset", "CsvDataset", "SqlDataset", "from_generator"])
def test_source_is_one_operator(source: str, tmp_path: Path) -> None:
    if source == "TFRecordDataset":
        dataset = tf.data.TFRecordDataset(write_records(tmp_path)).map(busy_bytes)
    elif source == "CsvDataset":
        (tmp_path / "rows.csv").write_text("9\n" * 50)
        dataset = tf.data.experimental.CsvDataset(str(tmp_path / "rows.csv"), [tf.int64]).map(busy(1))
    elif source == "SqlDataset":
        with contextlib.closing(sqlite3.connect(tmp_path / "rows.db")) as connection:
            connection.execute("CREATE TABLE rows (number INTEGER)")
            connection.executemany("INSERT INTO rows VALUES (?)", [(9,)] * 50)
            connection.commit()
        path, query = str(tmp_path / "rows.db"), "SELECT number FROM rows"
        dataset = tf.data.experimental.SqlDataset("sqlite", path, query, (tf.int64,)).map(busy(1))
    else:
        numbers = Dataset.from_generator(lambda: iter(range(50)), output_signature=tf.TensorSpec([], tf.int64))
        dataset = numbers.map(busy(1))
    _, operators = profile(dataset.batch(4))
    assert list(operators) == [source, "map", "batch"]
    assert operators[source].elements and operators[source].visits == pytest.approx(4, rel=0.35)
    assert operators[source].python is (source == "from_generator")


def test_costs_of_branches_are_not_swapped() -> None:
    light, heavy = Dataset.range(40).map(busy(1)), Dataset.range(40).map(busy(60))
    _, operators = profile(Dataset.zip((light, heavy)).batch(2))
    assert operators["map 2"].cpu_seconds > 5 * operators["map"].cpu_seconds
    assert operators["range"].cpu_seconds < operators["map"].cpu_seconds
    total = sum(one.visits * one.cpu_seconds for one in operators.values())
    assert operators["map 2"].visits * operators["map 2"].cpu_seconds > 0.6 * total
    _, operators = profile(Dataset.zip((heavy, light)).batch(2))
    assert operators["map"].cpu_seconds > 4 * operators["map 2"].cpu_seconds


def test_operators_upstream_of_a_filled_cache_are_rarely_visited() -> None:
    _, operators = profile(Dataset.range(8).map(busy(20)).cache().map(busy(1)).repeat().batch(2))
    above, below = operators["map"], operators["map 2"]
    assert (above.visits or 0) < 0.2 * below.visits


def test_python_random_and_buffered_operators_are_recognized() -> None:
    options = tf.data.Options()
    options.deterministic = True
    dataset = Dataset.range(60).map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)).with_options(options)
    dataset = dataset.map(lambda x: tf.random.uniform([])).shuffle(8).batch(4).prefetch(2)
    _, operators = profile(dataset)
    assert operators["map"].python and not operators["map"].random
    assert operators["map 2"].random and not operators["map 2"].python
    assert operators["shuffle"].random
    assert operators["map"].visits == pytest.approx(4, rel=0.3)
    assert operators["shuffle"].buffered_elements == pytest.approx(8, abs=1)
    assert operators["prefetch"].visits == pytest.approx(1, rel=0.1)


def test_failures_of_the_pipeline_are_reported() -> None:
    with pytest.raises(RunFailed, match="empty"):
        profile(Dataset.range(0))
    with pytest.raises(RunFailed, match="theirs"):
        profile(Dataset.range(3).map(lambda x: tf.debugging.check_numerics(1.0 / tf.cast(x, tf.float32), "theirs")))
    once = iter(range(10))
    with pytest.raises(RunFailed, match="second time"):
        profile(Dataset.from_generator(lambda: once, output_signature=tf.TensorSpec([], tf.int32)))


def stages(dataset: Any) -> list[tuple[str, str]]:
    pipeline = live.read(dataset).pipeline
    return [(node.op, profiler.stage_of(pipeline, node).value) for node in pipeline]


def test_operators_have_their_stages(tmp_path: Path) -> None:
    names = write_records(tmp_path)
    dataset = Dataset.list_files(names).interleave(lambda name: tf.data.TFRecordDataset(name), cycle_length=2)
    dataset = dataset.map(lambda x: x).shuffle(3).batch(2).repeat().prefetch(1)
    assert stages(dataset) == [
        ("from_tensor_slices", "extract"), ("shuffle", "extract"), ("interleave", "extract"), ("map", "transform"),
        ("shuffle", "transform"), ("batch", "transform"), ("repeat", "transform"), ("prefetch", "load"),
    ]  # fmt: skip
    assert stages(tf.data.TextLineDataset(names).batch(2)) == [("TextLineDataset", "extract"), ("batch", "transform")]
    windowed = Dataset.range(9).window(3).flat_map(lambda part: part.batch(3)).map(lambda x: x)
    assert stages(windowed)[-2:] == [("flat_map", "transform"), ("map", "transform")]
    assert stages(Dataset.range(9).map(lambda x: x))[0] == ("range", "extract")


# -- counters lost between two readings


NUMBERS, TENS = Dataset.range(100).map(lambda x: x), Dataset.range(10).map(lambda x: x)


@pytest.mark.parametrize(
    ("dataset", "seen", "outputs", "repeated", "expected"),
    [
        pytest.param(
            NUMBERS.shuffle(10).batch(4).repeat(), (410, 410, 400, 100, 100), 101, False, (410, 410, 400, 100, 100),
            id="complete: the shuffle buffers ten",
        ),
        pytest.param(
            NUMBERS.repeat().batch(4), (40, 40, 400, 100), 100, False, (400, 400, 400, 100), id="upstream of a repeat"
        ),
        pytest.param(
            TENS.batch(4).prefetch(2), (5, 5, 6, 3), 30, True, (100, 100, 30, 30),
            id="missed epochs, of ten numbers in three batches",
        ),
        pytest.param(
            NUMBERS.cache().filter(lambda x: x > 50).repeat(), (100, 100, 20, 10, 500), 500, False,
            (100, 100, 1000, 500, 500), id="not upstream of a cache",
        ),
    ],
)  # fmt: skip
def test_lost_counters_are_completed(
    dataset: Any, seen: tuple[float, ...], outputs: int, repeated: bool, expected: tuple[float, ...]
) -> None:
    pipeline = live.read(dataset).pipeline
    counters = {node.id: Counters(seconds=1.0, elements=count) for node, count in zip(pipeline, seen, strict=True)}
    found = complete_counters(pipeline, counters, outputs=outputs, repeated=repeated)
    assert [found[node.id].elements for node in pipeline] == pytest.approx(expected)


def test_seconds_of_closed_readers_are_completed() -> None:
    pipeline = live.read(Dataset.range(9).interleave(lambda x: Dataset.range(x), cycle_length=2).repeat()).pipeline
    counters = {"n1": Counters(seconds=1.0, elements=100.0, inner_seconds=2.0, inner_elements=25.0)}
    found = complete_counters(pipeline, counters, outputs=100, repeated=False)["n1"]
    assert (found.seconds, found.elements) == (9.0, 100.0)


def test_operators_that_a_shuffle_drains_for_the_first_element_have_costs() -> None:
    def wait(x: Any) -> Any:
        return tf.numpy_function(lambda value: (time.sleep(0.004), value)[1], [x], tf.int64)

    small = Dataset.range(500).map(lambda x: x + 1)
    _, costs = profile(small.shuffle(1000).map(wait).repeat())
    assert costs["map"].cpu_seconds is not None and costs["map"].visits == pytest.approx(1, rel=0.2)
    _, costs = profile(small.cache().shuffle(1000).map(wait).repeat())
    assert costs["map"].cpu_seconds is None  # from the cache, it is not run


def test_seconds_of_functions_whose_counters_are_missing_are_not_those_of_others() -> None:
    mapped = NUMBERS.map(lambda x: x + 1)
    for dataset, seconds in (
        (mapped.shuffle(5), 0.01),
        (mapped.cache().shuffle(5), 0.1),
    ):  # from a cache, it is not run
        pipeline = live.read(dataset).pipeline
        counters = {pipeline.output.id: Counters(seconds=1.0, elements=100.0)}
        assert list(_operator_profiles(pipeline, counters, 10.0, 100))[-1].cpu_seconds == seconds
