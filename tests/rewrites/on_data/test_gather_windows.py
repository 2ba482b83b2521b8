"""`timeseries_dataset_from_array`: which pipelines are recognised, and that gathering a batch at once is equal."""

from __future__ import annotations

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

from pipetune.core.edits import Plan, Rewrite, Safety, apply_edits
from pipetune.core.errors import CannotExpress
from pipetune.distributed.collect.parts import collect
from pipetune.measure.variant_costs import measure_batch_costs
from pipetune.pipelines import gathering, live
from pipetune.pipelines.replay import replay
from pipetune.probes import batches, function_splitting
from pipetune.rewrites import gather
from pipetune.rewrites.rule import RuleContext
from pipetune.source.emit import emit
from tests.rewrites.on_data import patching

ROWS = 301
DATA = np.arange(ROWS * 2, dtype=np.float32).reshape(ROWS, 2)
TARGETS = np.arange(ROWS)[::-1].copy()
Dataset = tf.data.Dataset
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


def _found(dataset: Any) -> tuple[live.LivePipeline, list[Rewrite]]:
    annotations = (batches.annotate_batches, function_splitting.annotate_gathers)
    return patching.proposed(gather.GATHER_WINDOWS_RULE.propose, dataset, *annotations)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", UTILITY)
def test_gathered_batches_are_equal(name: str) -> None:
    np.random.seed(5)
    source, (rewrite,) = _found(UTILITY[name]())
    assert rewrite.safety is Safety.EXACT
    assert not list(gather.GATHER_BATCHES_RULE.propose(RuleContext(source.pipeline)))
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert {"zip", "from_tensors"}.isdisjoint(node.op for node in edited)
    made = replay(source, edited)
    assert made.element_spec == source.dataset.element_spec and made.cardinality() == source.dataset.cardinality()
    digests = ([node.function and node.function.digest for node in one] for one in (live.read(made).pipeline, edited))
    assert next(digests) == next(digests)
    patching.check_equal(source, rewrite)


def test_shuffle_order_is_kept_for_a_seed() -> None:
    source, (rewrite,) = _found(_windows(batch_size=8, shuffle=True, seed=4))
    made = replay(source, apply_edits(source.pipeline, rewrite.edits))
    both = (source.dataset, made)
    one, other = ([targets.tolist() for _ in range(2) for _, targets in of.as_numpy_iterator()] for of in both)
    assert one == other and one[0] != one[len(one) // 2]


def test_gathering_cost_is_measured() -> None:
    source, _ = _found(_windows(batch_size=32))
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
    source, _ = _found(OTHERS[name]())
    if name != "several arrays":  # each of the arrays is recognised
        assert not any(node.gathering is not None and node.gathering.singly for node in source.pipeline)
        assert not list(gather.GATHER_WINDOWS_RULE.propose(RuleContext(source.pipeline)))


def test_handwritten_equivalent_is_recognised() -> None:
    _, (rewrite,) = _found(_by_hand(beside=lambda number, first: first[number]))
    assert rewrite.safety is Safety.EXACT


WRONG: dict[str, Any] = {
    "one row later": lambda found: replace(found, rows=tf.roll(found.rows, 1, 0)),
    "other targets": lambda found: replace(found, targets=tf.roll(found.targets, 1, 0)),
    "another order": lambda found: replace(found, starts=tf.reverse(found.starts, [0])),
    "longer windows, closer together": lambda found: replace(found, size=6, stride=2),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_windows_are_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, (rewrite,) = _found(_windows(batch_size=8))
    right = gathering.window_gatherer
    monkeypatch.setattr(gathering, "window_gatherer", lambda found: right(WRONG[name](found)))
    assert not patching.compared(source, rewrite.edits, Safety.EXACT).equal


def test_gathered_windows_cannot_be_distributed() -> None:
    series_by_window = Dataset.from_tensor_slices(DATA).window(5, 1, drop_remainder=True).flat_map(lambda w: w.batch(5))
    for dataset in (_windows(batch_size=8), series_by_window.batch(8)):
        source, (rewrite,) = _found(dataset)
        with pytest.raises(CannotExpress, match="gathered by their numbers have no known distributed form"):
            collect(source, apply_edits(source.pipeline, rewrite.edits))


HEAD = """import keras
import numpy as np
import tensorflow as tf
X = np.arange(126, dtype=np.float32).reshape(63, 2)
Y = np.arange(63)
"""

SOURCES: dict[str, str] = {
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


@pytest.mark.parametrize("name", SOURCES)
def test_patched_source_builds_planned_pipeline(name: str, tmp_path: Path) -> None:
    sample = patching.script(tmp_path, SOURCES[name], above=HEAD)
    source, (rewrite,) = _found(sample.run().ds)
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
    source, (rewrite,) = _found(sample.run().ds)
    patching.check_patch(
        sample, source, rewrite, expected='"""\n    import numpy as np\n    import tensorflow as tf\n\n    series = '
    )


_MADE = "ds = keras.utils.timeseries_dataset_from_array"

REFUSED: dict[str, tuple[str, str]] = {
    "batched later": (f"{_MADE}(X, Y, 5, batch_size=None).batch(4)", "their batch size is not known in its call"),
    "arguments that nobody sees": (
        f"more = {{'batch_size': 4}}\n{_MADE}(X, Y, 5, **more)", "arguments that timeseries_batches does not accept"),
    "a format": (f"{_MADE}(X, Y, 5, batch_size=4, format='tf')", "arguments that timeseries_batches does not accept"),
    "a taken name": (
        f"timeseries_batches = 4\n{_MADE}(X, Y, 5, batch_size=4)", "already uses the name timeseries_batches"),
    "under another name": (
        "make = keras.utils.timeseries_dataset_from_array\nds = make(X, Y, 5, batch_size=4)", "is made inside make"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_source_that_cannot_be_patched_is_reported(text: str, why: str, tmp_path: Path) -> None:
    source, (rewrite,) = _found(patching.script(tmp_path, text, above=HEAD).run().ds)
    assert why in patching.why_not_patched(source, rewrite)
