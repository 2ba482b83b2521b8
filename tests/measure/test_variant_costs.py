"""Costs of functions on batches: measured only for those that can be called on a batch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune import probes
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.measure import variant_costs
from pipetune.measure.variant_costs import measure_batch_costs, measure_shares
from pipetune.pipelines import live, replay
from pipetune.probes import batches, function_splitting
from tests.rewrites.on_data.jpegs import jpeg


def test_batch_costs_are_measured_only_for_maps_that_can_run_on_batches() -> None:
    dataset = tf.data.Dataset.range(40).map(lambda i: tf.cast(i, tf.float32) * 2.0).map(lambda x: x - x[tf.newaxis][0])
    dataset = dataset.map(lambda x: x + tf.random.uniform([])).batch(8).map(lambda rows: rows * 2.0)
    source = live.read(dataset)
    told = batches.annotate_batches(source, source.pipeline)
    found = measure_batch_costs(source, told, seconds=60)
    could = {n.id for n in told if n.function and n.function.on_batches and not n.function.on_batches.why_not}
    assert found.keys() == could and "n1" in could and len(could) < 4
    assert all(0 <= seconds < 0.1 for seconds in found.values())


def test_function_that_fails_on_the_data_has_no_batch_cost() -> None:
    def fails(i: object) -> object:
        return tf.strings.to_number(tf.strings.as_string(i) + tf.constant("x"))

    source = live.read(tf.data.Dataset.range(40).map(fails).batch(8))
    told = batches.annotate_batches(source, source.pipeline)
    assert told["n1"].function is not None and told["n1"].function.on_batches is not None
    assert not told["n1"].function.on_batches.why_not
    assert measure_batch_costs(source, told, seconds=60) == {}


def test_rows_upstream_of_what_cannot_be_rebuilt_have_no_batch_cost(tmp_path: Path) -> None:
    """`make_csv_dataset` shuffles the names of its files in memory, and reads them by an operator of its own."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 20)
    dataset = tf.data.experimental.make_csv_dataset([str(path)], 4, label_name="b", num_epochs=1)
    source = live.read(dataset)
    told = function_splitting.annotate_gathers(source, source.pipeline)
    assert any(node.gathering is not None and not node.gathering.why_not for node in told)
    assert measure_batch_costs(source, told, seconds=60) == {}


def _profile(pipeline: Pipeline, seconds: float) -> Profile:
    """Every operator costs so much, for each element of the output."""
    operators = [
        OperatorProfile(node.id, Stage.TRANSFORM, cpu_seconds=seconds, wall_seconds=seconds, visits=1.0)
        for node in pipeline
    ]
    return Profile(tuple(operators), ConsumerProfile("none"), examples_per_element=1.0)


def _selecting(image: tf.Tensor) -> tf.Tensor:
    grey = tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3])
    return tf.where(tf.random.uniform([]) < 0.5, grey, image)


def _where(image: tf.Tensor) -> tf.Tensor:
    _, size = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + tf.random.uniform([])), (0, 0.0))
    return tf.where(tf.random.uniform([]) < 0.5, tf.reverse(image, [0]), image) * size


@pytest.mark.parametrize("first", [_where, _selecting])
def test_variants_draw_the_same_numbers_in_each_pass(first: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance, each form drew what is cheap or dear: a share of 0.9 was measured as 0.77 to 1.13."""
    images = tf.data.Dataset.range(4).map(lambda i: tf.random.stateless_uniform([300, 300, 3], tf.stack([i, i])))
    source = live.read(images.map(first).map(lambda image: image + tf.random.normal([])))
    told = replay.annotate_fusions(source, probes.annotate_graph_edits(source, source.pipeline))
    compared: list[list[list[bytes]]] = []

    def passes(dataset: tf.data.Dataset, count: int, make_variants: Any) -> tuple[float, ...]:
        made = make_variants(dataset)
        compared.append([[image.tobytes() for image in one.as_numpy_iterator()] for one in (*made, *made)])
        return 1.0, 5.0, 3.0

    monkeypatch.setattr(variant_costs, "alternating_cpu_seconds", passes)
    shares = measure_shares(source, told, seconds=60).values()
    forms = [FunctionVariant.BRANCHING, FunctionVariant.FUSED][: 1 if first is _where else 2]
    assert [one.variants for one in shares] == [{form: 0.5} for form in forms]
    for original, *others in compared:
        assert len(others) == 3 and all(other == original for other in others) and len(set(original)) == 4


def test_only_element_of_a_dataset_is_read_twice() -> None:
    """The first one is not timed, as functions are built with it."""

    def slow(number: Any) -> Any:
        ends = time.process_time() + 0.06
        while time.process_time() < ends:
            pass
        return number

    plain, mapped = variant_costs.alternating_cpu_seconds(
        tf.data.Dataset.from_tensors(0), 2, lambda one: [one.map(lambda x: tf.numpy_function(slow, [x], tf.int32))]
    )
    assert plain < 0.03 < mapped


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of elements that are measured; nothing is run, and each variant keeps half of the cost."""
    numbers: list[int] = []

    def passes(dataset: object, count: int, make_variants: object) -> tuple[float, ...]:
        numbers.append(count)
        return 1.0, 5.0, 3.0

    monkeypatch.setattr(variant_costs, "alternating_cpu_seconds", passes)
    return numbers


@pytest.mark.parametrize(("seconds", "elements"), [(0.001, 64), (0.0095, 15), (0.07, 2), (30.0, None)])
def test_shares_are_measured_on_as_many_elements_as_there_is_time_for(
    seconds: float, elements: int | None, taken: list[int]
) -> None:
    """An element costs what is upstream and, in four passes of both forms, the map: ten times `seconds`."""
    images = tf.data.Dataset.range(100).map(lambda i: tf.fill([80, 80, 3], tf.cast(i, tf.float32)))
    source = live.read(images.map(_selecting).batch(4))
    told = probes.annotate_graph_edits(source, source.pipeline)
    shares = measure_shares(source, told, _profile(told, seconds), seconds=1.5)
    known = [] if elements is None else [elements]
    assert taken == known
    assert [one.variants for one in shares.values()] == [{FunctionVariant.BRANCHING: 0.5} for _ in known]


def test_maps_get_time_by_what_they_cost(taken: list[int]) -> None:
    """As much time for each let cheap maps take most of it, and seven maps of an augmentation were never compared."""
    images = tf.data.Dataset.range(100).map(lambda i: tf.fill([80, 80, 3], tf.cast(i, tf.float32)))
    source = live.read(images.map(_selecting).map(_selecting).batch(4))
    told = probes.annotate_graph_edits(source, source.pipeline)
    costs = {"n0": 0.0, "n1": 0.001, "n2": 0.001, "n3": 0.009}
    operators = (
        OperatorProfile(n, Stage.TRANSFORM, cpu_seconds=c, wall_seconds=0.0, visits=1.0) for n, c in costs.items()
    )
    profile = Profile(tuple(operators), ConsumerProfile("none"), examples_per_element=1.0)
    measure_shares(source, told, profile, seconds=2.0)
    assert taken[0] == pytest.approx(taken[1], abs=5) and max(taken) < 64


@pytest.mark.usefixtures("patient_looks")
def test_only_functions_that_decode_and_crop_have_a_share_of_decoding_the_crop() -> None:
    images = [jpeg("4:2:0", 320, 320, seed=number) for number in range(8)]
    dataset = tf.data.Dataset.from_tensor_slices(images)
    whole = live.read(dataset.map(lambda data: tf.io.decode_jpeg(data, channels=3)))
    assert measure_shares(whole, probes.annotate_graph_edits(whole, whole.pipeline), seconds=60) == {}
    dataset = dataset.map(lambda data: tf.image.random_crop(tf.io.decode_jpeg(data, channels=3), [16, 16, 3]))
    source = live.read(dataset.map(lambda image: tf.cast(image, tf.float32)).batch(4))
    shares = measure_shares(source, probes.annotate_graph_edits(source, source.pipeline), seconds=60)
    assert set(shares) == {"n1"} and shares["n1"].variants is not None
    assert shares["n1"].variants[FunctionVariant.DECODE_AND_CROP] > 0
