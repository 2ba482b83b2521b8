"""Patches that decode only the cropped window: the patched source returns the elements of the plan."""

from __future__ import annotations

import linecache
from difflib import unified_diff
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Plan, Rewrite, apply_edits
from pipetune.pipelines import live, replay
from pipetune.probes import decoding
from pipetune.rewrites.jpeg import propose as propose_crop
from pipetune.rewrites.rule import RuleContext
from pipetune.source.emit import emit
from pipetune.stages.emission import expected_digests
from pipetune.worker.verification import first_difference
from tests.pipelines.test_recorder import Sample
from tests.rewrites.on_data.jpegs import jpeg

BEFORE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_decode_and_crop import IMAGES\n"

CASES: dict[str, tuple[str, str]] = {
    "a random crop behind a helper that decodes": (
        """
        SIDE = 24

        def decode(data):
            return tf.io.decode_jpeg(data, channels=3)

        def augment(data, label):
            image = decode(data)
            image = tf.image.random_crop(image, [SIDE, SIDE, 3])
            image = tf.image.resize(image, [12, 12])
            image = tf.image.random_flip_left_right(image)
            return tf.image.per_image_standardization(image), label

        def prepare(data, label):
            return tf.image.resize(decode(data), [12, 12]), label

        ds = tf.data.Dataset.from_tensor_slices((IMAGES, list(range(21))))
        validation = ds.map(prepare).batch(4)
        ds = ds.map(augment)
        ds = ds.shuffle(9)
        ds = ds.batch(4)
        """,
        """
def augment(data, label):
    image = random_crop_jpeg(data, [SIDE, SIDE, 3], channels=3)
    image = tf.image.resize(image, [12, 12])
""",
    ),
    "with a seed, one channel less, in one expression": (
        """
        def augment(data):
            size = (20, 24, 2)
            return tf.image.random_crop(tf.image.decode_jpeg(data, channels=3), seed=7, size=size)

        ds = tf.data.Dataset.from_tensor_slices(IMAGES).map(augment, num_parallel_calls=2)
        """,
        "    return random_crop_jpeg(data, size, channels=3, seed=7)\n",
    ),
    "a box, of bytes that are read on the way": (
        """
        def middle(data):
            pixels = tf.io.decode_jpeg(
                tf.strings.join([data, ""]), channels=3
            )
            top = 3
            return tf.image.crop_to_bounding_box(pixels, top, 4, 24, target_width=20)

        ds = tf.data.Dataset.from_tensor_slices(IMAGES).map(lambda data: middle(data)).batch(4)
        """,
        """
    contents = tf.strings.join([data, ""])
    top = 3
    return crop_jpeg(contents, [top, 4, 0], [24, 20, 3], channels=3)
""",
    ),
    "a distorted box, of the shape": (
        """
        def cut(data):
            image = tf.io.decode_jpeg(data, channels=3)
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                tf.shape(image), tf.zeros([1, 0, 4]), min_object_covered=0.2, use_image_if_no_bounding_boxes=True
            )
            size = tf.concat([size[:2], [3]], axis=0)
            part = tf.slice(image, begin, size)
            return tf.image.random_flip_up_down(tf.image.resize(part, [9, 9]))

        ds = tf.data.Dataset.from_tensor_slices(IMAGES).map(cut).shuffle(5).batch(4)
        """,
        "        jpeg_shape(data, channels=3), tf.zeros([1, 0, 4]),",
    ),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_patched_source_returns_planned_elements(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    sample = Sample(tmp_path, text)
    sample.file.write_text(BEFORE + sample.file.read_text().lstrip("\n"))
    source = live.read(sample.run().ds)
    told = decoding.annotate_crops(source, source.pipeline)
    (rewrite,) = [found for found in propose_crop(RuleContext(told)) if isinstance(found, Rewrite)]
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)))
    assert emission.not_covered == ()
    _, new = emission.files[str(sample.file)]
    assert expected in new and new.startswith(BEFORE) and new.count("def crop_jpeg(") == 1

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


EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "photos" / "pipeline.py"


def test_photos_example_changes_only_in_training(tmp_path: Path) -> None:
    """A helper decodes for training and validation; only the training function changes."""
    for name in ("train", "validation"):
        with tf.io.TFRecordWriter(str(tmp_path / f"{name}.tfrecord")) as writer:
            for number in range(12):
                image = tf.train.BytesList(value=[jpeg("4:2:0", 300 + number, 290 + number, seed=number)])
                label = tf.train.Int64List(value=[number])
                feature = {"image": tf.train.Feature(bytes_list=image), "label": tf.train.Feature(int64_list=label)}
                writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    made = f"\nds = training_dataset({str(tmp_path / 'train*')!r})\n"
    made += f"validation = validation_dataset({str(tmp_path / 'val*')!r})\n"
    sample = Sample(tmp_path, EXAMPLE.read_text() + made)
    module = sample.run()
    source, others = live.read(module.ds), [live.read(module.validation, name="validation").pipeline]
    told = decoding.annotate_crops(source, source.pipeline)
    (rewrite,) = [found for found in propose_crop(RuleContext(told)) if isinstance(found, Rewrite)]
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)), other_pipelines=others)
    assert emission.not_covered == ()
    before, after = emission.files[str(sample.file)]
    lines = [line for line in unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="") if line[0] == "-"]
    assert lines[1:] == [
        "-    image = decode(data)",
        "-    image = tf.image.random_crop(image, [CROP_PIXELS, CROP_PIXELS, 3])",
    ]
    sample.file.write_text(after)
    linecache.clearcache()
    patched = sample.run()
    wanted = apply_edits(source.pipeline, rewrite.edits)
    assert first_difference(live.read(patched.ds).pipeline, wanted) == ""
    assert live.read(patched.validation).pipeline.fingerprint == others[0].fingerprint
    planned = expected_digests(replay.replay(source, wanted), seed=1)
    assert planned and expected_digests(patched.ds, seed=1) == planned


def test_patch_with_other_random_draws_is_detected(tmp_path: Path) -> None:
    """The elements must be compared, because the function's digest differs from the plan's in any case."""
    text, _ = CASES["a random crop behind a helper that decodes"]
    sample = Sample(tmp_path, text)
    sample.file.write_text(BEFORE + sample.file.read_text().lstrip("\n"))
    source = live.read(sample.run().ds)
    told = decoding.annotate_crops(source, source.pipeline)
    (rewrite,) = [found for found in propose_crop(RuleContext(told)) if isinstance(found, Rewrite)]
    _, new = emit(source.pipeline, Plan("tuned", (rewrite,))).files[str(sample.file)]
    planned = expected_digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)), seed=3)
    for wrong in (
        new.replace("begin[:2] - 2", "begin[:2]").replace("size[:2] + 2", "size[:2]"),
        new.replace("maxval=tf.int32.max", "maxval=tf.int32.max - 1000"),
        new.replace("    drawn = ", "    tf.random.uniform([])\n    drawn = "),
    ):
        assert wrong != new
        sample.file.write_text(wrong)
        linecache.clearcache()
        assert expected_digests(sample.run().ds, seed=3) != planned
