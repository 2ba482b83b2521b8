"""Patches that split a function in two: the exact change, and what is refused with its reason."""

# ruff: noqa: E501 (the cases are source text, as it appears in a file)
from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SplitFunction
from pipetune.core.functions import FunctionSplit, SplitPosition
from pipetune.core.pipeline import SourceLocation
from pipetune.source.emit import Emission, emit
from tests.source.recorder import record, recorded, shape

HEAD = "import tensorflow as tf\n\n\n"
TAIL = "\n\ntrain(tf.data.Dataset.range(3).map(augment, num_parallel_calls=2).batch(4))\n"
CUT_TAIL = "\n\ntrain(tf.data.Dataset.range(3).map(augment_head, num_parallel_calls=2).cache().map(augment_tail, num_parallel_calls=2).batch(4))\n"

IMAGE = "    image = tf.image.resize(image, [8, 8])\n"
FLIP = "    image = tf.image.random_flip_left_right(image)\n"

GOLDEN: list[tuple[str, str, str, dict[str, object]]] = [
    ("one variable",
     f"def augment(image):\n{IMAGE}{FLIP}    return image\n",
     f"def augment_head(image):\n{IMAGE}    return image\n\n\ndef augment_tail(image):\n{FLIP}    return image\n", {}),
    ("comments, blank lines, a docstring, what it returns",
     f'def augment(image: bytes, label) -> tuple[int, int]:  # both\n    """Flips."""\n    # Small.\n{IMAGE.rstrip()}  # 8 x 8\n\n    # Random.\n{FLIP}    return image, label  # so\n',
     f'def augment_head(image: bytes, label):  # both\n    """Flips."""\n    # Small.\n{IMAGE.rstrip()}  # 8 x 8\n    return image, label\n\n\ndef augment_tail(image, label):\n    # Random.\n{FLIP}    return image, label  # so\n',
     {"statement": 2, "handed": 2, "taken": (1,), "components": 2}),
    ("several variables, some of them new, in the order they are bound",
     "def augment(a, b, c):\n    x, y = f(a)\n    z = g(b)\n    z += 1\n    b = h(x)\n    if x > y:\n        z = z + tf.random.uniform([])\n    return z + b, c\n",
     "def augment_head(a, b, c):\n    x, y = f(a)\n    z = g(b)\n    z += 1\n    b = h(x)\n    return b, c, x, y, z\n\n\ndef augment_tail(b, c, x, y, z):\n    if x > y:\n        z = z + tf.random.uniform([])\n    return z + b, c\n",
     {"statement": 4, "handed": 5, "taken": (2,), "components": 3}),
    ("the original stays for the others",
     f"def augment(image):\n{IMAGE}{FLIP}    return image\n\n\nvalidate(tf.data.Dataset.range(2).map(augment))\n",
     f"def augment(image):\n{IMAGE}{FLIP}    return image\n\n\ndef augment_head(image):\n{IMAGE}    return image\n\n\ndef augment_tail(image):\n{FLIP}    return image\n\n\nvalidate(tf.data.Dataset.range(2).map(augment))\n", {}),
    ("fields of a dict",
     f'def augment(record):\n    example = parse(record)\n    image = resize(example["image"])\n{FLIP}    weight = example["image/weight"] * example["image/weight"]\n    return image * weight, example["label"]\n',
     f'def augment_head(record):\n    example = parse(record)\n    image = resize(example["image"])\n    return example["image/weight"], example["label"], image\n\n\ndef augment_tail(image_weight, label, image):\n{FLIP}    weight = image_weight * image_weight\n    return image * weight, label\n',
     {"statement": 2, "handed": 3}),
    ("what the second part binds before it reads it is not handed on",
     f"def augment(image):\n    size = tf.shape(image)\n{IMAGE}    size = tf.random.uniform([])\n    return image * size\n",
     f"def augment_head(image):\n    size = tf.shape(image)\n{IMAGE}    return image\n\n\ndef augment_tail(image):\n    size = tf.random.uniform([])\n    return image * size\n",
     {"statement": 2}),
]  # fmt: skip


def emitted(tmp_path, text: str, *, caller: str = "", **cut: object) -> tuple[str, Emission]:
    path, recorder = recorded(tmp_path, text)
    pipeline = recorder.pipeline()
    if caller:
        called = SourceLocation(caller, 1, 0, 1, 6, "load")
        nodes = (replace(one, calls=(*one.calls, called)) for one in pipeline)
        pipeline = replace(pipeline, nodes=tuple(nodes))
    node = next(one for one in pipeline if one.op == "map")
    given = {"statement": 1, "handed": 1, "components": 1, **cut}
    split = SplitFunction(node.id, FunctionSplit(SplitPosition.BEFORE_DRAWS, position=3, head="h", tail="t", **given))
    cache = Insert(split.head, "cache", f"cache@{split.head}", {"filename": ""})
    rewrite = Rewrite("split-map", node.id, Safety.STATISTICAL, (split, cache), "")
    emission = emit(pipeline, Plan("p", (rewrite,)))
    return emission.files.get(str(path), (text, text))[1], emission


OTHERS: list[tuple[str, str, str, str, str, dict[str, object]]] = [
    ("a method", "reader = Reader()\ntrain(reader.dataset())\n",
     f'class Reader:\n    size = 8\n\n    def augment(self, image, label):\n        image = tf.image.resize(image, self.size)\n    {FLIP}        return image * self.size, label\n\n    def dataset(self):\n        return tf.data.Dataset.range(3).map(self.augment, 2).batch(4)\n\n\n',
     f'class Reader:\n    size = 8\n\n    def augment_head(self, image, label):\n        image = tf.image.resize(image, self.size)\n        return image, label\n\n    def augment_tail(self, image, label):\n    {FLIP}        return image * self.size, label\n\n    def dataset(self):\n        return tf.data.Dataset.range(3).map(self.augment_head, 2).cache().map(self.augment_tail, 2).batch(4)\n\n\n',
     "", {"handed": 2, "taken": (1,), "components": 2}),
    ("a method that is also read elsewhere", "reader = Reader()\ntrain(reader.dataset())\nknown = [reader.augment]\n",
     f"class Reader:\n    def augment(self, image):\n    {IMAGE}    {FLIP}        return image\n\n    def dataset(self):\n        return tf.data.Dataset.range(3).map(self.augment).batch(4)\n\n\n",
     f"class Reader:\n    def augment(self, image):\n    {IMAGE}    {FLIP}        return image\n\n    def augment_head(self, image):\n    {IMAGE}        return image\n\n    def augment_tail(self, image):\n    {FLIP}        return image\n\n    def dataset(self):\n        return tf.data.Dataset.range(3).map(self.augment_head).cache().map(self.augment_tail).batch(4)\n\n\n",
     "", {}),
    ("a factory", "",
     f'def augment(size, flips=True):\n    """Makes it."""\n    def one(image):  # each\n        image = tf.image.resize(image, size)\n        if flips:\n        {FLIP}        return image\n    return one\n\n\ntrain(tf.data.Dataset.range(3).map(augment(8, flips=MODE == "train")).batch(4))\n',
     f'def augment_head(size, flips=True):\n    """Makes it."""\n    def one(image):  # each\n        image = tf.image.resize(image, size)\n        return image\n    return one\n\n\ndef augment_tail(size, flips=True):\n    """Makes it."""\n    def one(image):\n        if flips:\n        {FLIP}        return image\n    return one\n\n\ntrain(tf.data.Dataset.range(3).map(augment_head(8, flips=MODE == "train")).cache().map(augment_tail(8, flips=MODE == "train")).batch(4))\n',
     "MODE = 'train'\n", {}),
]  # fmt: skip


CHAINS: list[tuple[str, str, str]] = [
    ("links on lines of their own, comments",
     "ds = (\n    tf.data.Dataset.range(3)  # three\n    .map(augment)  # random\n    .batch(4)\n)\ntrain(ds)\n",
     "ds = (\n    tf.data.Dataset.range(3)  # three\n    .map(augment_head)\n    .cache()\n    .map(augment_tail)  # random\n    .batch(4)\n)\ntrain(ds)\n"),
]  # fmt: skip


SPLIT: list[tuple[str, str, str, dict[str, object]]] = [
    *((name, before + TAIL, after + CUT_TAIL, cut) for name, before, after, cut in GOLDEN),
    *((name, above + old + behind, above + new + behind, cut) for name, behind, old, new, above, cut in OTHERS),
    *((name, f"{GOLDEN[0][1]}\n\n{before}", f"{GOLDEN[0][2]}\n\n{after}", {}) for name, before, after in CHAINS),
]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("name", "before", "after", "cut"), SPLIT, ids=[case[0] for case in SPLIT])
def test_patch_matches_expected_text(tmp_path, name, before, after, cut, newline):
    new, emission = emitted(tmp_path, (HEAD + before).replace("\n", newline), **cut)
    assert [rejection.why for rejection in emission.not_covered] == []
    assert new.replace(newline, "\n") == HEAD + after
    maps = [given for op, given in shape(record(tmp_path / "sample.py", new).pipeline()) if op == "map"]
    assert len(maps) == 2 and maps[0] == maps[1]


REFUSED: list[tuple[str, str, dict[str, object], str]] = [
    ("a lambda", "augment = lambda image: image\n", {}, "not defined exactly once"),
    ("defined twice", f"if ONE:\n    def augment(image):\n    {IMAGE}        return image\nelse:\n    def augment(image):\n    {IMAGE}        return image\n", {}, "not defined exactly once"),
    ("a decorator", f"@staticmethod\ndef augment(image):\n{IMAGE}{FLIP}    return image\n", {}, "decorator"),
    ("inside a statement", f"def augment(image):\n{IMAGE}{FLIP}    return image\n", {"statement": None}, "inside an expression"),
    ("a body on the line", "def augment(image): image = f(image); return image\n", {}, "on the same line as its def"),
    ("statements that share a line", f"def augment(image):\n{IMAGE}    a = 1; b = 2\n    return image\n", {}, "share a line"),
    ("nothing in front", f"def augment(image):\n{FLIP}    return image\n", {"statement": 0}, "no statement on one side"),
    ("no such statement", f"def augment(image):\n{FLIP}    return image\n", {"statement": 5}, "no statement on one side"),
    ("returned before", f"def augment(image):\n    if ONE:\n        return image\n{IMAGE}{FLIP}    return image\n", {"statement": 2}, "may return early"),
    ("a generator", f"def augment(image):\n    yield 5\n{IMAGE}    return image\n", {}, "may return early"),
    ("names outside", f"def augment(image):\n    global ONE\n    ONE = image\n{FLIP}    return image\n", {"statement": 2}, "assigns names outside"),
    ("bound in a branch only", "def augment(image):\n    if ONE:\n        mean = f(image)\n    return image - mean\n", {}, "mean in augment is not bound by a plain assignment"),
    ("a function inside", "def augment(image):\n    def half(x):\n        return x / 2\n    return half(image)\n", {}, "half in augment is not bound"),
    ("a number", f"def augment(image):\n    size = 5\n{IMAGE}    return image[:size]\n", {"statement": 2, "handed": 2}, "Python value"),
    ("a list of numbers", f"def augment(image):\n    size = [5, 5, 3]\n{IMAGE}    return f(image, size)\n", {"statement": 2, "handed": 2}, "Python value"),
    ("a lambda inside", "def augment(image):\n    half = lambda x: x / 2\n    return half(image)\n", {"taken": (0,)}, "Python value"),
    ("more variables than tensors", "def augment(image):\n    a = f(image)\n    b = a\n    return a + b\n", {"statement": 2}, "2 variables are live"),
    ("a dict that is read as a whole", 'def augment(image):\n    both = f(image)\n    return both["a"], g(both)\n', {"handed": 2}, "1 variables are live"),
    ("fields that would have one name", 'def augment(image):\n    both = f(image)\n    return both["a/b"], both["a_b"]\n', {"handed": 2}, "by one name"),
    ("a dict that is changed", 'def augment(image):\n    both = f(image)\n    both["a"] = g(1)\n    return both["a"], both["b"]\n', {"handed": 2}, "variables are live"),
    ("other parameters are read", f"def augment(image, label):\n{IMAGE}    return image, label\n", {"handed": 2, "components": 2}, "reads other parameters"),
    ("a parameter of several components", f"def augment(image, label):\n{IMAGE}    return image, label\n", {"handed": 2, "components": 3, "taken": (1,)}, "not correspond one to one to the components"),
    ("a default", f"def augment(image, size=5):\n{IMAGE}    return image\n", {}, "not plain positional"),
    ("stars", f"def augment(*image):\n{IMAGE}    return image\n", {}, "not plain positional"),
    ("names that are taken", f"augment_head = augment_first_part = 5\n\ndef augment(image):\n{IMAGE}{FLIP}    return image\n", {}, "No unused names"),
]  # fmt: skip


FACTORIES: list[tuple[str, str, str]] = [
    ("return one", "make(8)", ""),
    ("print(size)\n    return one", "make(8)", "or does more than return one function"),
    ("return one", "make(len('aaaa'))", "called with what another call returns"),
    ("return one", "make(*[8])", "called with what another call returns"),
    ("return one", "other.make(8)", "not passed by name"),
]


@pytest.mark.parametrize(("end", "called", "why"), FACTORIES)
def test_factory_is_split_only_if_its_function_is_all_that_it_makes(tmp_path, end, called, why):
    text = f"{HEAD}def make(size):\n    def one(image):\n    {IMAGE}    {FLIP}        return image\n    {end}\n\n\n"
    text += f"class other:\n    make = make\n\n\ntrain(tf.data.Dataset.range(3).map({called}).batch(4))\n"
    new, emission = emitted(tmp_path, text)
    assert (new == text) is bool(why) and why in " ".join(one.why for one in emission.not_covered)


def test_method_that_a_subclass_defines_anew_is_refused(tmp_path):
    text = (
        HEAD
        + OTHERS[0][2]
        + "class Flips(Reader):\n    def augment(self, image, label):\n        return image, label\n\n\n"
    )
    new, emission = emitted(tmp_path, f"{text}train(Flips().dataset())\n", **OTHERS[0][5])
    assert "A subclass may define another augment." in emission.not_covered[0].why and new.startswith(text)


@pytest.mark.parametrize(("name", "text", "cut", "why"), REFUSED, ids=[case[0] for case in REFUSED])
def test_unsupported_function_is_refused(tmp_path, name, text, cut, why):
    whole = "ONE, f, g, half = 1, len, len, 2\n" + HEAD + text + TAIL
    new, emission = emitted(tmp_path, whole, **cut)
    (rejection,) = emission.not_covered
    assert why in rejection.why
    assert new == whole


HELPERS = "def load(path):\n    return f(path)\n\n\ndef flip(image):\n    return g(image)\n\n\n"

BEHIND_CALLS: list[tuple[str, str, dict[str, object]]] = [
    ("lambda path: flip(load(path))", "load|flip", {}),
    ("lambda path: g(load(path), 5)", "load|lambda load_result: g(load_result, 5)", {}),
    ("lambda path: g(load(path))", "load|g", {}),
    ("lambda path, label: (flip(load(path)), label)",
     "lambda path, label: (load(path), label)|lambda image, label: (flip(image), label)",
     {"handed": 2, "taken": (1,), "components": 2}),
    ("lambda image: flip(load(image)) + flip(1)", "load|lambda load_result: flip(load_result) + flip(1)", {}),
    ("lambda path: {'image': flip(f(load(path)))}", "lambda path: f(load(path))|lambda image: {'image': flip(image)}", {"call": "f"}),
    ("lambda path: flip(*load(path))", "unpacked at once", {}),
    ("lambda path: g(f(path), load(path))", "not certainly what its statement evaluates first", {}),
    ("lambda path: flip(load(path)) if path else 0", "not certainly what its statement evaluates first", {}),
    ("lambda path: flip(load(path)) + load(1)", "unknown which call of load", {}),
    ("lambda path: flip(load(path))", "2 tensors", {"handed": 2}),
    ("lambda path: flip(load(path))", "inside an expression", {"call": ""}),
    ("lambda path, size=5: flip(load(path))", "not plain positional", {}),
]  # fmt: skip


@pytest.mark.parametrize(("code", "wanted", "cut"), BEHIND_CALLS)
def test_lambda_is_split_behind_a_call(tmp_path, code, wanted, cut):
    text = HEAD + "f = g = len\n\n\n" + HELPERS + f"train(tf.data.Dataset.range(3).map({code}, 2).batch(4))\n"
    new, emission = emitted(tmp_path, text, **{"statement": 0, "call": "load", **cut})
    head, bar, tail = wanted.partition("|")
    if bar:
        assert emission.not_covered == ()
        assert new == text.replace(f".map({code}, 2)", f".map({head}, 2).cache().map({tail}, 2)")
    else:
        assert wanted in emission.not_covered[0].why and new == text


@pytest.mark.parametrize(
    ("before", "after", "cut"),
    [
        ("def augment(path):\n    return flip(load(path))\n",
         "def augment_head(path):\n    return load(path)\n\n\ndef augment_tail(image):\n    return flip(image)\n", {"statement": 0}),
        ("def augment(path):\n    path = 5 + path  # why\n    image = flip(load(path))\n    return f(image)\n",
         "def augment_head(path):\n    path = 5 + path  # why\n    return load(path)\n\n\ndef augment_tail(load_result):\n    image = flip(load_result)\n    return f(image)\n", {"statement": 1}),
    ],
)  # fmt: skip
def test_function_is_split_behind_a_call(tmp_path, before, after, cut):
    new, emission = emitted(tmp_path, HEAD + "f = g = len\n\n\n" + HELPERS + before + TAIL, call="load", **cut)
    assert emission.not_covered == ()
    assert new == HEAD + "f = g = len\n\n\n" + HELPERS + after + CUT_TAIL


@pytest.mark.parametrize("other", ["other.py", "tools/show.py"])
def test_function_that_another_file_may_import_is_kept(tmp_path, other):
    (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / other).write_text("from sample import augment\n")
    new, emission = emitted(tmp_path, HEAD + GOLDEN[0][1] + TAIL)
    assert emission.not_covered == ()
    assert new == HEAD + GOLDEN[0][1] + "\n\n" + GOLDEN[0][2] + CUT_TAIL


def test_function_that_a_file_beside_the_caller_imports_is_kept(tmp_path):
    (tmp_path / "train.py").write_text("from data.sample import load\nload()\n")
    (tmp_path / "evaluate.py").write_text("from data.sample import augment\n")
    (tmp_path / "data").mkdir()
    text = HEAD + GOLDEN[0][1] + TAIL
    new, emission = emitted(tmp_path / "data", text, caller=str(tmp_path / "train.py"))
    assert emission.not_covered == ()
    assert new == HEAD + GOLDEN[0][1] + "\n\n" + GOLDEN[0][2] + CUT_TAIL


def test_call_shared_by_two_datasets_gets_a_parameter(tmp_path):
    made = "def make(n):\n    return tf.data.Dataset.range(n).map(augment)\n\n\ntrain(make(3))\nvalidate(make(2))\n"
    new, emission = emitted(tmp_path, HEAD + GOLDEN[0][1] + "\n\n" + made)
    assert emission.not_covered == ()
    assert GOLDEN[0][1] in new and "train(make(3, split_map=True))\nvalidate(make(2))" in new
    wanted = "    if split_map:\n        return tf.data.Dataset.range(n).map(augment_head).cache().map(augment_tail)\n"
    assert wanted in new


def test_only_the_training_branch_is_changed(tmp_path):
    made = "load = tf.data.Dataset.range(3)\ntrain(load.map(augment).batch(4))\nvalidate(load.map(augment).batch(4))\n"
    new, emission = emitted(tmp_path, HEAD + GOLDEN[0][1] + "\n\n" + made)
    assert emission.not_covered == ()
    wanted = made.replace("train(load.map(augment)", "train(load.map(augment_head).cache().map(augment_tail)")
    assert new == HEAD + GOLDEN[0][1] + "\n\n" + GOLDEN[0][2] + "\n\n" + wanted
