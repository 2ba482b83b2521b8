"""Patches that decode only the cropped window: the exact change, and what is refused with its reason."""

# ruff: noqa: E501 (the cases are source text, as it appears in a file)
from __future__ import annotations

from dataclasses import replace

import libcst as cst
import pytest

from pipetune.core.edits import Safety
from pipetune.core.functions import FunctionFacts, FunctionVariant
from pipetune.source import source_files, user_functions
from pipetune.source.draft import Draft
from pipetune.source.emit import Emission
from tests.source.recorder import emit_variant, recorded

HEAD = "import tensorflow as tf\n\n\n"
TAIL = "\n\ntrain(tf.data.Dataset.range(3).map(augment))\n"

GOLDEN: list[tuple[str, str, str]] = [
    ("two statements",
     "def augment(data):\n    image = tf.io.decode_jpeg(data, channels=3)\n    image = tf.image.random_crop(image, [9, 9, 3])\n    return image\n",
     "def augment(data):\n    image = random_crop_jpeg(data, [9, 9, 3], channels=3)\n    return image\n"),
    ("names of their own, a comment, a statement between",
     "def augment(data):\n    whole = tf.image.decode_jpeg(data, 3)  # RGB\n    size = 9, 9, 3\n    part = tf.image.random_crop(size=size, value=whole)\n    return part\n",
     "def augment(data):\n    size = 9, 9, 3\n    part = random_crop_jpeg(data, size, channels=3)\n    return part\n"),
    ("in one expression, inside another call",
     "def augment(data):\n    return tf.image.resize(tf.image.random_crop(tf.io.decode_jpeg(data['image'], channels=1), (9, 9, 1), seed=5), [3, 3])\n",
     "def augment(data):\n    return tf.image.resize(random_crop_jpeg(data['image'], (9, 9, 1), channels=1, seed=5), [3, 3])\n"),
    ("a helper that only decodes stays for the others",
     "def decode(data, *_, **more):\n    '''A picture.'''\n    return tf.io.decode_jpeg(contents=data, channels=3)\n\n\ndef show(data):\n    return decode(data)\n\n\ndef augment(data):\n    image = decode(data['image'])\n    return tf.image.crop_to_bounding_box(image, 1, 2, target_width=7, target_height=6)\n",
     "def decode(data, *_, **more):\n    '''A picture.'''\n    return tf.io.decode_jpeg(contents=data, channels=3)\n\n\ndef show(data):\n    return decode(data)\n\n\n<helpers>def augment(data):\n    return crop_jpeg(data['image'], [1, 2, 0], [6, 7, 3], channels=3)\n"),
    ("bytes that are worked out",
     "def augment(path):\n    image = tf.io.decode_jpeg(\n        tf.io.read_file(\n            path\n        ),\n        channels=3,\n    )\n    return tf.image.random_crop(image, [9, 9, 3])\n",
     "def augment(path):\n    contents = (tf.io.read_file(\n            path\n        ))\n    return random_crop_jpeg(contents, [9, 9, 3], channels=3)\n"),
    ("in a function that the function calls",
     "def load(data):\n    image = tf.io.decode_jpeg(data, channels=3)\n    return tf.image.random_crop(image, [9, 9, 3])\n\n\ndef augment(data):\n    return load(data) / 255\n",
     "def load(data):\n    return random_crop_jpeg(data, [9, 9, 3], channels=3)\n\n\ndef augment(data):\n    return load(data) / 255\n"),
    ("the shape is asked for, and a slice",
     "def augment(data):\n    image = tf.io.decode_jpeg(data, channels=3)\n    high, wide = tf.shape(image)[0], tf.shape(image)[1]\n    return tf.slice(image, [high - 9, wide // 2, 0], [8, 9, 3])\n",
     "def augment(data):\n    high, wide = jpeg_shape(data, channels=3)[0], jpeg_shape(data, channels=3)[1]\n    return crop_jpeg(data, [high - 9, wide // 2, 0], [8, 9, 3], channels=3)\n"),
    ("the same name for bytes and image, below a comment",
     "# Pictures.\n# Small ones.\n@staticmethod\ndef augment(x):\n    x = tf.io.decode_jpeg(x, channels=3)\n    x = tf.image.random_crop(x, [9, 9, 3])\n    return x\n",
     "# Pictures.\n# Small ones.\n@staticmethod\ndef augment(x):\n    x = random_crop_jpeg(x, [9, 9, 3], channels=3)\n    return x\n"),
]  # fmt: skip


def emitted(tmp_path, text: str, *, name: str = "augment", **more) -> tuple[str, Emission]:
    rewrite = ("decode-and-crop", FunctionVariant.DECODE_AND_CROP, Safety.STATISTICAL)
    return emit_variant(tmp_path, text, rewrite, FunctionFacts(name=name, digest="d"), **more)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("name", "before", "after"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_patch_matches_expected_text(tmp_path, name, before, after, newline):
    new, emission = emitted(tmp_path, (HEAD + before + TAIL).replace("\n", newline))
    assert [rejection.why for rejection in emission.not_covered] == []
    new = new.replace(newline, "\n")
    helpers = new[new.index("def crop_jpeg(") :].split("\n\n\n")
    called = ["crop_jpeg", "jpeg_shape", *(["random_crop_jpeg"] if "random_crop_jpeg(" in after else [])]
    written = "".join(helper + "\n\n\n" for helper in helpers[: len(called)])
    assert [helper.split("(")[0] for helper in helpers[: len(called)]] == [f"def {one}" for one in called]
    expected = after if "<helpers>" in after else "<helpers>" + after
    tail = TAIL.replace("map(augment)", "map(augment, num_parallel_calls=2)")
    assert new == HEAD + expected.replace("<helpers>", written) + tail


@pytest.mark.parametrize("line", ["import tensorflow", "import tensorflow as flow"])
def test_tensorflow_alias_is_used(tmp_path, line):
    tf = line.split()[-1]
    text = f"{line}\ndef augment(x):\n    return {tf}.image.random_crop({tf}.io.decode_jpeg(x, channels=3), [9, 9, 3])\ntrain({tf}.data.Dataset.range(3).map(augment))\n"
    new, emission = emitted(tmp_path, text)
    assert emission.not_covered == ()
    assert f"{tf}.io.decode_and_crop_jpeg(contents" in new and "tf." not in new.replace(f"{tf}.", "")


DECODE = "    image = tf.io.decode_jpeg(data, channels=3)\n"
CROP = "    image = tf.image.random_crop(image, [9, 9, 3])\n"

REFUSED: list[tuple[str, str, str]] = [
    ("a lambda that does it all", "augment = lambda data: tf.image.random_crop(tf.io.decode_jpeg(data, channels=3), [9, 9, 3])\n", "contain 0 crops"),
    ("no crop", f"def augment(data):\n{DECODE}    return image\n", "contain 0 crops"),
    ("no decode", f"def augment(image):\n{CROP}    return image\n", "contain 0 crops"),
    ("converted before", f"def augment(data):\n{DECODE}    image = tf.cast(image, tf.float32)\n{CROP}    return image\n", "contain 0 crops"),
    ("several channels unsaid", f"def augment(data):\n    image = tf.io.decode_jpeg(data)\n{CROP}    return image\n", "contain 0 crops"),
    ("channels as in the file", "def augment(data):\n    image = tf.io.decode_jpeg(data, channels=0)\n    return tf.image.crop_to_bounding_box(image, 1, 2, 3, 4)\n", "contain 0 crops"),
    ("channels by a name", f"def augment(data):\n    image = tf.io.decode_jpeg(data, channels=COLOURS)\n{CROP}    return image\n", "contain 0 crops"),
    ("other settings", f"def augment(data):\n    image = tf.io.decode_jpeg(data, channels=3, ratio=2)\n{CROP}    return image\n", "contain 0 crops"),
    ("another decoder", f"def augment(data):\n    image = tf.io.decode_image(data, channels=3)\n{CROP}    return image\n", "contain 0 crops"),
    ("decoded if", f"def augment(data):\n    if BIG:\n    {DECODE}{CROP}    return image\n", "contain 0 crops"),
    ("cropped if", f"def augment(data):\n{DECODE}    if BIG:\n    {CROP}    return image\n", "contain 0 crops"),
    ("cropped in a lambda", f"def augment(data):\n{DECODE}    return (lambda: tf.image.random_crop(image, [9, 9, 3]))()\n", "contain 0 crops"),
    ("stars", f"def augment(data):\n{DECODE}    return tf.image.random_crop(*[image, [9, 9, 3]])\n", "contain 0 crops"),
    ("a name for the op", f"def augment(data):\n{DECODE}    return tf.image.random_crop(image, [9, 9, 3], name='crop')\n", "contain 0 crops"),
    ("a helper that does more", f"def decode(data):\n    print(data)\n    return tf.io.decode_jpeg(data, channels=3)\n\ndef augment(data):\n    image = decode(data)\n{CROP}    return image\n", "contain 0 crops"),
    ("a helper that decodes something else", f"def decode(data):\n    return tf.io.decode_jpeg(OTHER, channels=3)\n\ndef augment(data):\n    image = decode(data)\n{CROP}    return image\n", "contain 0 crops"),
    ("a decorated helper", f"@staticmethod\ndef decode(data):\n    return tf.io.decode_jpeg(data, channels=3)\n\ndef augment(data):\n    image = decode(data)\n{CROP}    return image\n", "contain 0 crops"),
    ("two crops", f"def augment(data):\n{DECODE}    return tf.image.random_crop(image, [9, 9, 3]), tf.image.random_crop(image, [5, 5, 3])\n", "contain 2 crops"),
    ("read in a closure", f"def augment(data):\n{DECODE}    def size():\n        return tf.shape(image)\n    part = tf.image.random_crop(image, [9, 9, 3])\n    return part\n", "image is read elsewhere"),
    ("its shape in a lambda", f"def augment(data):\n{DECODE}    later = lambda: tf.shape(image)\n{CROP}    return image, later\n", "image is read elsewhere"),
    ("its shape in 64 bits", f"def augment(data):\n{DECODE}    shape = tf.shape(image, out_type=tf.int64)\n{CROP}    return image, shape\n", "image is read elsewhere"),
    ("its shape behind the crop", f"def augment(data):\n{DECODE}    part = tf.image.random_crop(image, [9, 9, 3])\n    return part, tf.shape(image)\n", "image is read elsewhere"),
    ("read in the crop", f"def augment(data):\n{DECODE}    return tf.image.random_crop(image, tf.shape(image) // 2)\n", "image is read elsewhere"),
    ("bytes by another name then", f"def augment(data):\n{DECODE}    data = 5\n{CROP}    return image\n", "are reassigned"),
    ("an entry changed then", f"def augment(data):\n    image = tf.io.decode_jpeg(data['a'], channels=3)\n    data['a'] = 5\n{CROP}    return image\n", "are reassigned"),
    ("is passed on", f"def augment(data):\n{DECODE}{CROP}    return image\n\nAUGMENT = [augment]\n", "used in 2 places"),
    ("what calls it is used twice", f"def load(data):\n{DECODE}{CROP}    return image\n\ndef augment(data):\n    return load(data)\n\nalso = augment\n", "augment is used in 2 places"),
    ("calls itself", f"def augment(data):\n{DECODE}{CROP}    return image if BIG else augment(data)\n", "used in 2 places"),
    ("a name of its own", f"def crop_jpeg(data):\n    return data\n\ndef augment(data):\n{DECODE}{CROP}    return image\n", "already uses the name crop_jpeg"),
    ("not import TensorFlow under a name", f"def augment(data):\n{DECODE}{CROP}    return image\n\ntf = tf\n", "not import TensorFlow under a name"),
    ("no name left", f"contents = jpeg = encoded_image = 0\n\ndef augment(path):\n    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)\n{CROP}    return image\n", "that pipetune would use"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "why"), REFUSED, ids=[case[0] for case in REFUSED])
def test_unsupported_function_is_refused(tmp_path, name, text, why):
    whole = "COLOURS, BIG, OTHER = 3, True, b''\n" + HEAD + text + TAIL
    new, emission = emitted(tmp_path, whole)
    (rejection,) = emission.not_covered
    assert rejection.rule == "decode-and-crop" and why in rejection.why
    assert new == whole.replace("map(augment))\n", "map(augment, num_parallel_calls=2))\n")


def test_existing_helper_is_reused(tmp_path):
    both = GOLDEN[0][1].replace("augment", "first") + "\n\n" + GOLDEN[0][1]
    once, _ = emitted(tmp_path, HEAD + both + TAIL)
    now_first = once.replace("map(augment, num_parallel_calls=2)", "map(first)")
    twice, emission = emitted(tmp_path, now_first, name="first")
    assert emission.not_covered == ()
    assert twice.count("def crop_jpeg(") == twice.count("def random_crop_jpeg(") == 1
    assert twice.count("= random_crop_jpeg(data, [9, 9, 3], channels=3)") == 2


def test_function_called_for_another_dataset_in_another_file_is_refused(tmp_path):
    text = HEAD + GOLDEN[0][1] + TAIL
    pipeline = recorded(tmp_path, text)[1].pipeline()
    elsewhere = replace(pipeline["n1"].location, file="other.py")
    function = FunctionFacts(name="augment", digest="d")
    other = replace(
        pipeline, name="validation", nodes=(replace(pipeline["n1"], location=elsewhere, function=function),)
    )
    _, emission = emitted(tmp_path, text, other_pipelines=[other])
    assert "also called for the dataset validation" in emission.not_covered[0].why
    renamed = replace(other, nodes=(replace(other.nodes[0], function=replace(function, name="prepare")),))
    assert emitted(tmp_path, text, other_pipelines=[renamed])[1].not_covered == ()


def test_imported_function_is_patched_in_its_file_unless_used_elsewhere(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    other = tmp_path / "pictures_for_a_test.py"
    other.write_text(HEAD + GOLDEN[0][1])
    text = (
        HEAD.rstrip()
        + "\nfrom pictures_for_a_test import augment as picture\n\ntrain(tf.data.Dataset.range(3).map(picture))\n"
    )
    _, emission = emitted(tmp_path, text)
    assert emission.not_covered == () and set(emission.files) == {str(tmp_path / "sample.py"), str(other)}
    assert "random_crop_jpeg(data, [9, 9, 3], channels=3)" in emission.files[str(other)][1]
    assert "crop_jpeg" not in emission.files[str(tmp_path / "sample.py")][1]
    _, emission = emitted(tmp_path, text.replace("train(", "also = picture\ntrain("))
    assert "augment is used in 2 places" in emission.not_covered[0].why
    other.write_text(HEAD + GOLDEN[0][1] + "\n\nalso = augment\n")
    _, emission = emitted(tmp_path, text)
    assert "augment is used in 2 places" in emission.not_covered[0].why


def test_last_of_several_imported_definitions_counts(tmp_path):
    (tmp_path / "pictures.py").write_text("def load():\n    return 1\n\n\ndef load():\n    return 2\n")
    sample = tmp_path / "sample.py"
    sample.write_text("from pictures import load\n\nload()\n")
    draft = Draft({}, {})
    name = draft.tree(str(sample)).nodes(cst.Name)[-1]
    file, function = user_functions.imported_function(draft, str(sample), name)
    assert draft.tree(file).text(function).endswith("return 2")


def test_files_beside_and_below_a_folder_of_images_are_searched_for_uses(tmp_path, monkeypatch):
    monkeypatch.setattr(source_files, "_MAX_ENTRIES", 4)
    for folder in ("data/nested", "src"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("0.jpg", "1.jpg", "2.jpg", "3.jpg", "nested/made.py"):
        (tmp_path / "data" / name).touch()
    (tmp_path / "src/evaluate.py").write_text("from sample import augment\n\nevaluate(augment)\n")
    assert list(source_files.neighboring_files(str(tmp_path / "sample.py"))) == [str(tmp_path / "src/evaluate.py")]
    _, emission = emitted(tmp_path, HEAD + GOLDEN[0][1] + TAIL)
    assert "augment is used in 2 places" in emission.not_covered[0].why
    deepest = tmp_path.joinpath(*"a" * 99)  # too many folders in all
    deepest.mkdir(parents=True)
    (deepest / "made.py").touch()
    assert list(source_files.neighboring_files(str(tmp_path / "sample.py"))) == [str(tmp_path / "src/evaluate.py")]
