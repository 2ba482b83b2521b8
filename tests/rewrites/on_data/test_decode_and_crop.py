"""Which functions could decode only the window they crop, with equal results, and which at a smaller scale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.usefixtures("patient_looks")]

from benchmarks import known_costs
from pipetune import tensorflow_private
from pipetune.core.edits import Edit, ReplaceFunction, Safety, apply_edits
from pipetune.core.functions import CropDecoding, FunctionVariant, ScaledDecoding
from pipetune.core.results import Comparison
from pipetune.measure.variant_costs import measure_shares
from pipetune.pipelines import live, replay
from pipetune.pipelines.decode_and_crop import MARGIN_PIXELS, edit_graph
from pipetune.probes import annotate_graph_edits, edited_graphs
from pipetune.rewrites.decode_and_crop import propose as propose_crop
from tests.default_run import cases
from tests.rewrites.on_data import patching
from tests.rewrites.on_data.jpegs import KINDS, jpeg, photo, png

Function = Callable[..., Any]

_DRAW = np.random.default_rng(5)
_SIZES = [(int(h), int(w)) for h, w in _DRAW.integers(33, 70, (21, 2))]
IMAGES = [jpeg(KINDS[index % len(KINDS)], *size, seed=index) for index, size in enumerate(_SIZES)]
MEAN = tf.constant(_DRAW.uniform(0, 255, (24, 20, 3)).astype(np.float32))


def _decode(data: Any, **given: Any) -> Any:
    return tf.io.decode_jpeg(data, **{"channels": 3, **given})


def decoded(cut: Function) -> Function:
    """The function that decodes an image and then calls `cut`."""
    return lambda data: cut(_decode(data))


def _asked(function: Function, images: list[bytes] = IMAGES) -> tuple[live.LivePipeline, CropDecoding]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    node = next(one for one in source.pipeline if one.op == "map")
    return source, edited_graphs.probe_crop(source, node)


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
    "two images": (lambda data: (_decode(data)[:20, :20], _decode(data, channels=1)[:9, :9]), "decodes 2 images"),
    "less a mean image": (decoded(lambda x: (tf.cast(x, tf.float32) - [1.0, 2.0, 3.0])[:9, :9]), "Sub"),
    "flipped before": (decoded(lambda x: tf.image.flip_left_right(x)[:9, :9]), "ReverseV2"),
    "flipped by chance before": (decoded(lambda x: tf.image.random_flip_left_right(x)[:9, :9]), "uses the whole image"),
    "every other pixel": (decoded(lambda x: x[::2, ::2]), _NO_WINDOW),
    "one row": (decoded(lambda x: x[4]), _NO_WINDOW),
    "a new axis": (decoded(lambda x: x[tf.newaxis, :9, :9]), _NO_WINDOW),
    "with dots": (decoded(lambda x: x[..., :2]), _NO_WINDOW),
    "at a smaller scale": (lambda data: tf.io.decode_jpeg(data, channels=3, ratio=2)[:9, :9], "ratio"),
    "truncated": (lambda data: tf.io.decode_jpeg(data, channels=3, try_recover_truncated=True)[:9, :9], "truncated"),
    "in a branch": (
        lambda data: tf.cond(
            tf.strings.length(data) > 9, lambda: _decode(data)[:9, :9], lambda: tf.zeros([9, 9, 3], tf.uint8)),
        "inside a branch"),
    "in a traced function": (tf.function(lambda data: _decode(data)[:9, :9]), "inside a branch, a loop or a traced"),
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
@pytest.mark.parametrize(("kind", "columns", "margin", "differs"), [
    *((kind, 2, 0, kind in ("4:2:0", "4:2:2")) for kind in ("4:2:0", "4:2:2", "4:4:4", "gray")),
    ("4:2:0", 2, 1, False),
    ("4:2:0", 1, 1, True),  # a single column needs both pixels of the margin
])  # fmt: skip
def test_subsampled_colours_differ_without_a_margin(kind: str, columns: int, margin: int, differs: bool) -> None:
    found = _different(*_windows(kind, columns=columns), margin=margin)
    assert found > 20 if differs else found == 0


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
def test_elements_that_are_not_jpegs_are_found_anywhere_in_the_data(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edited_graphs, "_SECONDS", 60.0)  # beside other processes, a second may end at the start
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
    return edited_graphs.probe_crop(source, source.pipeline.output)


def test_unreadable_data_is_refused() -> None:
    missing = _probed(tf.data.Dataset.from_tensor_slices(["nowhere"]).map(tf.io.read_file))
    assert "no element could be read (NotFoundError)" in missing.why_not
    none = _probed(tf.data.Dataset.from_tensor_slices(IMAGES).take(0))
    assert "no element could be read" in none.why_not


def test_slow_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edited_graphs, "_SECONDS", 1.0)
    slow = _probed(known_costs.with_sleep(tf.data.Dataset.from_tensor_slices(IMAGES), 400_000))
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
    found = edited_graphs.probe_crop(source, source.pipeline.output)
    assert found.why_not == "" and _proven(source, found, Safety.STATISTICAL).proven


ABOVE = "import tensorflow as tf\nfrom tests.rewrites.on_data.test_decode_and_crop import IMAGES\n"

SCRIPT = """
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
    """
"""A random crop behind a helper that decodes."""

PATCHED = """
def augment(data, label):
    image = random_crop_jpeg(data, [SIDE, SIDE, 3], channels=3)
    image = tf.image.resize(image, [12, 12])
"""


def test_patched_source_returns_planned_elements(tmp_path: Path) -> None:
    sample = patching.script(tmp_path, SCRIPT, above=ABOVE)
    source, (rewrite,) = patching.proposed(propose_crop, sample.run().ds, annotate_graph_edits)
    new = patching.check_patch(sample, source, rewrite, expected=PATCHED)
    assert new.startswith(ABOVE) and new.count("def crop_jpeg(") == 1
    planned = patching.digests(replay.replay(source, apply_edits(source.pipeline, rewrite.edits)))
    assert patching.digests(source.dataset) == planned


# -- at a smaller scale

PHOTOS = [photo(("4:2:0", "4:4:4", "gray")[number % 3], 97 + number, 140 - number, seed=number) for number in range(15)]
SIZE = (48, 40)


YES: dict[str, Function] = {
    "bilinear": lambda data: tf.image.resize(_decode(data), SIZE),
    "nearest": lambda data: tf.image.resize(_decode(data), SIZE, "nearest"),
    "area": lambda data: tf.image.resize(_decode(data), SIZE, "area"),
    "as older TensorFlow does": lambda data: tf.compat.v1.image.resize_images(_decode(data), SIZE),
    "normalised": (
        lambda data: (tf.image.resize(tf.image.convert_image_dtype(_decode(data), tf.float32), SIZE) - 0.5) / 0.25),
    "one channel, and the bytes": lambda data: (tf.image.resize(tf.io.decode_jpeg(data, channels=1), SIZE), data),
    "random behind it": (
        lambda data: tf.image.random_flip_left_right(tf.image.resize(_decode(data), SIZE)) + tf.random.uniform([])),
}  # fmt: skip
NO: dict[str, tuple[Function, str]] = {
    "too large": (lambda data: tf.image.resize(_decode(data), (48, 71)), "1.8 times as large"),
    "its size": (lambda data: (tf.image.resize(_decode(data), SIZE), tf.shape(_decode(data))), "decodes 2 images"),
    "its shape given on": (decoded(lambda x: (tf.image.resize(x, SIZE), tf.shape(x))), "uses the size of the image"),
    "proportions kept": (lambda data: tf.image.resize(_decode(data), SIZE, preserve_aspect_ratio=True), "not fixed"),
    "padded": (lambda data: tf.image.resize_with_pad(_decode(data), *SIZE), "not fixed"),
    "cropped": (lambda data: _decode(data)[:40, :40], "uses the whole image"),
    "given on": (_decode, "returns the whole image"),
    "used twice": (decoded(lambda x: (tf.image.resize(x, SIZE), tf.image.resize(x, (8, 8)))), "is used by"),
    "turned first": (lambda data: tf.image.resize(tf.transpose(_decode(data), [1, 0, 2]), SIZE), "Transpose"),
    "a mean first": (
        decoded(lambda x: tf.image.resize(tf.cast(x, tf.float32) - tf.reduce_mean(tf.cast(x, tf.float32)), SIZE)),
        "is used by"),
    "a scale already": (lambda data: tf.image.resize(_decode(data, ratio=2), (20, 20)), "smaller scale"),
    "cut off images": (lambda data: tf.image.resize(_decode(data, try_recover_truncated=True), SIZE), "truncated"),
    "any format": (lambda data: tf.image.resize(tf.io.decode_png(data), SIZE), "nobody asks"),
}  # fmt: skip


def _scaled(function: Function, images: list[bytes] = PHOTOS) -> tuple[live.LivePipeline, ScaledDecoding]:
    source = live.read(tf.data.Dataset.from_tensor_slices(images).map(function).prefetch(1))
    return source, edited_graphs.probe_scale(source, source.pipeline["n1"])


@pytest.mark.parametrize("name", YES)
def test_scaled_images_differ_slightly(name: str) -> None:
    source, found = _scaled(YES[name])
    assert found.why_not == "" and found.ratio == 2 and found.seen == "15 elements: all"
    assert 0 < found.mean_apart < 0.03 and found.mean_apart < found.most_apart < 0.6
    smaller = tf.data.Dataset.from_tensor_slices(PHOTOS).map(
        edited_graphs.decode_at_scale(source.datasets["n1"]._map_func, found.ratio).function
    )
    assert len(list(smaller)) == len(PHOTOS)


@pytest.mark.parametrize(("function", "reason"), NO.values(), ids=NO)
def test_function_that_needs_full_resolution_is_refused(function: Function, reason: str) -> None:
    source = live.read(tf.data.Dataset.from_tensor_slices(PHOTOS).map(function))
    told = edited_graphs.annotate_scales(source, source.pipeline)["n1"].function
    assert told is not None
    if reason == "nobody asks":
        assert told.shrinking is None
    else:
        assert told.shrinking is not None and reason in told.shrinking.why_not, told.shrinking


def test_scale_is_limited_by_the_smallest_image() -> None:
    resize = lambda size: lambda data: tf.image.resize(_decode(data), size)  # noqa: E731
    assert _scaled(resize((24, 31)))[1].ratio == 4
    assert _scaled(resize((12, 15)))[1].ratio == 8
    assert "0.8 times as large" in _scaled(resize((24, 31)), [*PHOTOS, photo("4:2:0", 20, 90)])[1].why_not


def test_large_differences_and_other_formats_are_refused() -> None:
    found = _scaled(YES["bilinear"], [*PHOTOS, png(99, 99)])[1]
    assert "1 of the 16 elements examined are not JPEGs" in found.why_not
    stripes = np.zeros((96, 96, 3), np.uint8)
    stripes[:, ::2] = 255
    data = tf.io.encode_jpeg(stripes, quality=95, chroma_downsampling=False).numpy()
    assert "of the greatest value apart on average" in _scaled(YES["nearest"], [data])[1].why_not


def test_default_dct_method_is_the_fast_one() -> None:
    """TensorFlow uses the fast method unless the script names one: there is nothing to propose."""
    given, fast, accurate = (
        [_decode(data, dct_method=method).numpy() for data in PHOTOS]
        for method in ("", "INTEGER_FAST", "INTEGER_ACCURATE")
    )
    assert all(map(np.array_equal, given, fast)) and not all(map(np.array_equal, given, accurate))


def test_saved_share_is_measured_for_shrinkable_maps_only() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([photo("4:2:0", 640, 640, seed=1)] * 4).map(YES["bilinear"])
    source = live.read(dataset.map(lambda image: image * 2.0).batch(2))
    told = edited_graphs.annotate_scales(source, source.pipeline)
    shares = measure_shares(source, told, seconds=60)
    assert shares.keys() == {"n1"} and 0 < shares["n1"].shrinking < 1
