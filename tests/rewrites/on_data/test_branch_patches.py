"""Patches that compute only the selected array: the patched source returns the elements of the plan."""

from __future__ import annotations

import linecache
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Plan, Rewrite, apply_edits
from pipetune.pipelines import live, replay
from pipetune.probes.branching import annotate_branches
from pipetune.rewrites.rule import RuleContext
from pipetune.rewrites.where_to_cond import propose
from pipetune.source.emit import emit
from pipetune.stages.emission import expected_digests
from pipetune.worker.verification import first_difference
from tests.pipelines.test_recorder import Sample

BEFORE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_where_to_cond import images\n\n"

CASES: dict[str, tuple[str, str]] = {
    "grey by chance, twice for each element": (
        """
        def pair(function):
            return lambda x: (function(x), function(-x))

        def maybe_grey(image):
            grey = tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3])
            return tf.where(tf.random.uniform([]) < 0.5, grey, image)

        ds = images(fixed=True).map(pair(maybe_grey), num_parallel_calls=2)
        """,
        "lambda: tf.tile(tf.image.rgb_to_grayscale(image), [1, 1, 3]),",
    ),
    "mirrored images of any size, in a statement of several lines": (
        """
        def flip(image):
            heads = tf.random.uniform([]) < 0.5
            image = tf.image.random_brightness(image, 0.2)
            both = {
                "image": tf.where(
                    heads,
                    tf.reverse(image, [1]),
                    image,
                ),
                "negative": tf.where(heads, x=-image, y=image),
            }
            return tf.image.random_contrast(both["image"], 0.5, 1.5), both["negative"]

        def prepare(image):
            return flip(image * 2.0)

        ds = images(fixed=False).map(prepare).shuffle(5).batch(1)
        """,
        "tf.cond(heads, true_fn=lambda: -image, false_fn=lambda: image)",
    ),
    "in a loop, and a draw of one side": (
        """
        def augment(image):
            parts = []
            noise = tf.random.normal([80, 80, 3])
            noisy = image + noise
            for factor in (0.5, 1.5):
                bright = image * factor
                parts.append(tf.where(tf.random.uniform([]) < 0.5, bright, noisy))
            return tuple(parts)

        ds = images(fixed=True).map(lambda image: augment(image))
        """,
        "            lambda: image * factor,\n            lambda: noisy,\n",
    ),
}


def _patched(sample: Sample) -> tuple[live.LivePipeline, Rewrite, str]:
    """Runs a sample; returns its pipeline, the rewrite, and its text with the rewrite."""
    source = live.read(sample.run().ds)
    told = annotate_branches(source, source.pipeline)
    (rewrite,) = [found for found in propose(RuleContext(told)) if isinstance(found, Rewrite)]
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)))
    assert emission.not_covered == ()
    return source, rewrite, emission.files[str(sample.file)][1]


def _sample(folder: Path, text: str, *, above: str = "") -> Sample:
    sample = Sample(folder, text)
    sample.file.write_text(above + BEFORE + sample.file.read_text().lstrip("\n"))
    return sample


@pytest.mark.parametrize("name", CASES)
def test_patched_source_returns_planned_elements(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    sample = _sample(tmp_path, text)
    source, rewrite, new = _patched(sample)
    assert expected in new and "tf.where" not in new

    edited = apply_edits(source.pipeline, rewrite.edits)
    assert first_difference(source.pipeline, edited) != ""
    sample.file.write_text(new)
    linecache.clearcache()
    patched = live.read(sample.run().ds)
    assert first_difference(patched.pipeline, edited) == ""
    assert patched.dataset.element_spec == source.dataset.element_spec
    planned = expected_digests(replay.replay(source, edited), seed=3)
    assert planned and expected_digests(patched.dataset, seed=3) == planned
    assert expected_digests(source.dataset, seed=3) == planned


def test_patched_source_draws_the_numbers_of_a_global_seed(tmp_path: Path) -> None:
    """TensorFlow numbers the draws of each graph: those of a map stay the same because none moves into a branch."""
    text, _ = CASES["mirrored images of any size, in a statement of several lines"]
    sample = _sample(
        tmp_path, text.replace(".shuffle(5)", ""), above="import tensorflow\ntensorflow.random.set_seed(4)\n"
    )
    source, _, new = _patched(sample)
    before = list(source.dataset.as_numpy_iterator())
    sample.file.write_text(new)
    linecache.clearcache()
    after = list(sample.run().ds.as_numpy_iterator())
    pairs = zip(before, after, strict=True)
    assert all(np.array_equal(one, other, equal_nan=True) for two in pairs for one, other in zip(*two, strict=True))


def test_patch_with_other_random_draws_is_detected(tmp_path: Path) -> None:
    sample = _sample(tmp_path, CASES["grey by chance, twice for each element"][0])
    source, rewrite, new = _patched(sample)
    planned = expected_digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)), seed=3)
    for wrong in (new.replace("< 0.5", "< 0.4"), new.replace("lambda: image", "lambda: -image")):
        assert wrong != new
        sample.file.write_text(wrong)
        linecache.clearcache()
        assert expected_digests(sample.run().ds, seed=3) != planned
