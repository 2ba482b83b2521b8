"""Rows of arrays, and windows of Keras, gathered by their indices: equal in the same order, and the patched source."""

from __future__ import annotations

import collections
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tf_keras

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from benchmarks.accuracy import grammar
from pipetune.core.edits import NoProposal, Plan, ReplaceSource, Rewrite, Safety, SetArgument, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import RowWindows
from pipetune.core.pipeline import Pipeline
from pipetune.distributed.collect.parts import collect
from pipetune.equality.compare import compare
from pipetune.measure.variant_costs import measure_batch_costs
from pipetune.pipelines import gathering, live
from pipetune.pipelines.replay import replay
from pipetune.probes import batches, function_splitting
from pipetune.rewrites import gather
from pipetune.rewrites.rule import Rule, RuleContext
from pipetune.source.emit import emit
from tests.rewrites.on_data import patching

Dataset = tf.data.Dataset
BATCHES, WINDOWS = gather.GATHER_BATCHES_RULE, gather.GATHER_WINDOWS_RULE
ROWS = 101
IMAGES = np.arange(ROWS * 6, dtype=np.uint8).reshape(ROWS, 3, 2)
LABELS = np.arange(ROWS)
Pair = collections.namedtuple("Pair", "image label")

STRUCTURES: dict[str, Any] = {
    "two arrays": (IMAGES, LABELS),
    "a dict": {"image": IMAGES, "label": LABELS},
    "nested": ({"image": IMAGES, "name": [f"n{number}" for number in range(ROWS)]}, LABELS > 9),
    "a named tuple": Pair(IMAGES.astype(np.float16), LABELS.astype(np.complex64)),
    "a list within": ([float(number) for number in range(ROWS)], LABELS),
}
BELOW = {
    "dropping the rest": lambda ds: ds.shuffle(20, seed=3).batch(8, drop_remainder=True),
    "not reshuffled": lambda ds: ds.shuffle(200, reshuffle_each_iteration=False).batch(8),
    "repeated": lambda ds: ds.shuffle(20).repeat(3).batch(8).prefetch(2),
    "mapped": lambda ds: ds.shuffle(20).map(lambda image, label: (tf.cast(image, tf.float32) / 255.0, label)).batch(8),
    "cached": lambda ds: ds.cache().skip(3).shard(2, 1).shuffle(20).batch(8),
}


_ANNOTATIONS = (batches.annotate_batches, function_splitting.annotate_gathers)


def _told(dataset: Any) -> Pipeline:
    source = live.read(dataset)
    return function_splitting.annotate_gathers(source, source.pipeline)


def _gathered(dataset: Any, rule: Rule = BATCHES) -> tuple[live.LivePipeline, Rewrite]:
    source, (rewrite,) = patching.proposed(rule.propose, dataset, *_ANNOTATIONS)
    return source, rewrite


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("structure", "below"),
    [*(("two arrays", below) for below in BELOW), *((one, "dropping the rest") for one in list(STRUCTURES)[1:])],
)
def test_gathered_batches_are_equal(structure: str, below: str) -> None:
    source, rewrite = _gathered(BELOW[below](Dataset.from_tensor_slices(STRUCTURES[structure])))
    edited = apply_edits(source.pipeline, rewrite.edits)
    made = replay(source, edited)
    assert sum(node.gathers_rows for node in edited) == 1
    assert made.element_spec == source.dataset.element_spec and made.cardinality() == source.dataset.cardinality()
    assert rewrite.safety is Safety.EXACT
    proof = patching.check_equal(source, rewrite, elements=64)
    assert any("start, middle and end" in note or "all" in note for note in proof.notes)


@pytest.mark.parametrize("seed", [None, 7])
def test_shuffle_order_is_kept_for_a_seed(seed: int | None) -> None:
    tf.random.set_seed(5)
    source, rewrite = _gathered(Dataset.from_tensor_slices(LABELS).shuffle(30, seed=seed).batch(7))
    made = replay(source, apply_edits(source.pipeline, rewrite.edits))
    both = (source.dataset, made)
    one, other = ([batch.tolist() for _ in range(3) for batch in of.as_numpy_iterator()] for of in both)
    assert one == other and len({tuple(batch) for batch in one}) > 2 * len(source.dataset)


def test_other_rows_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    source, rewrite = _gathered(Dataset.from_tensor_slices(LABELS).batch(8))
    arrays_of = gathering.source_arrays
    monkeypatch.setattr(gathering, "source_arrays", lambda dataset: tf.roll(arrays_of(dataset), 1, 0))
    assert not patching.compared(source, rewrite.edits, Safety.EXACT, elements=64).equal


SERIES: dict[str, Any] = {
    "batched": lambda ds: ds.window(5, shift=1, drop_remainder=True).flat_map(lambda w: w.batch(5)),
    "split, of known length": lambda ds: ds.window(5, shift=2, drop_remainder=True)
    .flat_map(lambda w: w.batch(5, drop_remainder=True)).map(lambda w: (w[:-1], w[-1] * 2), num_parallel_calls=2),
}  # fmt: skip


@pytest.mark.parametrize("name", SERIES)
def test_gathered_windows_are_equal(name: str) -> None:
    dataset = SERIES[name](Dataset.from_tensor_slices(IMAGES)).shuffle(20).batch(8, drop_remainder=True)
    source, rewrite = _gathered(dataset.prefetch(1), WINDOWS)
    assert rewrite.safety is Safety.EXACT and source.pipeline["n0"].gathering is not None
    made = replay(source, apply_edits(source.pipeline, rewrite.edits))
    assert made.element_spec == source.dataset.element_spec
    patching.check_equal(source, rewrite, elements=64)
    assert measure_batch_costs(source, source.pipeline, seconds=60)["n0"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("size", [101, 2000])
def test_windows_longer_than_the_usual_sample_are_equal(size: int) -> None:
    series = np.arange(1_000_000, dtype=np.float32)
    windows = Dataset.from_tensor_slices(series).window(size, shift=1, drop_remainder=True)
    windows = windows.flat_map(lambda window: window.batch(size)).map(lambda window: (window[:-1], window[-1]))
    source, rewrite = _gathered(windows.shuffle(100_000).batch(32).prefetch(1), WINDOWS)
    proof = compare(source, apply_edits(source.pipeline, rewrite.edits), rewrite.safety)
    assert proof.proven and {"generated inputs", "last batches"} <= {check.name for check in proof.checks}


def test_sample_shorter_than_two_windows_is_reported() -> None:
    slowly = grammar.map_function(wait_seconds=0.01, work_seconds=0.0, out_bytes=0.0, draws=False)
    windows = Dataset.range(5000).map(slowly).window(400, shift=1, drop_remainder=True)
    source = live.read(windows.flat_map(lambda window: window.batch(400)).batch(4).map(lambda rows: rows))
    edited = apply_edits(source.pipeline, [SetArgument("n5", "num_parallel_calls", 2)])
    proof = compare(source, edited, Safety.EXACT, time_limit_seconds=1.0)
    assert not proof.proven and any("but two windows need 401" in check.detail for check in proof.checks)


NO_WINDOWS: dict[str, Any] = {
    "components in another order": lambda w, v: (v.batch(3), w.batch(3)),
    "batched in two ways": lambda w, v: (w.batch(3), v.batch(2)),
    "one of them twice": lambda w, v: (w.batch(3), w.batch(3)),
    "not batched": lambda w, v: (w, v),
    "smaller batches": lambda w, v: (w.batch(2), v.batch(2)),
    "shuffled": lambda w, v: (w.shuffle(3).batch(3), v.batch(3)),
    "a map within": lambda w, v: (w.map(lambda x: x).batch(3), v.batch(3)),
    "a part": lambda w, v: (w.take(2).batch(3), v.batch(3)),
}


@pytest.mark.parametrize("name", NO_WINDOWS)
def test_flat_map_that_does_more_than_batching_is_refused(name: str) -> None:
    dataset = Dataset.from_tensor_slices((LABELS, LABELS * 2)).window(3, drop_remainder=True)
    told = _told(dataset.flat_map(lambda *parts: Dataset.zip(NO_WINDOWS[name](*parts))).batch(4))
    assert told["n0"].gathering is not None and told["n0"].gathering.windows is None
    (silence,) = WINDOWS.propose(RuleContext(told))
    assert isinstance(silence, NoProposal) and "does not just batch each window whole" in silence.why


def test_windows_of_incomplete_length_are_not_gathered() -> None:
    dataset = Dataset.from_tensor_slices(LABELS).window(5, shift=1).flat_map(lambda w: w.batch(5))
    told = _told(dataset.padded_batch(4).unbatch().batch(4))
    assert told["n0"].gathering is not None and told["n0"].gathering.windows is None


def test_wrong_windows_are_rejected() -> None:
    dataset = Dataset.from_tensor_slices(LABELS).window(5, shift=1, drop_remainder=True)
    source, rewrite = _gathered(dataset.flat_map(lambda w: w.batch(5)).batch(8), WINDOWS)
    *removed, edit = rewrite.edits
    assert isinstance(edit, ReplaceSource)
    for wrong in (RowWindows(5, 2, 1, False), RowWindows(4, 1, 1, False), RowWindows(5, 1, 2, False)):
        assert not patching.compared(source, (*removed, replace(edit, windows=wrong)), Safety.EXACT, elements=64).equal


_RAGGED = tf.ragged.constant([[1], [2, 3], []] * 3)


@pytest.mark.parametrize("arrays", [_RAGGED, tf.sparse.from_dense(np.eye(9)), (np.eye(9), _RAGGED)])
def test_sparse_and_ragged_rows_are_refused(arrays: Any) -> None:
    gathered = _told(Dataset.from_tensor_slices(arrays).batch(4))["n0"].gathering
    assert gathered is not None and "sparse or ragged" in gathered.why_not and not gathered.digest


def test_only_arrays_upstream_of_a_batch_are_probed() -> None:
    for dataset in (Dataset.from_tensor_slices(LABELS).shuffle(9), Dataset.range(9).batch(2)):
        assert [node.gathering for node in _told(dataset)] == [None, None]


def test_arrays_are_captured_not_embedded_as_constants() -> None:
    source, rewrite = _gathered(Dataset.from_tensor_slices(np.zeros((4096, 64))).batch(8))
    made = live.read(replay(source, apply_edits(source.pipeline, rewrite.edits)))
    function = made.dataset._map_func.function
    assert function.captured_inputs[0].shape == (4096, 64)
    assert len(function.graph.as_graph_def().SerializeToString()) < 20_000


ARRAYS = """import keras
import numpy as np
import tensorflow as tf
X = np.arange(378, dtype=np.float32).reshape(63, 3, 2)
Y = np.arange(63)
"""

SOURCES: dict[str, tuple[str, str]] = {
    "a dict over several lines, the name taken": ("""
        arrays = {"x": X}
        ds = (
            tf.data.Dataset.from_tensor_slices(
                {
                    "x": arrays["x"],  # images
                    "y": Y,
                }
            )
            .batch(4)
            .repeat(2)
        )
        """,
        """
        arrays = {"x": X}
        dataset_arrays = tf.data.Dataset.from_tensors({
                    "x": arrays["x"],  # images
                    "y": Y,
                }).get_single_element()
        ds = (
            tf.data.Dataset.range(len(dataset_arrays['x']))
            .batch(4)
            .map(lambda index: tf.nest.map_structure(lambda array: tf.gather(array, index), dataset_arrays))
            .repeat(2)
        )
        """),
    "windows of known length": ("""
        ds = tf.data.Dataset.from_tensor_slices((X, Y))
        ds = ds.window(4, shift=2, stride=3)
        ds = ds.flat_map(lambda x, y: tf.data.Dataset.zip((x.batch(4, True), y.batch(4, True))))
        ds = ds.shuffle(5).batch(3)
        """,
        """
        arrays = tf.data.Dataset.from_tensors((X, Y)).get_single_element()

        def windows_at(starts):
            rows = starts[:, tf.newaxis] + tf.range(0, 12, 3, dtype=tf.int64)
            return tf.nest.map_structure(lambda array: tf.gather(array, rows), arrays)

        ds = tf.data.Dataset.range(0, len(arrays[0]) - 9, 2)
        ds = ds.shuffle(5).batch(3).map(windows_at)
        """),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_patched_source_matches_expected_text_and_plan(name: str, tmp_path: Path) -> None:
    before, after = SOURCES[name]
    expected = patching.Sample(tmp_path, after, name="expected").file.read_text()
    sample = patching.script(tmp_path, before, above=ARRAYS)
    rule = WINDOWS if "windows" in name else BATCHES
    source, rewrite = _gathered(sample.run().ds, rule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert patching.check_patch(sample, source, rewrite, elements=21) == ARRAYS + expected.lstrip("\n")


DATA = np.arange(602, dtype=np.float32).reshape(301, 2)
TARGETS = np.arange(301)[::-1].copy()
ONE, TWO, FIVE = (tf.constant(number) for number in (1, 2, 5))


def _windows(data: Any = DATA, targets: Any = TARGETS, length: int = 5, **arguments: Any) -> Any:
    return keras.utils.timeseries_dataset_from_array(data, targets, length, **arguments)


UTILITY: dict[str, Any] = {
    "no targets, shuffled without a seed": lambda: _windows(targets=None, batch_size=4, shuffle=True),
    "fewer targets, with strides, shuffled": lambda: _windows(
        targets=TARGETS[7:], batch_size=8, sequence_stride=3, sampling_rate=4, shuffle=True, seed=1),
    "a list, text beside it": lambda: _windows(list(range(99)), [f"t{n}" for n in range(99)], batch_size=8),
    "mapped in front of the batch, repeated": lambda: (
        _windows(batch_size=None).map(lambda x, y: (x[:-1] * 2.0, y)).repeat(2).batch(8).prefetch(1)),
    "of older Keras, mapped behind the batch": lambda: tf_keras.utils.timeseries_dataset_from_array(
        DATA, tf.constant(DATA), 5, sampling_rate=2).map(lambda x, y: (x * 2.0, y)),
}  # fmt: skip


def _found(dataset: Any) -> live.LivePipeline:
    return patching.proposed(WINDOWS.propose, dataset, *_ANNOTATIONS)[0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", UTILITY)
def test_gathered_windows_of_keras_are_equal(name: str) -> None:
    np.random.seed(5)
    source, rewrite = _gathered(UTILITY[name](), WINDOWS)
    assert rewrite.safety is Safety.EXACT
    assert not list(BATCHES.propose(RuleContext(source.pipeline)))
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert {"zip", "from_tensors"}.isdisjoint(node.op for node in edited)
    made = replay(source, edited)
    assert made.element_spec == source.dataset.element_spec and made.cardinality() == source.dataset.cardinality()
    digests = ([node.function and node.function.digest for node in one] for one in (live.read(made).pipeline, edited))
    assert next(digests) == next(digests)
    patching.check_equal(source, rewrite)


def test_shuffle_order_of_keras_is_kept_for_a_seed() -> None:
    source, rewrite = _gathered(_windows(batch_size=8, shuffle=True, seed=4), WINDOWS)
    made = replay(source, apply_edits(source.pipeline, rewrite.edits))
    both = (source.dataset, made)
    one, other = ([targets.tolist() for _ in range(2) for _, targets in of.as_numpy_iterator()] for of in both)
    assert one == other and one[0] != one[len(one) // 2]


def test_gathering_cost_is_measured() -> None:
    source = _found(_windows(batch_size=32))
    (node,) = (node for node in source.pipeline if node.gathering is not None)
    assert node.op == "prefetch" and measure_batch_costs(source, source.pipeline, seconds=60).keys() == {node.id}


def test_long_series_is_compared_in_part() -> None:
    """Windows of the start, the middle and the end are compared, so that only their rows of the arrays are needed."""
    dataset = _windows(np.arange(90_000), np.arange(90_000), 3, sampling_rate=5, batch_size=8)
    source = live.read(dataset)
    found = gathering.read(source.datasets[source.pipeline.output.inputs[0]])
    assert found is not None and found.rows.shape == 90_000
    part = gathering.windows_subset(found, [0, 1, 50_000, 89_989])
    assert part.rows.shape[0] == 12 + 11 + 11 and part.rows.shape == part.targets.shape
    whole, cut = (gathering.window_gatherer(one) for one in (found, part))
    for one, other in zip(whole(tf.constant([0, 1, 50_000, 89_989])), cut(tf.range(4)), strict=True):
        assert np.array_equal(one, other)


_NUMBERS = np.arange(90, dtype=np.int32)


def _by_hand(
    *,
    rows: Any = lambda number, first: tf.range(first[number], first[number] + FIVE * ONE, ONE),
    take: Any = lambda rows, places: tf.gather(rows, places),
    beside: Any = None,
    times: int | None = None,
    numbers: Any = None,
    others: Any = None,
) -> Any:
    starts = Dataset.from_tensors(_NUMBERS).repeat()
    numbers = numbers or Dataset.range(90)
    each = Dataset.zip((numbers, starts)).map(rows)
    made = Dataset.zip((Dataset.from_tensors(DATA).repeat(times), each)).map(take)
    if beside is None:
        return made.batch(8)
    places = Dataset.zip((numbers, others or starts)).map(beside)
    return Dataset.zip((made, Dataset.zip((Dataset.from_tensors(TARGETS).repeat(), places)).map(take))).batch(8)


OTHERS: dict[str, Any] = {
    "rows of numbers": lambda: Dataset.range(90).map(lambda n: tf.gather(DATA, tf.range(n, n + 5))).batch(8),
    "windows that end elsewhere": lambda: _by_hand(rows=lambda n, f: tf.range(f[n], f[n] + FIVE * TWO - ONE, TWO)),
    "windows that start elsewhere": lambda: _by_hand(rows=lambda n, f: tf.range(f[n] + 1, f[n] + FIVE * ONE, ONE)),
    "windows in another order": lambda: _by_hand(rows=lambda n, f: tf.range(f[-n], f[-n] + FIVE * ONE, ONE)),
    "other rows": lambda: _by_hand(take=lambda rows, places: tf.gather(rows, places + 1)),
    "other values": lambda: _by_hand(take=lambda rows, places: tf.gather(rows, places) * 2),
    "columns": lambda: _by_hand(take=lambda rows, places: tf.gather(rows, places % 2, axis=1)),
    "draws": lambda: _by_hand(take=lambda rows, places: tf.random.shuffle(tf.gather(rows, places))),
    "an array that ends": lambda: _by_hand(times=50),
    "numbers that do not start at 0": lambda: _by_hand(numbers=Dataset.range(1, 90)),
    "shuffled numbers": lambda: _by_hand(numbers=Dataset.range(90).shuffle(9)),
    "targets of other rows": lambda: _by_hand(beside=lambda n, f: f[n] + 1),
    "other starts": lambda: _by_hand(beside=lambda n, f: f[n], others=Dataset.from_tensors(_NUMBERS[::-1]).repeat()),
    "several arrays": lambda: Dataset.zip((_by_hand(), _by_hand())),
    "batched": lambda: _windows(batch_size=None),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_pipelines_are_not_recognised(name: str) -> None:
    source = _found(OTHERS[name]())
    if name != "several arrays":  # each of the arrays is recognised
        assert not any(node.gathering is not None and node.gathering.singly for node in source.pipeline)
        assert not list(WINDOWS.propose(RuleContext(source.pipeline)))


def test_handwritten_equivalent_is_recognised() -> None:
    _, rewrite = _gathered(_by_hand(beside=lambda number, first: first[number]), WINDOWS)
    assert rewrite.safety is Safety.EXACT


WRONG: dict[str, Any] = {
    "one row later": lambda found: replace(found, rows=tf.roll(found.rows, 1, 0)),
    "longer windows, closer together": lambda found: replace(found, size=6, stride=2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_windows_of_keras_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, rewrite = _gathered(_windows(batch_size=8), WINDOWS)
    right = gathering.window_gatherer
    monkeypatch.setattr(gathering, "window_gatherer", lambda found: right(WRONG[name](found)))
    assert not patching.compared(source, rewrite.edits, Safety.EXACT).equal


def test_gathered_windows_cannot_be_distributed() -> None:
    series_by_window = Dataset.from_tensor_slices(DATA).window(5, 1, drop_remainder=True).flat_map(lambda w: w.batch(5))
    for dataset in (_windows(batch_size=8), series_by_window.batch(8)):
        source, rewrite = _gathered(dataset, WINDOWS)
        with pytest.raises(CannotExpress, match="gathered by their numbers have no known distributed form"):
            collect(source, apply_edits(source.pipeline, rewrite.edits))


OF_KERAS: dict[str, str] = {
    "shuffled": """
        from keras.utils import timeseries_dataset_from_array
        def make(x, y):
            ds = timeseries_dataset_from_array(
                data=x, targets=y, sequence_length=5, sampling_rate=2, sequence_stride=3, batch_size=4,
                shuffle=True, seed=8, start_index=2,  # not the first
            )
            return ds.prefetch(2)
        ds = make(X, Y)
        """,
    "no targets, its own seed": """
        np.random.seed(3)
        ds = tf.keras.utils.timeseries_dataset_from_array(X, None, 5, batch_size=4, shuffle=True).prefetch(1)
        """,
}


@pytest.mark.parametrize("name", OF_KERAS)
def test_patched_source_gathers_windows_of_keras(name: str, tmp_path: Path) -> None:
    sample = patching.script(tmp_path, OF_KERAS[name], above=ARRAYS)
    source, rewrite = _gathered(sample.run().ds, WINDOWS)
    (note,) = emit(source.pipeline, Plan("tuned", (rewrite,))).notes
    assert "does not validate its arguments" in note
    before = [tf.nest.flatten(element) for element in source.dataset.as_numpy_iterator()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new = patching.check_patch(sample, source, rewrite)
        after = [tf.nest.flatten(element) for element in patching.rerun(sample, new).ds.as_numpy_iterator()]
    assert new.count("\n\n\ndef timeseries_batches(") == 1 and "timeseries_dataset_from_array(" not in new
    assert new.count("import numpy") == new.count("import tensorflow") == 1
    for one, other in zip(before, after, strict=True):
        assert all(map(np.array_equal, one, other))


def test_patch_imports_missing_modules(tmp_path: Path) -> None:
    text = "ds = keras.utils.timeseries_dataset_from_array(list(range(40)), None, 5, batch_size=4)\n"
    sample = patching.script(tmp_path, text, above="import keras\n")
    source, rewrite = _gathered(sample.run().ds, WINDOWS)
    patching.check_patch(
        sample, source, rewrite, expected='"""\n    import numpy as np\n    import tensorflow as tf\n\n    series = '
    )


_SLICES = "tf.data.Dataset.from_tensor_slices"
_MADE = "ds = keras.utils.timeseries_dataset_from_array"

REFUSED: dict[str, tuple[str, str]] = {
    "given to a function": (f"ds = (lambda d: d.batch(4))({_SLICES}(X))", "does something else"),
    "in the body of a class": (
        f"class Data:\n    train = {_SLICES}(X).batch(4)\nds = Data.train", "body of a class"),
    "by another name": (f"slices = {_SLICES}\nds = slices(X).batch(4)", "made inside slices"),
    "windows of a size that is computed": (
        f"ds = {_SLICES}(Y).window(len(X) // 15, 1, drop_remainder=True).flat_map(lambda w: w.batch(4)).batch(4)",
        "not plain numeric expressions"),
    "windows of a size that is set in between": (
        f"ds = {_SLICES}(Y)\nsize = 4\n"
        "ds = ds.window(size, 1, drop_remainder=True).flat_map(lambda w: w.batch(size)).batch(4)",
        "is reassigned between"),
    "windows of Keras, batched later": (
        f"{_MADE}(X, Y, 5, batch_size=None).batch(4)", "their batch size is not known in its call"),
    "windows of Keras, arguments that nobody sees": (
        f"more = {{'batch_size': 4}}\n{_MADE}(X, Y, 5, **more)", "arguments that timeseries_batches does not accept"),
    "windows of Keras, a taken name": (
        f"timeseries_batches = 4\n{_MADE}(X, Y, 5, batch_size=4)", "already uses the name timeseries_batches"),
    "windows of Keras, under another name": (
        "make = keras.utils.timeseries_dataset_from_array\nds = make(X, Y, 5, batch_size=4)", "is made inside make"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_source_that_cannot_be_patched_is_reported(name: str, tmp_path: Path) -> None:
    text, why = REFUSED[name]
    dataset = patching.script(tmp_path, text, above=ARRAYS).run().ds
    assert why in patching.why_not_patched(*_gathered(dataset, WINDOWS if "windows" in name else BATCHES))
