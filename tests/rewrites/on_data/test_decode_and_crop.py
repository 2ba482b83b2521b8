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
from pipetune.core.edits import Edit, ReplaceFunction, Rewrite, Safety, apply_edits
from pipetune.core.functions import CropDecoding, FunctionVariant
from pipetune.core.results import Comparison
from pipetune.pipelines import live, replay
from pipetune.pipelines.decode_and_crop import MARGIN_PIXELS, edit_graph
from pipetune.probes import decode_and_crop
from pipetune.probes.annotation import annotate_graph_edits
from pipetune.rewrites.decode_and_crop import propose as propose_crop
from tests.default_run import cases
from tests.rewrites.on_data import patching
from tests.rewrites.on_data.jpegs import KINDS, jpeg, png

Function = Callable[..., Any]

_DRAW = np.random.default_rng(5)
_SIZES = [(int(h), int(w)) for h, w in _DRAW.integers(33, 70, (21, 2))]
IMAGES = [jpeg(KINDS[index % len(KINDS)], *size, seed=index) for index, size in enumerate(_SIZES)]
MEAN = tf.constant(_DRAW.uniform(0, 255, (24, 20, 3)).astype(np.float32))


def _decode(data: Any, channels: int = 3) -> Any:
    return tf.io.decode_jpeg(data, channels=channels)


def decoded(cut: Function) -> Function:
    """The function that decodes an image and then calls `cut`."""
    return lambda data: cut(_decode(data))


def _asked(function: Function, images: list[bytes] = IMAGES) -> tuple[live.LivePipeline, CropDecoding]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    node = next(one for one in source.pipeline if one.op == "map")
    return source, decode_and_crop.probe_crop(source, node)


def _edits(source: live.LivePipeline, asked: CropDecoding) -> list[Edit]:
    node = next(one.id for one in reversed(source.pipeline.nodes) if one.op == "map")
    return [ReplaceFunction(node, FunctionVariant.DECODE_AND_CROP, asked.digest)]


def _replayed(source: live.LivePipeline, asked: CropDecoding) -> Any:
    return replay.replay(source, apply_edits(source.pipeline, _edits(source, asked)))


def _proven(source: live.LivePipeline, asked: CropDecoding, safety: Safety) -> Comparison:
    return patching.compared(source, _edits(source, asked), safety, elements=len(IMAGES))


def _slice_of_indices(image: Any) -> Any:
    top, left = tf.shape(image)[0] // 3, tf.shape(image)[1] // 4
    return image[top : top + 9, left : left + 17]


def _channels_of_the_file(data: Any) -> Any:
    image = _decode(data, channels=0)
    return tf.shape(image), image[tf.shape(image)[0] // 2 :, 4:20]


EXACT: dict[str, Function] = {
    "crop_to_bounding_box": decoded(lambda x: tf.image.crop_to_bounding_box(x, 3, 4, 24, 20)),
    "slice, to the end": decoded(lambda x: tf.slice(x, [7, 9, 1], [12, -1, 2])),
    "slice, 64 bits": decoded(lambda x: tf.slice(x, np.array([7, 9, 0]), np.array([-1, 20, -1]))),
    "indices from the shape": decoded(_slice_of_indices),
    "indices beyond the image": decoded(lambda x: x[10:1000, -1000:30, :2]),
    "indices of nothing": decoded(lambda x: x[30:10, 5:]),
    "converted first": decoded(
        lambda x: tf.image.crop_to_bounding_box(tf.image.convert_image_dtype(x, tf.float32), 3, 4, 24, 20)),
    "cropped or padded": decoded(lambda x: tf.image.resize_with_crop_or_pad(x, 48, 48)),
    "a captured tensor": decoded(lambda x: tf.cast(tf.image.crop_to_bounding_box(x, 3, 4, 24, 20), tf.float32) - MEAN),
    "the shape is asked for too": decoded(lambda x: (x[2:30, 3:30], tf.shape(x), tf.shape(x, out_type=tf.int64))),
    "one channel, and the bytes": lambda data: (_decode(data, channels=1)[3:30, 2:33], data),
    "a stateless random crop": decoded(lambda x: tf.image.stateless_random_crop(x, [24, 20, 3], seed=(1, 2))),
    "channels of the file": _channels_of_the_file,
}  # fmt: skip


def _random_crop(data: Any) -> Any:
    image = tf.image.resize(tf.image.random_crop(_decode(data), [24, 20, 3]), [12, 12])
    return tf.image.random_flip_left_right(image) + tf.random.uniform([])


def _distorted(image: Any) -> Any:
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.shape(image), tf.zeros([1, 0, 4]), use_image_if_no_bounding_boxes=True, min_object_covered=0.1
    )
    return tf.image.random_flip_left_right(tf.image.resize(tf.slice(image, begin, size), [8, 8]))


def _own_offset(image: Any) -> Any:
    top, left = (tf.random.uniform([], 0, tf.shape(image)[axis] - 16, tf.int32) for axis in (0, 1))
    return tf.image.crop_to_bounding_box(image, top, left, 16, 16)


_seeded = decoded(lambda x: tf.image.random_crop(x, [24, 20, 3], seed=4))
RANDOM: dict[str, Function] = {
    "random_crop": _random_crop,
    "random_crop with a seed": _seeded,
    "sample_distorted_bounding_box": decoded(_distorted),
    "its own offset": decoded(_own_offset),
}


def _waits(image: Any) -> Any:
    with tf.control_dependencies([image]):
        return image[:9, :9] + tf.constant(1, tf.uint8)


_NO_WINDOW = "something other than a window"

NOT: dict[str, tuple[Function, str]] = {
    "nothing is cropped": (_decode, "returns the whole image"),
    "resized": (decoded(lambda x: tf.image.resize(x, [9, 9])), "uses the whole image|Cast|ExpandDims|Resize"),
    "two views": (decoded(lambda x: (x[:20, :20], x[5:25, 5:25])), "StridedSlice and StridedSlice"),
    "resized too": (decoded(lambda x: (x[:20, :20], tf.image.resize(x, [8, 8]))), "the whole image is used by"),
    "given on too": (decoded(lambda x: (x[:20, :20], x)), "used by Identity and StridedSlice"),
    "two images": (lambda data: (_decode(data)[:20, :20], _decode(data, channels=1)[:9, :9]), "decodes 2 images"),
    "less its mean": (
        decoded(lambda x: (tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32)))[:20, :20]),
        "the whole image is used by"),
    "less a mean image": (decoded(lambda x: (tf.cast(x, tf.float32) - [1.0, 2.0, 3.0])[:9, :9]), "Sub"),
    "flipped before": (decoded(lambda x: tf.image.flip_left_right(x)[:9, :9]), "ReverseV2"),
    "flipped by chance before": (decoded(lambda x: tf.image.random_flip_left_right(x)[:9, :9]), "uses the whole image"),
    "every other pixel": (decoded(lambda x: x[::2, ::2]), _NO_WINDOW),
    "backwards": (decoded(lambda x: x[::-1]), _NO_WINDOW),
    "one row": (decoded(lambda x: x[4]), _NO_WINDOW),
    "a new axis": (decoded(lambda x: x[tf.newaxis, :9, :9]), _NO_WINDOW),
    "with dots": (decoded(lambda x: x[..., :2]), _NO_WINDOW),
    "gathered": (decoded(lambda x: tf.gather(x, [1, 2])), "GatherV2"),
    "at a smaller scale": (lambda data: tf.io.decode_jpeg(data, channels=3, ratio=2)[:9, :9], "ratio"),
    "truncated": (lambda data: tf.io.decode_jpeg(data, channels=3, try_recover_truncated=True)[:9, :9], "truncated"),
    "in a branch": (
        lambda data: tf.cond(
            tf.strings.length(data) > 9, lambda: _decode(data)[:9, :9], lambda: tf.zeros([9, 9, 3], tf.uint8)),
        "inside a branch"),
    "in a traced function": (tf.function(lambda data: _decode(data)[:9, :9]), "inside a branch, a loop or a traced"),
    "in a loop": (lambda data: tf.map_fn(lambda x: _decode(x)[:9, :9], data[tf.newaxis], tf.uint8), "inside a branch"),
    "waited for": (decoded(_waits), "has a control dependency on the whole image"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    cases(
        EXACT | RANDOM,
        default={"crop_to_bounding_box", "indices beyond the image", "a captured tensor", "channels of the file",
                 "random_crop", "its own offset"},
    ),
)  # fmt: skip
def test_cropped_decoding_is_bit_equal_with_the_same_draws(name: str) -> None:
    source, found = _asked((EXACT | RANDOM)[name])
    assert found.why_not == "" and found.digest and found.seen == "21 elements: all"
    safety = Safety.STATISTICAL if name in RANDOM else Safety.EXACT
    proof = patching.check_proven(source, _edits(source, found), safety, elements=len(IMAGES))
    assert not any("be matched" in note for note in proof.notes)


@pytest.mark.parametrize(("function", "reason"), NOT.values(), ids=NOT)
def test_function_that_needs_whole_image_is_refused(function: Function, reason: str) -> None:
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
    pairs = zip(source.dataset.as_numpy_iterator(), _replayed(source, found).as_numpy_iterator(), strict=True)
    assert all(np.array_equal(one, other) for one, other in pairs)


def test_window_outside_of_the_image_still_raises() -> None:
    source, found = _asked(decoded(lambda x: tf.slice(x, [0, 0, 0], [50, 50, 3])))
    assert found.why_not == "" and _proven(source, found, Safety.EXACT).equal
    for dataset in (source.dataset, _replayed(source, found)):
        with pytest.raises(tf.errors.InvalidArgumentError):
            list(dataset)


@pytest.mark.parametrize("place", [0, 300, 599])
def test_elements_that_are_not_jpegs_are_found_anywhere_in_the_data(place: int) -> None:
    images = [IMAGES[0]] * 600
    images[place] = png(40, 40)
    _, found = _asked(_seeded, images)
    assert "1 of the 48 elements examined are not JPEGs" in found.why_not


def test_other_image_formats_are_decoded_whole() -> None:
    """Not every image is examined before training, so one in another format must not make it fail."""
    images = [IMAGES[0]] * 60 + [png(40, 40)] + [IMAGES[0]] * 100
    source, found = _asked(decoded(lambda x: tf.image.crop_to_bounding_box(x, 3, 5, 20, 21)), images)
    assert found.why_not == ""
    pairs = zip(source.dataset, _replayed(source, found), strict=True)
    assert all(bool(tf.reduce_all(one == other)) for one, other in pairs)


def _probed(dataset: Any) -> CropDecoding:
    source = live.read(dataset.map(_seeded))
    return decode_and_crop.probe_crop(source, source.pipeline.output)


def test_unreadable_data_is_refused() -> None:
    missing = _probed(tf.data.Dataset.from_tensor_slices(["nowhere"]).map(tf.io.read_file))
    assert "no element could be read (NotFoundError)" in missing.why_not
    none = _probed(tf.data.Dataset.from_tensor_slices(IMAGES).take(0))
    assert "no element could be read" in none.why_not


def test_slow_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_and_crop, "_SECONDS", 1.0)
    slow = _probed(tensorflow_private.with_sleep(tf.data.Dataset.from_tensor_slices(IMAGES), 400_000))
    assert "elements could be read in time" in slow.why_not


def test_infinite_data_is_sampled_from_its_start() -> None:
    assert _probed(tf.data.Dataset.from_tensor_slices(IMAGES).repeat()).seen == "48 elements: start"


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
    assert found.why_not == "" and _replayed(source, found).element_spec == source.dataset.element_spec
    proof = _proven(source, found, Safety.STATISTICAL)
    assert proof.proven and not any("be matched" in note for note in proof.notes)


ABOVE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_decode_and_crop import IMAGES\n"

CASES: dict[str, tuple[str, str]] = {
    "a random crop behind a helper that decodes": ("""
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
"""),
    "a distorted box, of the shape": ("""
        def cut(data):
            image = tf.io.decode_jpeg(data, channels=3)
            begin, size, _ = tf.image.sample_distorted_bounding_box(
                tf.shape(image), tf.zeros([1, 0, 4]), min_object_covered=0.2, use_image_if_no_bounding_boxes=True
            )
            size = tf.concat([size[:2], [3]], axis=0)
            part = tf.slice(image, begin, size)
            return tf.image.random_flip_up_down(tf.image.resize(part, [9, 9]))

        ds = tf.data.Dataset.from_tensor_slices(IMAGES).map(cut).shuffle(5).batch(4)
        """, "        jpeg_shape(data, channels=3), tf.zeros([1, 0, 4]),"),
}  # fmt: skip


def _scripted(folder: Path, text: str) -> tuple[patching.Sample, live.LivePipeline, Rewrite]:
    sample = patching.script(folder, text, above=ABOVE)
    source, (rewrite,) = patching.proposed(propose_crop, sample.run().ds, annotate_graph_edits)
    return sample, source, rewrite


@pytest.mark.sample(3)
@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_patched_source_returns_planned_elements(text: str, expected: str, tmp_path: Path) -> None:
    sample, source, rewrite = _scripted(tmp_path, text)
    new = patching.check_patch(sample, source, rewrite, expected=expected)
    assert new.startswith(ABOVE) and new.count("def crop_jpeg(") == 1
    planned = patching.digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    assert patching.digests(source.dataset) == planned


def test_patch_with_other_random_draws_is_detected(tmp_path: Path) -> None:
    """The elements must be compared, because the function's digest differs from the plan's in any case."""
    sample, source, rewrite = _scripted(tmp_path, CASES["a random crop behind a helper that decodes"][0])
    new = patching.patched_text(sample, source, rewrite)
    planned = patching.digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    for wrong in (
        new.replace("begin[:2] - 2", "begin[:2]").replace("size[:2] + 2", "size[:2]"),
        new.replace("maxval=tf.int32.max", "maxval=tf.int32.max - 1000"),
        new.replace("    drawn = ", "    tf.random.uniform([])\n    drawn = "),
    ):
        assert wrong != new
        assert patching.digests(patching.rerun(sample, wrong).ds) != planned
