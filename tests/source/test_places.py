"""The places of a patch in a file that was edited later: found by the surrounding code, or refused."""

from __future__ import annotations

import ast
import random
from collections import Counter

import pytest

from pipetune.source.patch_merge import CodeExcerpt, InvalidSource, PlaceChanged, merge

BEFORE = '''\
"""A script."""

import tensorflow as tf

BATCH = 32


def decode(record):
    # a JPEG
    return tf.io.decode_jpeg(record)


def augment(image):
    return flip(image)


def flip(image):
    return image[::-1]


def training(pattern):
    dataset = tf.data.Dataset.list_files(pattern)
    dataset = dataset.map(decode)
    dataset = dataset.map(augment)
    dataset = dataset.batch(BATCH)
    return dataset


class Data:
    def validation(self):
        self.images = tf.data.Dataset.range(3)
        self.images = self.images.map(decode)
        return self.images


if __name__ == "__main__":
    train = training("*.jpg")
    print("training")
    for batch in train:
        print(batch)
'''
MAP = "    dataset = dataset.map(augment)\n"
PARALLEL = "    dataset = dataset.map(augment, num_parallel_calls=2)\n"
CACHED = "    dataset = dataset.map(decode)\n    dataset = dataset.cache()\n"
PATCHES = {
    "a line": BEFORE.replace(MAP, PARALLEL),
    "a line more": BEFORE.replace("    dataset = dataset.map(decode)\n", CACHED),
    "the last statement": BEFORE.replace("    return dataset\n", "    return dataset.prefetch(1)\n"),
    "a line less": BEFORE.replace("    dataset = dataset.batch(BATCH)\n", ""),
    "a function more": BEFORE.replace(
        "def training(", "def augment_batch(images):\n    return images[:, ::-1]\n\n\ndef training("
    ).replace(MAP, "    dataset = dataset.map(augment_batch)\n"),
    "lines change places": BEFORE.replace(
        MAP + "    dataset = dataset.batch(BATCH)\n", "    dataset = dataset.batch(BATCH)\n" + MAP
    ),
    "a method": BEFORE.replace("self.images.map(decode)", "self.images.map(decode).cache()"),
    "the script itself": BEFORE.replace("in train:", "in train.prefetch(2):"),
    "several places": BEFORE.replace(MAP, PARALLEL)
    .replace("images.map(decode)", "images.map(decode, num_parallel_calls=2)")
    .replace("import tensorflow as tf\n", "import tensorflow as tf\nimport numpy as np\n"),
}


def moved(text: str, function: str) -> str:
    """The text with the function, and the blank lines after it, moved before all other functions."""
    start = text.index(f"def {function}(")
    end = text.index("\n\n\n", start) + 3
    return text[:start].replace("def decode", text[start:end] + "def decode", 1) + text[end:]


ELSEWHERE = {
    "nothing": lambda text: text,
    "a comment at the end": lambda text: text + "# done\n",
    "lines at the top": lambda text: "# mine\n\n" + text,
    "another number": lambda text: text.replace("BATCH = 32", "BATCH = 64"),
    "a comment in a function that is used": lambda text: text.replace("# a JPEG", "# a JPEG of the\n    # camera"),
    "a new function": lambda text: text.replace("class Data", "def more():\n    return 1\n\n\nclass Data"),
    "a statement above": lambda text: text.replace("    dataset = tf", "    print(pattern)\n    dataset = tf"),
    "a statement between": lambda text: text.replace("map(decode)\n    d", "map(decode)\n    print(dataset)\n    d"),
    "a statement downstream": lambda text: text.replace(
        "return dataset", "dataset = dataset.repeat()\n    return dataset"
    ),
    "a statement behind": lambda text: text.replace('print("training")', 'print("training")\n    seen = 0'),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "no newline at the end": lambda text: text.rstrip("\n"),
    "a function moved": lambda text: moved(text, "flip"),
    "the function moved": lambda text: moved(text, "training"),
    "another method": lambda text: text.replace("class Data:\n", "class Data:\n    def one(self): ...\n\n"),
}


BESIDE = {("a line more", "a statement between"), ("lines change places", "a statement between")}
"""Both add a line at the place of the edit: either order is right."""


@pytest.mark.parametrize("edit", ELSEWHERE)
@pytest.mark.parametrize("patch", PATCHES)
def test_edits_elsewhere_survive_apply_and_revert(patch: str, edit: str) -> None:
    after, change = PATCHES[patch], ELSEWHERE[edit]
    edited = change(BEFORE)
    assert edited != BEFORE or edit == "nothing"
    patched = merge(BEFORE, after, edited, strict=True)
    assert patched != edited
    wanted = change(after)
    if (patch, edit) in BESIDE:
        assert _counted(patched) == _counted(wanted)
        return
    assert patched == wanted
    assert merge(after, BEFORE, patched, strict=False) == edited
    with pytest.raises(PlaceChanged):
        merge(BEFORE, after, patched, strict=True)  # it is applied already
    with pytest.raises(PlaceChanged):
        merge(after, BEFORE, edited, strict=False)  # it is reverted already


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("dataset.map(augment)", "dataset.map(augment, num_parallel_calls=4)", "training()"),
        ("    dataset = dataset.map(decode)\n", "", "training()"),
        (MAP, "    dataset = dataset.map(noise)\n" + MAP, "training()"),
        (MAP, "    if BATCH:\n    " + MAP, "training()"),
        ("def training(", "def input_data(", "training()"),
        ("return flip(image)", "return flip(image) + tf.random.uniform([])", "augment()"),
        ("return image[::-1]", "return image[::-1] + tf.random.uniform([])", "flip()"),
        ("def flip(", "def turn(", "flip()"),
        ("tf.io.decode_jpeg(record)", "tf.io.decode_jpeg(record, ratio=2)", "decode()"),
    ],
)
def test_edit_of_the_place_or_its_inputs_reports_both_versions(old: str, new: str, where: str) -> None:
    edited = BEFORE.replace(old, new)
    with pytest.raises(PlaceChanged) as caught:
        merge(BEFORE, PATCHES["a line"], edited, strict=True)
    found = caught.value
    assert found.where == where
    assert BEFORE.splitlines()[found.analyzed.first_line - 1] == found.analyzed.text.splitlines()[0]
    if found.current is None:
        assert f"def {where[:-2]}(" not in edited
    else:
        assert edited.splitlines()[found.current.first_line - 1] == found.current.text.splitlines()[0]
        assert found.analyzed.text != found.current.text
        changed = {line.strip() for line in edited.splitlines()} - {line.strip() for line in BEFORE.splitlines()}
        assert changed <= {line.strip() for line in found.current.text.splitlines()}


LOADING = """\
import functools
import tensorflow as tf

{}

class Inputs:
    def __init__(self):
        {}

    def load(self):
        {}
        ds = tf.data.Dataset.range(3)
        ds = ds.map({}).batch(2)
        return ds
"""
FUNCTION = "def decode(x): return x"
CLASS = "class Decoder:\n    def decode(self, x): return x\n"
USED = [
    # what the module, the class and the method define, the function of the map, and where that changed
    ("", "pass", FUNCTION, "decode", "Inputs.load.decode()"),
    ("", "pass", "decode = lambda x: x", "decode", "Inputs.load()"),
    ("", "self.decode = lambda x: x", "pass", "self.decode", "Inputs()"),
    ("decode = lambda x: x", "pass", "pass", "decode", ""),
    (FUNCTION, "pass", "again = decode if tf else None", "again", "decode()"),
    (FUNCTION, "pass", "again = functools.partial(decode)", "again", "decode()"),
    (FUNCTION, "self.table = {1: decode}", "pass", "self.table[1]", "decode()"),
    ("def _decode(n, x): return n\n\ndecode = functools.partial(_decode, x=x)", "pass", "pass", "decode", ""),
    (CLASS, "pass", "decoder = Decoder()", "decoder.decode", "Decoder.decode()"),
    (CLASS, "pass", "pass", "Decoder().decode", "Decoder.decode()"),
    (CLASS, "self.decoder = Decoder()", "pass", "self.decoder.decode", "Decoder.decode()"),
    (f"{CLASS}\nclass Own(Decoder): pass", "pass", "own = Own()", "own.decode", "Decoder.decode()"),
    (f"def decode(x): pass\n\n{FUNCTION}", "pass", "pass", "decode", "decode()"),
]


@pytest.mark.parametrize(("module", "init", "method", "function", "where"), USED)
def test_edit_of_a_function_that_is_used_under_another_name(
    module: str, init: str, method: str, function: str, where: str
) -> None:
    before = LOADING.format(module, init, method, function)
    after = before.replace(".batch(2)", ".cache().batch(2)")
    old, new = ("return x", "return x + noise()") if "return x" in before else ("x: x", "x: x + noise()")
    old, new = ("x=x", "x=noise()") if "x=x" in before else (old, new)
    assert merge(before, after, before + "BATCH = 2\n", strict=True) == after + "BATCH = 2\n"
    with pytest.raises(PlaceChanged) as caught:
        merge(before, after, before.replace(old, new), strict=True)
    assert caught.value.where == where
    assert old in caught.value.analyzed.text
    assert caught.value.current is not None and new in caught.value.current.text


@pytest.mark.parametrize(
    ("module", "init", "old", "new"),
    [
        ("SIZE = 2", "self.size = SIZE", "SIZE = 2", "SIZE = 3"),
        ("def size(): return 2", "self.size = size()", "return 2", "return 3"),  # arguments of the command line
        ("class Config:\n    size = 2", "self.size = Config().size", "size = 2", "size = 3"),
        (FUNCTION, "self.size = tf.size(2)", "return x", "return x + 1"),  # of another dataset
    ],
)
def test_numbers_that_are_used_may_change(module: str, init: str, old: str, new: str) -> None:
    before = LOADING.format(module, init, "pass", "tf.square").replace("batch(2)", "batch(self.size)")
    after, edited = before.replace("\n        return ds", ".cache()\n        return ds"), before.replace(old, new)
    assert merge(before, after, edited, strict=True) == after.replace(old, new) != after


TWO_LOADS = "def load():\n    return 1\n\n\ndef load():\n    return dataset.batch(2)\n"
OF_A_LIBRARY = LOADING.format("", "pass", "raw = lib.read()", "tf.square").replace(
    "tf.data.Dataset.range(3)", "raw.take(2)"
)


@pytest.mark.parametrize(
    ("before", "old", "new", "where"),
    [
        (LOADING.format("from other import decode", "pass", "pass", "decode"), "from other import decode", FUNCTION,
         "decode()"),
        (OF_A_LIBRARY, "lib.read()", "lib.read().shuffle(9)", "Inputs.load()"),
        (TWO_LOADS, "dataset.batch", "other.batch", "load()"),
    ],
    ids=["a function of a library becomes one of the file", "a dataset of a library", "the second of a name"],
)  # fmt: skip
def test_other_definitions_that_became_others_are_conflicts(before: str, old: str, new: str, where: str) -> None:
    with pytest.raises(PlaceChanged) as caught:
        merge(before, before.replace(".batch(2)", ".cache().batch(2)"), before.replace(old, new), strict=True)
    assert caught.value.where == where and (where != "decode()" or caught.value.analyzed.text == "")


def test_edit_of_another_dataset_is_no_conflict() -> None:
    script = "from tensorflow import data\ntrain = data.Dataset.range(3)\nval = data.Dataset.range(2)\n{}{}fit(train)\n"
    before = script.format("train = train.map(one)\n", "val = val.batch(2)\n")
    after = script.format("train = train.map(one).cache()\n", "val = val.batch(2)\n")
    edited = script.format("train = train.map(one)\n", "val = val.map(other).batch(4)\n")
    assert merge(before, after, edited, strict=True) == edited.replace("map(one)", "map(one).cache()")
    joined = before.replace("fit(train)", "train = train.zip(val)\nfit(train)")
    after = joined.replace("fit(train)", "fit(train.prefetch(1))")
    with pytest.raises(PlaceChanged):  # now the place depends on it
        merge(joined, after, joined.replace("batch(2)", "map(other).batch(2)"), strict=True)


def test_name_added_by_the_patch_must_be_free() -> None:
    edited = BEFORE + "\n\ndef augment_batch(images):\n    return images\n"
    with pytest.raises(PlaceChanged) as caught:
        merge(BEFORE, PATCHES["a function more"], edited, strict=True)
    assert caught.value.where == "augment_batch()"


def test_invalid_python_is_reported_with_its_line() -> None:
    with pytest.raises(InvalidSource, match="not valid Python, line 1"):
        merge(BEFORE, PATCHES["a line"], "def\n" + BEFORE, strict=True)


def test_long_excerpts_are_shortened_in_the_middle() -> None:
    shown = CodeExcerpt(1, "".join(f"    line {number}\n" for number in range(100))).display_text.splitlines()
    assert len(shown) == 25 and shown[0] == "line 0" and shown[-1] == "line 99" and "76 more lines" in shown[12]


def test_random_edits_are_merged_correctly_or_refused() -> None:
    """Lines are deleted, doubled and swapped at random: a merged text has the edited lines and those of the patch."""
    draw, refused, merged = random.Random(5), 0, 0
    lines = BEFORE.splitlines(keepends=True)
    for _ in range(240):
        edited = list(lines)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(edited))
            match draw.randrange(3):
                case 0:
                    del edited[at]
                case 1:
                    edited.insert(at, edited[at])
                case 2:
                    other = draw.randrange(len(edited))
                    edited[at], edited[other] = edited[other], edited[at]
        text, after = "".join(edited), draw.choice(list(PATCHES.values()))
        try:
            found = merge(BEFORE, after, text, strict=True)
        except (PlaceChanged, InvalidSource):
            refused += 1
            continue
        merged += 1
        ast.parse(found)
        gone = _counted(BEFORE) - _counted(after)
        come = _counted(after) - _counted(BEFORE)
        assert _counted(found) == _counted(text) - gone + come, text
    assert refused > 30 and merged > 30


def _counted(text: str) -> Counter[str]:
    return Counter(text.splitlines())
