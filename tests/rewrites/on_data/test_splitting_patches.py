"""Patches that split a function in two: the patched script builds the pipeline of the plan, with equal elements."""

from __future__ import annotations

from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Insert, Move, Rewrite, Safety, SplitFunction
from tests.pipelines.test_recorder import Sample
from tests.rewrites.on_data.patching import check_patch
from tests.rewrites.on_data.test_splitting import found

CASES: dict[str, tuple[str, str, Safety]] = {
    "before random draws": (
        """
        import numpy as np
        import tensorflow as tf

        IMAGES = np.arange(15 * 90, dtype=np.float32).reshape([15, 6, 5, 3])

        def augment(image, label):
            # As large as the network wants it.
            image = tf.image.resize(image, [8, 7])

            # Never the same twice.
            image = tf.image.random_flip_left_right(image, seed=3)
            return image + tf.random.uniform([], seed=4), label

        ds = (
            tf.data.Dataset.from_tensor_slices((IMAGES, np.arange(15)))
            .map(augment)
            .shuffle(5, seed=1)
            .batch(4)
        )
        """,
        "    .map(augment_head)\n    .cache()\n    .map(augment_tail)\n",
        Safety.STATISTICAL,
    ),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CASES)
def test_patched_source_builds_planned_pipeline(name: str, tmp_path: Path) -> None:
    text, expected, safety = CASES[name]
    sample = Sample(tmp_path, text)
    source, cut = found(sample.run().ds)
    assert cut is not None and not cut.why_not, cut
    split = SplitFunction("n1", cut)
    behind = Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})
    edits = (split, behind)
    rewrite = Rewrite("split-map", "n1", safety, edits, "x.")
    check_patch(sample, source, rewrite, expected=expected, elements=15)


def test_upstream_shuffle_moves_downstream_of_the_cache(tmp_path: Path) -> None:
    """Its draws are the same, and the cache does not fix an order."""
    text = CASES["before random draws"][0].replace(".map(augment)", ".shuffle(5, seed=1)")
    text = text.replace(".shuffle(5, seed=1)\n            .batch", ".map(augment)\n            .batch")
    # One line lower than in the other test: AutoGraph confuses code that differs only in its file.
    sample = Sample(tmp_path, "\n" + text)
    source, cut = found(sample.run().ds)
    assert cut is not None and not cut.why_not, cut
    split = SplitFunction("n2", cut)
    cached = Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})
    rewrite = Rewrite("split-map", "n2", Safety.STATISTICAL, (split, Move("n1", split.head), cached), "x.")
    expected = "    .map(augment_head)\n    .cache()\n    .shuffle(5, seed=1)\n    .map(augment_tail)\n"
    check_patch(sample, source, rewrite, expected=expected, elements=15)


def test_downstream_shuffle_moves_upstream_of_the_second_part(tmp_path: Path) -> None:
    """Its buffer then holds what is cached."""
    sample = Sample(tmp_path, "\n\n" + CASES["before random draws"][0])
    source, cut = found(sample.run().ds)
    assert cut is not None and not cut.why_not, cut
    split = SplitFunction("n1", cut)
    cached = Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})
    rewrite = Rewrite("split-map", "n1", Safety.STATISTICAL, (split, Move("n2", split.head), cached), "x.")
    expected = "    .map(augment_head)\n    .cache()\n    .shuffle(5, seed=1)\n    .map(augment_tail)\n"
    check_patch(sample, source, rewrite, expected=expected, elements=15)
