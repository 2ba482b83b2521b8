"""Patches that compute only the selected array: the exact change, and what is refused with its reason."""

# ruff: noqa: E501 (the cases are source text, as it appears in a file)
from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core.edits import Safety
from pipetune.core.functions import ArraySelection, FunctionFacts, FunctionVariant
from pipetune.source.emit import Emission
from tests.source.recorder import emit_variant, recorded

HEAD = "import tensorflow as tf\n\n\n"
TAIL = "\n\ntrain(tf.data.Dataset.range(3).map(choose))\n"

# In the texts, `#S` marks the line of the selection, `#K` lines that keep their ops, `#M` lines of ops that move.
GOLDEN: list[tuple[str, str, str]] = [
    ("in one line",
     "def choose(x):\n    return tf.where(c(x), tf.reverse(x, [1]), x)  #S\n",
     "def choose(x):\n    return tf.cond(c(x), lambda: tf.reverse(x, [1]), lambda: x)  #S\n"),
    ("a variable of a variable, a statement between",
     "def choose(x):\n    small = x - 1  #M\n    dark = small * 2  #M\n    heads = tf.random.uniform([]) < 0.5  #K\n    return tf.where(heads, x, dark)  #S\n",
     "def choose(x):\n    heads = tf.random.uniform([]) < 0.5  #K\n    return tf.cond(heads, lambda: x, lambda: (x - 1) * 2)  #S\n"),
    ("by keyword, over several lines, with comments",
     "def choose(x):\n    return tf.where(\n        condition=c(x),  # by chance\n        y=x,\n        x=tf.abs(\n            x\n        ),\n    )  #S\n",
     "def choose(x):\n    return tf.cond(\n        pred=c(x),  # by chance\n        false_fn=lambda: x,\n        true_fn=lambda: tf.abs(\n            x\n        ),\n    )  #S\n"),
    ("a variable that is a tuple",
     "def choose(x):\n    axes = 0, 1  #M\n    dark = x - tf.reduce_mean(x, axes)  #M\n    return tf.where(c(x), x, dark)  #S\n",
     "def choose(x):\n    return tf.cond(c(x), lambda: x, lambda: x - tf.reduce_mean(x, (0, 1)))  #S\n"),
    ("a long line",
     "def choose(x):\n    grey = tf.tile(tf.image.rgb_to_grayscale(x), [1, 1, 3])  #M\n    return tf.where(tf.random.uniform([]) < 0.2, grey, x)  #S\n",
     "def choose(x):\n    return tf.cond(\n        tf.random.uniform([]) < 0.2,\n        lambda: tf.tile(tf.image.rgb_to_grayscale(x), [1, 1, 3]),\n        lambda: x,\n    )  #S\n"),
    ("two calls, one inside the other",
     "def choose(x, y):\n    x = tf.where(c, tf.where(d, -x, x), x)  #S\n    return tf.where(c, -x, x), tf.where(c, y, -y)  #S\n",
     "def choose(x, y):\n    x = tf.cond(c, lambda: tf.cond(d, lambda: -x, lambda: x), lambda: x)  #S\n    return tf.cond(c, lambda: -x, lambda: x), tf.cond(c, lambda: y, lambda: -y)  #S\n"),
    ("a variable that is read twice stays",
     "def choose(x):\n    grey = x[:1]\n    return tf.where(c(x), grey, x), grey  #S\n",
     "def choose(x):\n    grey = x[:1]\n    return tf.cond(c(x), lambda: grey, lambda: x), grey  #S\n"),
    ("a variable with a draw stays",
     "def choose(x):\n    noisy = x + tf.random.uniform([])  #K\n    return tf.where(c(x), noisy, x)  #S\n",
     "def choose(x):\n    noisy = x + tf.random.uniform([])  #K\n    return tf.cond(c(x), lambda: noisy, lambda: x)  #S\n"),
    ("a function that only computes",
     "def halved(x):\n    half = x / 2\n    return half\n\n\ndef choose(x):\n    small = halved(x)  #M\n    return tf.where(c(x), small, x)  #S\n",
     "def halved(x):\n    half = x / 2\n    return half\n\n\ndef choose(x):\n    return tf.cond(c(x), lambda: halved(x), lambda: x)  #S\n"),
    ("in a loop and under a condition of Python",
     "def choose(x):\n    if BIG:\n        for n in range(2):\n            y = x * n  #M\n            x = tf.where(x[0] > n, y, x)  #S\n    return x\n",
     "def choose(x):\n    if BIG:\n        for n in range(2):\n            x = tf.cond(x[0] > n, lambda: x * n, lambda: x)  #S\n    return x\n"),
]  # fmt: skip


def emitted(tmp_path, text: str, *, newline: str = "\n", why_not: str = "", others=()) -> tuple[str, Emission]:
    marked = {
        mark: [n for n, line in enumerate(text.split("\n"), 1) if line.endswith(mark)] for mark in ("#S", "#K", "#M")
    }
    found = tuple(
        ArraySelection(str(tmp_path / "sample.py"), line, 99_999, why_not, tuple(marked["#K"]), tuple(marked["#M"]))
        for line in marked["#S"]
    )
    function = FunctionFacts(name="choose", digest="d", selections=found)
    rewrite = ("where-to-cond", FunctionVariant.BRANCHING, Safety.EXACT)
    text = text.replace("\n", newline)
    new, emission = emit_variant(tmp_path, text, rewrite, function, other_pipelines=list(others))
    return new.replace(newline, "\n"), emission


def expected(text: str) -> str:
    return text.replace("map(choose)", "map(choose, num_parallel_calls=2)")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("name", "before", "after"), GOLDEN, ids=[case[0] for case in GOLDEN])
def test_patch_matches_expected_text(tmp_path, name, before, after, newline):
    new, emission = emitted(tmp_path, HEAD + before + TAIL, newline=newline)
    assert [rejection.why for rejection in emission.not_covered] == []
    assert new == HEAD + after + expected(TAIL)


def test_function_that_is_given_to_another(tmp_path):
    before = (
        "def pair(f):\n    def both(x):\n        return f(x), f(-x)\n\n    return both\n\n\n"
        "def maybe(x):\n    return tf.where(c(x), -x, x)  #S\n"
    )
    new, emission = emitted(tmp_path, HEAD + before + TAIL.replace("choose", "pair(maybe)"))
    assert emission.not_covered == () and "return tf.cond(c(x), lambda: -x, lambda: x)" in new


@pytest.mark.parametrize(
    ("line", "where", "cond"),
    [
        ("import tensorflow as flow", "flow.where", "flow.cond"),
        ("import tensorflow as tf\nif 0:\n    from tensorflow import where", "where", "tf.cond"),
        ("import tensorflow as tf\nif 0:\n    from tensorflow import cond, where as choice", "choice", "cond"),
    ],
)
def test_names_of_the_file_are_used(tmp_path, line, where, cond):
    tensorflow = line.split("\n")[0].split()[-1]
    text = f"{line}\n\n\ndef choose(x):\n    return {where}(x[0] > 0, -x, x)  #S\n{TAIL}".replace(
        "tf.data", f"{tensorflow}.data"
    )
    new, emission = emitted(tmp_path, text)
    assert emission.not_covered == () and f"return {cond}(x[0] > 0, lambda: -x, lambda: x)" in new


RETURN = "    return tf.where(c(x), grey, x)  #S\n"

REFUSED: list[tuple[str, str, str]] = [
    ("a lambda", "choose = lambda x: tf.where(c(x), -x, x)  #S\n", "in no function that the map refers to"),
    ("another function", "def choose(x):\n    return jnp.where(c(x), -x, x)  #S\n", "0 statements"),
    ("two statements in a line", "def choose(x):\n    y = tf.where(c, -x, x); return tf.where(c, -y, y)  #S\n", "2 statements"),
    ("in the head of a statement", "def choose(x):\n    if tf.where(c, -x, x):  #S\n        return x\n", "0 statements"),
    ("one of two", "def choose(x):\n    return tf.where(c, -x, x) if BIG else x  #S\n", "more than once, or not at all"),
    ("in a lambda of the function", "def choose(x):\n    return (lambda: tf.where(c, -x, x))()  #S\n", "more than once, or not at all"),
    ("a walrus", "def choose(x):\n    return tf.where(c, (y := -x), x)  #S\n", "more than once, or not at all"),
    ("stars", "def choose(x):\n    return tf.where(c, *x)  #S\n", "not called with a condition"),
    ("one argument", "def choose(x):\n    return tf.where(x)  #S\n", "not called with a condition"),
    ("a name for the op", "def choose(x):\n    return tf.where(c, -x, x, name='side')  #S\n", "not called with a condition"),
    ("super", "def choose(x):\n    return tf.where(c, super().f(x), x)  #S\n", "super()"),
    ("a draw in an argument on another line", "def choose(x):\n    return tf.where(c,  #S\n        x + tf.random.uniform([]),  #K\n        x)\n", "draws random numbers"),
    ("used twice", f"def choose(x):\n    grey = -x\n{RETURN}\n\nALSO = choose\n", "used in 2 places"),
    ("what calls it is used twice", f"def one(x):\n    grey = -x\n{RETURN}\n\ndef choose(x):\n    return one(x)\n\n\nALSO = choose\n", "choose is used in 2 places"),
    # What run time moves, a patch must move as well.
    ("a variable of several", f"def choose(x):\n    grey, other = -x, 1  #M\n{RETURN}", "not written in a way"),
    ("a variable that is read twice", "def choose(x):\n    grey = -x  #M\n    return tf.where(c(x), grey * grey, x)  #S\n", "not written in a way"),
    ("a variable of another block", f"def choose(x):\n    if BIG:\n        grey = -x  #M\n{RETURN}", "not written in a way"),
    ("what it reads is bound again", f"def choose(x):\n    grey = -x  #M\n    x = x + 1\n{RETURN}", "not written in a way"),
    ("what it reads is changed", f"def choose(x):\n    grey = -x[0]  #M\n    x[0] = 1\n{RETURN}", "not written in a way"),
    ("a call between", f"def choose(x):\n    grey = -x[0]  #M\n    x.update(a=1)\n{RETURN}", "not written in a way"),
    ("a method", f"def choose(x):\n    grey = x.pop()  #M\n{RETURN}", "not written in a way"),
    ("another library", f"def choose(x):\n    grey = random.random() * x  #M\n{RETURN}", "not written in a way"),
    ("a function that changes something", f"def counted(x):\n    global n\n    n = 1\n    return x\n\n\ndef choose(x):\n    grey = counted(x)  #M\n{RETURN}", "not written in a way"),
    ("a global variable", f"def choose(x):\n    global grey\n    grey = -x  #M\n{RETURN}", "not written in a way"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "why"), REFUSED, ids=[case[0] for case in REFUSED])
def test_unsupported_function_is_refused(tmp_path, name, text, why):
    whole = HEAD + "c = BIG = n = 0\n\n\n" + text + TAIL
    new, emission = emitted(tmp_path, whole)
    (rejection,) = emission.not_covered
    assert rejection.rule == "where-to-cond" and why in rejection.why
    assert new in (whole, expected(whole))


def test_call_that_code_which_has_not_run_may_share(tmp_path):
    builder = "def make():\n    return tf.data.Dataset.range(3).map(choose)\n\n\ntrain(make())\n\n\ndef later():\n    return make()\n"
    new, emission = emitted(tmp_path, HEAD + GOLDEN[0][1] + "\n\n" + builder)
    assert emission.not_covered == () and "tf.cond(" in new


def test_call_shared_with_a_dataset_that_needs_both_arrays_is_refused(tmp_path):
    builder = "def make(n):\n    return tf.data.Dataset.range(n).map(choose)\n\n\ntrain(make(3))\nvalidate(make(2))\n"
    text = HEAD + GOLDEN[0][1] + "\n\n" + builder
    path, recorder = recorded(tmp_path, text)
    other = recorder.pipeline()
    place = ArraySelection(str(path), 5, 99_999)
    for found, refused in (((), True), ((replace(place, why_not="no"),), True), ((place,), False)):
        function = FunctionFacts(name="choose", digest="d", selections=found)
        nodes = tuple(replace(one, function=function if one.op == "map" else None) for one in other)
        _, emission = emitted(tmp_path, text, others=[replace(other, name="validation", nodes=nodes)])
        assert bool(emission.not_covered) is refused


def test_selection_that_needs_both_arrays_stays(tmp_path):
    text = HEAD + GOLDEN[0][1] + TAIL
    new, emission = emitted(tmp_path, text, why_not="their shapes may differ")
    assert emission.not_covered == () and new == expected(text)
