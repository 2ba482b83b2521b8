"""Which functions could decode at a smaller scale, how far apart they then are, and what of it the source says."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.editing import apply_edits
from pipetune.core.edits import Insert, Plan, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import FunctionForm, Shrinking
from pipetune.rules import decode_smaller
from pipetune.rules.base import RuleContext
from pipetune.source.emit import emit
from pipetune.tf.equality.compare import compare
from pipetune.tf.measure.cropping_costs import measure_shrinking_shares
from pipetune.tf.pipelines import live, shrinking
from pipetune.tf.pipelines.replay import replay
from pipetune.worker.verification import first_difference
from tests.tf.jpegs import photo, png
from tests.tf.test_capture import Sample

Function = Callable[..., Any]
KINDS = ("4:2:0", "4:4:4", "gray")
PHOTOS = [photo(KINDS[number % 3], 97 + number, 140 - number, seed=number) for number in range(15)]
SIZE = (48, 40)


def _decode(data: Any, **given: Any) -> Any:
    return tf.io.decode_jpeg(data, channels=3, **given)


def _normalised(data: Any) -> Any:
    image = tf.image.convert_image_dtype(_decode(data), tf.float32)
    return (tf.image.resize(image, SIZE) - 0.5) / 0.25


def _augmented(data: Any) -> Any:
    image = tf.image.resize(_decode(data), SIZE)
    return tf.image.random_flip_left_right(image) + tf.random.uniform([])


YES: dict[str, Function] = {
    "bilinear": lambda data: tf.image.resize(_decode(data), SIZE),
    "nearest": lambda data: tf.image.resize(_decode(data), SIZE, "nearest"),
    "bicubic": lambda data: tf.image.resize(_decode(data), SIZE, "bicubic"),
    "area": lambda data: tf.image.resize(_decode(data), SIZE, "area"),
    "antialiased": lambda data: tf.image.resize(_decode(data), SIZE, antialias=True),
    "lanczos": lambda data: tf.image.resize(_decode(data), SIZE, "lanczos3"),
    "as older TensorFlow does": lambda data: tf.compat.v1.image.resize_images(_decode(data), SIZE),
    "normalised": _normalised,
    "cropped behind it": lambda data: tf.image.resize(_decode(data), SIZE)[4:40, 4:30],
    "other settings of the decoder": lambda data: tf.image.resize(_decode(data, dct_method="INTEGER_ACCURATE"), SIZE),
    "one channel, and the bytes": lambda data: (tf.image.resize(tf.io.decode_jpeg(data, channels=1), SIZE), data),
    "random behind it": _augmented,
}
NO: dict[str, tuple[Function, str]] = {
    "too large": (lambda data: tf.image.resize(_decode(data), (48, 71)), "1.8 times as large"),
    "its size asked for": (
        lambda data: (tf.image.resize(_decode(data), SIZE), tf.shape(_decode(data))), "decodes 2 images"),
    "its shape given on": (lambda data: _both(_decode(data)), "uses the size of the image"),
    "its proportions kept": (
        lambda data: tf.image.resize(_decode(data), SIZE, preserve_aspect_ratio=True), "not fixed"),
    "padded": (lambda data: tf.image.resize_with_pad(_decode(data), *SIZE), "not fixed"),
    "cropped": (lambda data: _decode(data)[:40, :40], "uses the whole image"),
    "given on": (lambda data: _decode(data), "gives the whole image on"),
    "used twice": (lambda data: _twice(_decode(data)), "is used by"),
    "turned first": (lambda data: tf.image.resize(tf.transpose(_decode(data), [1, 0, 2]), SIZE), "Transpose"),
    "a mean first": (lambda data: tf.image.resize(_less_its_mean(_decode(data)), SIZE), "is used by"),
    "a scale already": (lambda data: tf.image.resize(_decode(data, ratio=2), (20, 20)), "smaller scale"),
    "cut off images": (
        lambda data: tf.image.resize(_decode(data, try_recover_truncated=True), SIZE), "cut off"),
    "any format": (lambda data: tf.image.resize(tf.io.decode_png(data), SIZE), "nobody asks"),
}  # fmt: skip


def _both(image: Any) -> Any:
    return tf.image.resize(image, SIZE), tf.shape(image)


def _twice(image: Any) -> Any:
    return tf.image.resize(image, SIZE), tf.image.resize(image, (8, 8))


def _less_its_mean(image: Any) -> Any:
    image = tf.cast(image, tf.float32)
    return image - tf.reduce_mean(image)


def _asked(function: Function, images: list[bytes] = PHOTOS) -> tuple[live.LivePipeline, Shrinking]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    return source, shrinking.ask(source, source.pipeline["n1"])


def _edited(source: live.LivePipeline, asked: Shrinking, *, apart: float | None = None) -> Any:
    bound = asked.most_apart if apart is None else apart
    return apply_edits(source.pipeline, [ReplaceFunction("n1", asked.form, asked.digest, apart=bound)])


@pytest.mark.parametrize("name", YES)
def test_close_and_all_else_the_same(name: str) -> None:
    source, found = _asked(YES[name])
    assert found.why_not == "" and found.form is FunctionForm.HALF_SCALE and found.seen == "15 elements: all"
    assert 0 < found.mean_apart < 0.03 and found.mean_apart < found.most_apart < 0.6
    edited = _edited(source, found)
    made = replay(source, edited)
    assert made.element_spec == source.dataset.element_spec
    proof = compare(source, edited, Safety.APPROXIMATE, elements=15)
    assert proof.proven and [check for check in proof.checks if check.equal is not True] == []
    assert proof.checks[-1].name == "approximation" and "on average" in proof.checks[-1].detail
    assert "other numbers on purpose" in proof.notes[-1]
    assert live.read(made).pipeline["n1"].function.digest == found.digest  # type: ignore[union-attr]


@pytest.mark.parametrize("name", NO)
def test_needs_the_image_as_it_is(name: str) -> None:
    function, reason = NO[name]
    source = live.read(tf.data.Dataset.from_tensor_slices(PHOTOS).map(function))
    told = shrinking.with_answers(source, source.pipeline)["n1"].function
    assert told is not None
    if reason == "nobody asks":
        assert told.shrinking is None
    else:
        assert told.shrinking is not None and reason in told.shrinking.why_not, told.shrinking


def test_the_smallest_scale_that_no_image_is_too_small_for() -> None:
    resize = lambda size: lambda data: tf.image.resize(_decode(data), size)  # noqa: E731
    assert _asked(resize((24, 31)))[1].form is FunctionForm.QUARTER_SCALE
    assert _asked(resize((12, 15)))[1].form is FunctionForm.EIGHTH_SCALE
    assert "0.8 times as large" in _asked(resize((24, 31)), [*PHOTOS, photo("4:2:0", 20, 90)])[1].why_not


def test_images_that_become_others_and_that_are_none() -> None:
    source = live.read(tf.data.Dataset.from_tensor_slices([*PHOTOS, png(99, 99)]).map(YES["bilinear"]))
    assert "1 of 16 elements looked at are no JPEG" in shrinking.ask(source, source.pipeline["n1"]).why_not
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[:, ::2] = 255
    data = tf.io.encode_jpeg(stripes, quality=95, chroma_downsampling=False).numpy()
    assert "of the greatest value apart on average" in _asked(YES["nearest"], [data])[1].why_not


def test_further_apart_than_the_plan_says_is_rejected() -> None:
    source, found = _asked(YES["bilinear"])
    proof = compare(source, _edited(source, found, apart=found.most_apart / 2), Safety.APPROXIMATE, elements=15)
    assert not proof.equal and proof.why.startswith("approximation: map gives numbers apart by up to")


def _another_function(monkeypatch: pytest.MonkeyPatch, attribute: str, value: int) -> None:
    right = shrinking._scaled

    def wrong(graph_def: Any, decode: Any, ratio: int) -> Any:
        for node in graph_def.node:
            if node.name == decode.name and ratio > 1:
                node.attr[attribute].i = value
        return right(graph_def, decode, ratio)

    monkeypatch.setattr(shrinking, "_scaled", wrong)


def test_another_function_than_the_plan_names_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    source, found = _asked(lambda data: tf.image.resize(tf.io.decode_jpeg(data), SIZE), PHOTOS[:2])
    edited = _edited(source, found, apart=1.0)
    _another_function(monkeypatch, "channels", 3)
    proof = compare(source, edited, Safety.APPROXIMATE, elements=15)
    assert not proof.equal and "another function than the plan names" in proof.why


def test_whatever_else_a_plan_changes_must_be_the_same() -> None:
    """What is allowed to the decoder is allowed to nobody else."""
    source, found = _asked(YES["bilinear"])
    other = Insert("n1", "take", "take@n1", {"count": 3})
    edited = apply_edits(_edited(source, found), [other])
    assert not compare(source, edited, Safety.APPROXIMATE, elements=15).equal
    allowed = compare(source, _edited(source, found), Safety.EXACT, elements=15)
    assert allowed.equal  # bit by bit, with that scale in both


def test_what_the_default_of_dct_method_is() -> None:
    """TensorFlow takes the fast way where the script names none: nothing is left to offer."""
    fast, accurate = (
        [_decode(data, dct_method=method).numpy() for data in PHOTOS] for method in ("INTEGER_FAST", "INTEGER_ACCURATE")
    )
    given = [_decode(data).numpy() for data in PHOTOS]
    assert all(map(np.array_equal, given, fast)) and not all(map(np.array_equal, given, accurate))


def test_what_could_be_shrunk_is_measured_and_nothing_else() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([photo("4:2:0", 640, 640, seed=1)] * 4).map(YES["bilinear"])
    source = live.read(dataset.map(lambda image: image * 2.0).batch(2))
    told = shrinking.with_answers(source, source.pipeline)
    shares = measure_shrinking_shares(source, told)
    assert shares.keys() == {"n1"} and 0 < shares["n1"] < 1


BEFORE = "import tensorflow as tf\nfrom tests.tf.test_shrinking import PHOTOS\n"
SOURCES: dict[str, tuple[str, str]] = {
    "a function": (
        """
        def load(data):
            image = tf.io.decode_jpeg(data, channels=3)
            return tf.image.resize(image, (48, 40)) / 255.0
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS).map(load).batch(4)
        """,
        "    image = tf.io.decode_jpeg(data, channels=3, ratio=2)\n",
    ),
    "in the call of map": (
        """
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS)
        ds = ds.map(lambda data: tf.image.resize(tf.image.decode_jpeg(data), (24, 31)))
        """,
        "tf.image.resize(tf.image.decode_jpeg(data, ratio=4), (24, 31))",
    ),
    "a helper, over several lines": (
        """
        def decode(data):
            return tf.io.decode_jpeg(
                data,
                channels=3,  # colours
            )

        def load(data):
            return tf.image.resize(decode(data), (48, 40), antialias=True)
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS).map(load)
        """,
        "        channels=3,  # colours\n        ratio=2,\n",
    ),
}


def _rewrite(source: live.LivePipeline) -> Rewrite:
    told = shrinking.with_answers(source, source.pipeline)
    (found,) = decode_smaller.propose(RuleContext(told))
    assert isinstance(found, Rewrite)
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_the_patched_source_makes_the_pipeline_of_the_plan(name: str, tmp_path: Path) -> None:
    text, line = SOURCES[name]
    sample = Sample(tmp_path, text)
    sample.file.write_text(BEFORE + sample.file.read_text().lstrip("\n"))
    source = live.read(sample.run().ds)
    rewrite = _rewrite(source)
    emission = emit(source.pipeline, Plan("tuned", (rewrite,)))
    assert emission.not_covered == ()
    _, new = emission.files[str(sample.file)]
    assert line in new and new.count("ratio=") == 1
    sample.file.write_text(new)
    linecache.clearcache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        patched = live.read(sample.run().ds)
    edited = apply_edits(source.pipeline, rewrite.edits)
    assert first_difference(patched.pipeline, edited) == ""
    pairs = zip(replay(source, edited).as_numpy_iterator(), patched.dataset.as_numpy_iterator(), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


REFUSED: dict[str, tuple[str, str]] = {
    "a helper that others use": (
        """
        def decode(data):
            return tf.io.decode_jpeg(data, channels=3)
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS).map(lambda data: tf.image.resize(decode(data), (48, 40)))
        first = decode(PHOTOS[0])
        """,
        "decode is used in 2 places",
    ),
    "a name of its own": (
        """
        decode = tf.io.decode_jpeg
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS).map(lambda data: tf.image.resize(decode(data), (48, 40)))
        """,
        "0 plain calls of decode_jpeg",
    ),
    "arguments that nobody sees": (
        """
        how = {"channels": 3}
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS)
        ds = ds.map(lambda data: tf.image.resize(tf.io.decode_jpeg(data, **how), (48, 40)))
        """,
        "none can be added to",
    ),
    "the ratio by its place": (
        """
        ds = tf.data.Dataset.from_tensor_slices(PHOTOS)
        ds = ds.map(lambda data: tf.image.resize(tf.io.decode_jpeg(data, 3, 1), (48, 40)))
        """,
        "none can be added to",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_said_in_source_stays_in_the_plan(name: str, tmp_path: Path) -> None:
    text, why = REFUSED[name]
    sample = Sample(tmp_path, text)
    sample.file.write_text(BEFORE + sample.file.read_text().lstrip("\n"))
    source = live.read(sample.run().ds)
    emission = emit(source.pipeline, Plan("tuned", (_rewrite(source),)))
    assert emission.files == {} and why in emission.not_covered[0].why
