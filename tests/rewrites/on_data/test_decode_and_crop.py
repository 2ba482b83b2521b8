"""Which functions could decode only the window they crop, with equal results, and which need the whole image."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from pipetune import tensorflow_private
from pipetune.core.edits import ReplaceFunction, Rewrite, Safety, apply_edits
from pipetune.core.functions import CropDecoding, FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import Comparison
from pipetune.equality.compare import compare
from pipetune.pipelines import live, replay
from pipetune.pipelines.decode_and_crop import MARGIN_PIXELS, edit_graph
from pipetune.probes import decode_and_crop
from pipetune.probes.annotation import annotate_graph_edits
from pipetune.rewrites.decode_and_crop import propose as propose_crop
from tests.rewrites.on_data.jpegs import KINDS, jpeg, png
from tests.rewrites.on_data.patching import Sample, check_patch, digests, patched_text, proposed, rerun, script

Function = Callable[..., Any]

_DRAW = np.random.default_rng(5)
_SIZES = [(int(h), int(w)) for h, w in _DRAW.integers(33, 70, (21, 2))]
IMAGES = [jpeg(KINDS[index % len(KINDS)], *size, seed=index) for index, size in enumerate(_SIZES)]
MEAN = tf.constant(_DRAW.uniform(0, 255, (24, 20, 3)).astype(np.float32))


def _decode(data: Any) -> Any:
    return tf.io.decode_jpeg(data, channels=3)


def _asked(function: Function, images: list[bytes] = IMAGES) -> tuple[live.LivePipeline, CropDecoding]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    node = next(one for one in source.pipeline if one.op == "map")
    return source, decode_and_crop.probe_crop(source, node)


def _edited(source: live.LivePipeline, asked: CropDecoding) -> Pipeline:
    node = next(one.id for one in reversed(source.pipeline.nodes) if one.op == "map")
    return apply_edits(source.pipeline, [ReplaceFunction(node, FunctionVariant.DECODE_AND_CROP, asked.digest)])


def _proven(source: live.LivePipeline, asked: CropDecoding, safety: Safety) -> Comparison:
    return compare(source, _edited(source, asked), safety, elements=len(IMAGES))


def _slice_of_indices(data: Any) -> Any:
    image = _decode(data)
    top, left = tf.shape(image)[0] // 3, tf.shape(image)[1] // 4
    return image[top : top + 9, left : left + 17]


def _converted_first(data: Any) -> Any:
    image = tf.image.convert_image_dtype(_decode(data), tf.float32)
    return tf.image.crop_to_bounding_box(image, 3, 4, 24, 20)


def _shape_too(data: Any) -> Any:
    image = _decode(data)
    return image[2:30, 3:30], tf.shape(image), tf.shape(image, out_type=tf.int64)


def _channels_of_the_file(data: Any) -> Any:
    image = tf.io.decode_jpeg(data)
    return tf.shape(image), image[tf.shape(image)[0] // 2 :, 4:20]


EXACT: dict[str, Function] = {
    "crop_to_bounding_box": lambda data: tf.image.crop_to_bounding_box(_decode(data), 3, 4, 24, 20),
    "slice, to the end": lambda data: tf.slice(_decode(data), [7, 9, 1], [12, -1, 2]),
    "slice, 64 bits": lambda data: tf.slice(
        _decode(data), tf.constant([7, 9, 0], tf.int64), tf.constant([-1, 20, -1], tf.int64)
    ),
    "indices from the shape": _slice_of_indices,
    "indices beyond the image": lambda data: _decode(data)[10:1000, -1000:30, :2],
    "indices of nothing": lambda data: _decode(data)[30:10, 5:],
    "converted first": _converted_first,
    "cropped or padded": lambda data: tf.image.resize_with_crop_or_pad(_decode(data), 48, 48),
    "a captured tensor": lambda data: (
        tf.cast(tf.image.crop_to_bounding_box(_decode(data), 3, 4, 24, 20), tf.float32) - MEAN
    ),
    "the shape is asked for too": _shape_too,
    "one channel, and the bytes": lambda data: (tf.io.decode_jpeg(data, channels=1)[3:30, 2:33], data),
    "a stateless random crop": lambda data: tf.image.stateless_random_crop(_decode(data), [24, 20, 3], seed=(1, 2)),
    "channels of the file": _channels_of_the_file,
}


def _random_crop(data: Any) -> Any:
    image = tf.image.random_crop(_decode(data), [24, 20, 3])
    image = tf.image.resize(image, [12, 12])
    return tf.image.random_flip_left_right(image) + tf.random.uniform([])


def _seeded(data: Any) -> Any:
    return tf.image.random_crop(_decode(data), [24, 20, 3], seed=4)


def _distorted(data: Any) -> Any:
    image = _decode(data)
    box = tf.zeros([1, 0, 4])
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image), box, use_image_if_no_bounding_boxes=True, min_object_covered=0.1
    )
    image = tf.image.resize(tf.slice(image, begin, size), [8, 8])
    return tf.image.random_flip_left_right(image)


def _own_offset(data: Any) -> Any:
    image = _decode(data)
    top = tf.random.uniform([], 0, tf.shape(image)[0] - 16, tf.int32)
    left = tf.random.uniform([], 0, tf.shape(image)[1] - 16, tf.int32)
    return tf.image.crop_to_bounding_box(image, top, left, 16, 16)


RANDOM: dict[str, Function] = {
    "random_crop": _random_crop,
    "random_crop with a seed": _seeded,
    "sample_distorted_bounding_box": _distorted,
    "its own offset": _own_offset,
}


def _two_views(data: Any) -> Any:
    image = _decode(data)
    return image[:20, :20], image[5:25, 5:25]


def _also_resized(data: Any) -> Any:
    image = _decode(data)
    return image[:20, :20], tf.image.resize(image, [8, 8])


def _given_on(data: Any) -> Any:
    image = _decode(data)
    return image[:20, :20], image


def _by_the_mean(data: Any) -> Any:
    image = tf.cast(_decode(data), tf.float32)
    return (image - tf.reduce_mean(image))[:20, :20]


def _in_a_branch(data: Any) -> Any:
    return tf.cond(tf.strings.length(data) > 9, lambda: _decode(data)[:9, :9], lambda: tf.zeros([9, 9, 3], tf.uint8))


def _waits(data: Any) -> Any:
    image = _decode(data)
    with tf.control_dependencies([image]):
        return image[:9, :9] + tf.constant(1, tf.uint8)


NOT: dict[str, tuple[Function, str]] = {
    "nothing is cropped": (_decode, "returns the whole image"),
    "resized": (lambda data: tf.image.resize(_decode(data), [9, 9]), "uses the whole image|Cast|ExpandDims|Resize"),
    "two views": (_two_views, "StridedSlice and StridedSlice"),
    "resized too": (_also_resized, "the whole image is used by"),
    "given on too": (_given_on, "used by Identity and StridedSlice"),
    "two images": (
        lambda data: (_decode(data)[:20, :20], tf.io.decode_jpeg(data, channels=1)[:9, :9]), "decodes 2 images"),
    "less its mean": (_by_the_mean, "the whole image is used by"),
    "less a mean image": (lambda data: (tf.cast(_decode(data), tf.float32) - [1.0, 2.0, 3.0])[:9, :9], "Sub"),
    "flipped before": (lambda data: tf.image.flip_left_right(_decode(data))[:9, :9], "ReverseV2"),
    "flipped by chance before": (
        lambda data: tf.image.random_flip_left_right(_decode(data))[:9, :9], "uses the whole image"),
    "every other pixel": (lambda data: _decode(data)[::2, ::2], "something other than a window"),
    "backwards": (lambda data: _decode(data)[::-1], "something other than a window"),
    "one row": (lambda data: _decode(data)[4], "something other than a window"),
    "a new axis": (lambda data: _decode(data)[tf.newaxis, :9, :9], "something other than a window"),
    "with dots": (lambda data: _decode(data)[..., :2], "something other than a window"),
    "gathered": (lambda data: tf.gather(_decode(data), [1, 2]), "GatherV2"),
    "at a smaller scale": (lambda data: tf.io.decode_jpeg(data, channels=3, ratio=2)[:9, :9], "ratio"),
    "cut off images too": (
        lambda data: tf.io.decode_jpeg(data, channels=3, try_recover_truncated=True)[:9, :9], "truncated"),
    "in a branch": (_in_a_branch, "inside a branch"),
    "in a traced function": (tf.function(lambda data: _decode(data)[:9, :9]), "inside a branch, a loop or a traced"),
    "in a loop": (
        lambda data: tf.map_fn(lambda one: _decode(one)[:9, :9], data[tf.newaxis], tf.uint8), "inside a branch"),
    "waited for": (_waits, "has a control dependency on the whole image"),
}  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", EXACT)
def test_cropped_decoding_is_bit_equal(name: str) -> None:
    source, found = _asked(EXACT[name])
    assert found.why_not == "" and found.digest and found.seen == "21 elements: all"
    proof = _proven(source, found, Safety.EXACT)
    assert proof.proven and [check for check in proof.checks if check.equal is not True] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RANDOM)
def test_random_crops_keep_their_draws_bit_equal(name: str) -> None:
    source, found = _asked(RANDOM[name])
    assert found.why_not == "" and found.digest
    proof = _proven(source, found, Safety.STATISTICAL)
    assert proof.proven and [check for check in proof.checks if check.equal is not True] == []
    assert not any("be matched" in note for note in proof.notes)


@pytest.mark.parametrize("name", NOT)
def test_function_that_needs_whole_image_is_refused(name: str) -> None:
    function, reason = NOT[name]
    why = _asked(function)[1].why_not
    assert why and any(part in why for part in reason.split("|")), why


def _cut(data: Any, top: Any, left: Any, height: Any, width: Any) -> Any:
    return tf.slice(_decode(data), [top, left, 0], [height, width, -1])


def _windows(kind: str, *, columns: int = 2) -> tuple[Any, Any]:
    """Windows at every border and at random places of images of one kind, and the function that cuts them out.

    Args:
        columns: the least width of each window.
    """
    draw = np.random.default_rng(8)
    rows = []
    for number in range(12):
        height, width = (int(one) for one in draw.integers(17, 60, 2))
        data = jpeg(kind, height, width, seed=number)
        boxes = [(0, 0, height, width), (0, 0, 1, columns), (height - 1, width - columns, 1, columns)]
        for _ in range(12):
            high, wide = int(draw.integers(1, height + 1)), int(draw.integers(columns, width + 1))
            top, left = int(draw.integers(0, height - high + 1)), int(draw.integers(0, width - wide + 1))
            boxes += [(top, left, high, wide), (0, left, high, wide), (height - high, 0, high, wide)]
            boxes += [(top, width - wide, high, wide), (top, 0, high, columns), (top, width - columns, high, columns)]
        rows += [(data, *box) for box in boxes]
    above = tf.data.Dataset.from_tensor_slices(tuple(list(column) for column in zip(*rows, strict=True)))
    return above, above.map(_cut)._map_func


def _different(above: Any, traced: Any, *, margin: int) -> int:
    with tensorflow_private.reusing_traced_functions():
        pairs = tf.data.Dataset.zip((above.map(traced), above.map(edit_graph(traced, margin=margin))))
    return sum(not np.array_equal(one, other) for one, other in pairs.as_numpy_iterator())


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "columns"), [*((kind, 2) for kind in KINDS), ("4:2:0", 1)])
def test_windows_anywhere_in_the_image_are_equal(kind: str, columns: int) -> None:
    above, traced = _windows(kind, columns=columns)
    assert _different(above, traced, margin=MARGIN_PIXELS) == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize(("kind", "differs"), [("4:2:0", True), ("4:2:2", True), ("4:4:4", False), ("gray", False)])
def test_subsampled_colours_differ_without_a_margin(kind: str, differs: bool) -> None:
    above, traced = _windows(kind)
    assert (_different(above, traced, margin=0) > 20) is differs


@pytest.mark.exhaustive
def test_margin_of_one_pixel_fails_only_for_a_single_column() -> None:
    assert _different(*_windows("4:2:0"), margin=1) == 0
    assert _different(*_windows("4:2:0", columns=1), margin=1) > 20


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["crop_to_bounding_box", "indices from the shape", "random_crop", "its own offset"])
def test_plan_without_a_margin_is_rejected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = functools.partial(edit_graph, margin=0)
    monkeypatch.setattr("pipetune.pipelines.decode_and_crop.edit_graph", narrow)
    source, found = _asked((EXACT | RANDOM)[name])
    proof = _proven(source, found, Safety.STATISTICAL if name in RANDOM else Safety.EXACT)
    assert not proof.proven and not proof.equal


@pytest.mark.parametrize("kind", KINDS)
def test_stored_jpeg_shape_matches_decoded_shape(kind: str) -> None:
    """Height and width as stored; of four channels, three are decoded unless others are requested."""
    data = jpeg(kind, 19, 33)
    height, width, stored = tf.io.extract_jpeg_shape(data).numpy()
    assert tf.io.decode_jpeg(data).shape == (height, width, min(stored, 3)) == (19, 33, 1 if kind == "gray" else 3)
    assert tf.io.decode_jpeg(data, channels=3).shape == (19, 33, 3)


def test_random_seeds_are_kept() -> None:
    tf.random.set_seed(11)
    source, found = _asked(_random_crop)
    tuned = replay.replay(source, _edited(source, found))
    pairs = zip(source.dataset.as_numpy_iterator(), tuned.as_numpy_iterator(), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def test_window_outside_of_the_image_still_raises() -> None:
    source, found = _asked(lambda data: tf.slice(_decode(data), [0, 0, 0], [50, 50, 3]))
    assert found.why_not == ""
    assert _proven(source, found, Safety.EXACT).equal
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(source.dataset)
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(replay.replay(source, _edited(source, found)))


@pytest.mark.parametrize("place", [0, 300, 599])
def test_elements_that_are_not_jpegs_are_found_anywhere_in_the_data(place: int) -> None:
    images = [IMAGES[0]] * 600
    images[place] = png(40, 40)
    _, found = _asked(_seeded, images)
    assert "1 of the 48 elements examined are not JPEGs" in found.why_not


def test_other_image_formats_are_decoded_whole() -> None:
    """Not every image is examined before training, so one in another format must not make it fail."""
    images = [IMAGES[0]] * 60 + [png(40, 40)] + [IMAGES[0]] * 100
    crop = lambda data: tf.image.crop_to_bounding_box(_decode(data), 3, 5, 20, 21)  # noqa: E731
    source, found = _asked(crop, images)
    assert found.why_not == ""
    edited = replay.replay(source, _edited(source, found))
    assert all(bool(tf.reduce_all(one == other)) for one, other in zip(source.dataset, edited, strict=True))


def test_unreadable_data_is_refused() -> None:
    missing = live.read(tf.data.Dataset.from_tensor_slices(["nowhere"]).map(tf.io.read_file).map(_seeded))
    assert (
        "no element could be read (NotFoundError)"
        in decode_and_crop.probe_crop(missing, missing.pipeline.output).why_not
    )
    none = live.read(tf.data.Dataset.from_tensor_slices(IMAGES).take(0).map(_seeded))
    assert "no element could be read" in decode_and_crop.probe_crop(none, none.pipeline.output).why_not


def test_slow_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_and_crop, "_SECONDS", 1.0)
    slow = tensorflow_private.with_sleep(tf.data.Dataset.from_tensor_slices(IMAGES), 400_000)
    source = live.read(slow.map(_seeded))
    found = decode_and_crop.probe_crop(source, source.pipeline.output)
    assert "elements could be read in time" in found.why_not


def test_infinite_data_is_sampled_from_its_start() -> None:
    source = live.read(tf.data.Dataset.from_tensor_slices(IMAGES).repeat().map(_seeded))
    assert decode_and_crop.probe_crop(source, source.pipeline.output).seen == "48 elements: start"


def test_files_read_by_the_function_are_examined(tmp_path: Any) -> None:
    paths = []
    for number, image in enumerate(IMAGES):
        (tmp_path / f"{number}.jpg").write_bytes(image)
        paths.append(str(tmp_path / f"{number}.jpg"))

    def read(path: Any, label: Any) -> Any:
        return {"image": tf.image.random_crop(_decode(tf.io.read_file(path)), [24, 20, 3]), "label": label}

    source = live.read(tf.data.Dataset.from_tensor_slices((paths, list(range(21)))).map(read, num_parallel_calls=2))
    found = decode_and_crop.probe_crop(source, source.pipeline.output)
    assert found.why_not == "" and _proven(source, found, Safety.STATISTICAL).proven


@pytest.mark.exhaustive
def test_sparse_elements_and_static_tables_are_supported() -> None:
    names = tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant(["cat", "dog"]))
    table = tf.lookup.StaticHashTable(names, "?")

    def pack(data: Any) -> Any:
        return {"data": data, "sparse": tf.sparse.from_dense([1, 0, 2]), "ragged": tf.ragged.constant([[1], []])}

    def cut(element: Any) -> Any:
        image = tf.image.random_crop(_decode(element["data"]), [24, 20, 3])
        return image, element["sparse"], element["ragged"], table.lookup(element["sparse"].values)

    source = live.read(tf.data.Dataset.from_tensor_slices(IMAGES).map(pack).map(cut))
    found = decode_and_crop.probe_crop(source, source.pipeline.output)
    assert found.why_not == ""
    assert replay.replay(source, _edited(source, found)).element_spec == source.dataset.element_spec
    proof = _proven(source, found, Safety.STATISTICAL)
    assert proof.proven and not any("be matched" in note for note in proof.notes)


ABOVE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_decode_and_crop import IMAGES\n"

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


def _scripted(folder: Path, text: str) -> tuple[Sample, live.LivePipeline, Rewrite]:
    sample = script(folder, text, above=ABOVE)
    source, (rewrite,) = proposed(propose_crop, sample.run().ds, annotate_graph_edits)
    return sample, source, rewrite


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CASES)
def test_patched_source_returns_planned_elements(name: str, tmp_path: Path) -> None:
    text, expected = CASES[name]
    sample, source, rewrite = _scripted(tmp_path, text)
    new = check_patch(sample, source, rewrite, expected=expected)
    assert new.startswith(ABOVE) and new.count("def crop_jpeg(") == 1
    planned = digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    assert digests(source.dataset) == planned


def test_patch_with_other_random_draws_is_detected(tmp_path: Path) -> None:
    """The elements must be compared, because the function's digest differs from the plan's in any case."""
    sample, source, rewrite = _scripted(tmp_path, CASES["a random crop behind a helper that decodes"][0])
    new = patched_text(sample, source, rewrite)
    planned = digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    for wrong in (
        new.replace("begin[:2] - 2", "begin[:2]").replace("size[:2] + 2", "size[:2]"),
        new.replace("maxval=tf.int32.max", "maxval=tf.int32.max - 1000"),
        new.replace("    drawn = ", "    tf.random.uniform([])\n    drawn = "),
    ):
        assert wrong != new
        assert digests(rerun(sample, wrong).ds) != planned
