"""Which Python code could get arrays, that it then gives the same, and what the patch looks like."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("patient_looks")]

from pipetune.core.edits import Rewrite, apply_edits
from pipetune.core.functions import ProbeResult
from pipetune.pipelines import live
from pipetune.pipelines.replay import replay
from pipetune.probes import annotate_graph_edits
from pipetune.rewrites.numpy_function import propose
from tests.rewrites.on_data.patching import check_equal, check_patch, proposed, script, why_not_patched

Function = Callable[..., Any]


def lines() -> Any:
    return tf.data.Dataset.range(11).map(lambda number: tf.strings.join(["é", tf.strings.as_string(number), " b"]))


def vectors() -> Any:
    return tf.data.Dataset.range(11).map(lambda number: tf.range(number % 4) * 3)


def _split(line: Any) -> Any:
    first, second = line.numpy().decode().split()
    return [first + "ü", second], len(first)


def _several(vector: Any, line: Any) -> Any:
    values = vector.numpy()
    values += 1  # its own copy
    return [float(one) / 2 for one in values], bool(line.numpy()) and bool(values.size)


class _Encoder:
    codes: ClassVar = {chr(code): code for code in range(256)}

    def encode(self, line: Any) -> Any:
        return [self.codes[letter] for letter in line.numpy().decode()], 1


def _twice(vector: Any) -> Any:
    least = tf.py_function(func=lambda x: min(x.numpy(), default=np.int64(7)), inp=[vector], Tout=tf.int64)
    return least, tf.py_function(lambda x: x.numpy()[::-1], [vector], tf.int64)


CASES: dict[str, tuple[Function, Function]] = {
    "strings and numbers": (lines, lambda line: tf.py_function(_split, [line], [tf.string, tf.int32])),
    "several arguments; floats and a bool": (
        lines,
        lambda line: tf.py_function(_several, [tf.range(tf.strings.length(line) % 3), line], (tf.float32, tf.bool))),
    "a method": (lines, lambda line: tf.py_function(_Encoder().encode, [line], (tf.int32, tf.int64))),
    "two lambdas": (vectors, _twice),
    "a whole number that does not fit, more than declared": (
        vectors, lambda vector: tf.py_function(lambda x: (250 + len(x.numpy()) * 3, 2.5), [vector], tf.uint8)),
}  # fmt: skip


def _rebound_in_a_branch(x: Any) -> Any:
    if len(x.numpy()):
        x = x.numpy()
    return x


def _imports_tensorflow(x: Any) -> Any:
    import tensorflow

    return tensorflow.reverse(x.numpy(), [0])


_CONSTANT = tf.constant(3)


def _with_default(x: Any, more: int = 1) -> Any:
    return x.numpy() + more


def _shadowed(x: Any) -> Any:
    return [(lambda x: x)(one) for one in x.numpy()]


def _call(python: Function) -> Function:
    return lambda vector: tf.py_function(python, [vector], tf.int64)


NEEDS_TENSORS: dict[str, tuple[Function, str]] = {
    "arithmetic": (_call(lambda x: x + 1), "needs x as a tensor"),
    "bound anew in a branch": (_call(_rebound_in_a_branch), "needs x as a tensor"),
    "TensorFlow": (_call(lambda x: tf.reverse(x.numpy(), [0])), "calls TensorFlow"),
    "TensorFlow, imported there": (_call(_imports_tensorflow), "calls TensorFlow"),
    "a tensor of the module": (_call(lambda x: x.numpy() + _CONSTANT.numpy()), "calls TensorFlow"),
    "starred": (_call(lambda *x: x[0].numpy()), "starred or have defaults"),
    "with a default": (_call(_with_default), "starred or have defaults"),
    "another meaning in a lambda": (_call(_shadowed), "needs x as a tensor"),
    "a partial": (_call(functools.partial(_with_default, more=2)), "no plain function"),
    "in a branch": (
        lambda x: tf.cond(tf.size(x) > 1, lambda: _call(lambda x: x.numpy())(x), lambda: tf.identity(x)),
        "inside a branch",
    ),
}


def _found(dataset: Any) -> tuple[live.LivePipeline, ProbeResult | None, list[Rewrite]]:
    source, rewrites = proposed(propose, dataset, annotate_graph_edits)
    (known,) = (
        node.function.arrays for node in source.pipeline if node.op == "map" and node.function and node.function.python
    )
    return source, known, rewrites


@pytest.mark.sample(2)
@pytest.mark.parametrize(("function", "why"), NEEDS_TENSORS.values(), ids=NEEDS_TENSORS)
def test_code_that_needs_tensors_is_left_alone(function: Function, why: str) -> None:
    _, known, rewrites = _found(vectors().map(function))
    assert rewrites == [] and known is not None and why in known.why_not


@pytest.mark.sample(2)
@pytest.mark.parametrize(("elements", "function"), CASES.values(), ids=CASES)
def test_arrays_give_the_same(elements: Function, function: Function) -> None:
    source, known, (rewrite,) = _found(elements().map(function, num_parallel_calls=2).shuffle(5, seed=3).repeat(2))
    assert known is not None and known.why_not == ""
    again = replay(source, apply_edits(source.pipeline, rewrite.edits))
    assert again.element_spec == source.dataset.element_spec and len(list(again)) == 22
    check_equal(source, rewrite, elements=22)


def test_argument_is_a_copy() -> None:
    """As that of `.numpy()`: what a cache holds stays as it is."""

    def change(x: Any) -> Any:
        values = x.numpy()
        values += 1
        return values

    dataset = tf.data.Dataset.from_tensors([1, 2]).cache().repeat(3)
    source, _, (rewrite,) = _found(dataset.map(lambda x: tf.py_function(change, [x], tf.int32)))
    made = replay(source, apply_edits(source.pipeline, rewrite.edits))
    assert [one.numpy().tolist() for one in made] == [[2, 3]] * 3


PATCHES: dict[str, tuple[str, tuple[str, ...]]] = {
    "two calls": ("""
        import tensorflow as tf
        from tests.rewrites.on_data.test_numpy_function import vectors
        def prepare(vector):
            one = tf.py_function(lambda x: x.numpy() + 1, [vector], tf.int64)
            return one, tf.py_function(lambda x: x.numpy()[::-1], [vector], tf.int64)
        ds = vectors().map(prepare)
        """, ("one = numpy_call(lambda x: x + 1, [vector], tf.int64)\n    return one, numpy_call(lambda x: x[::-1]",)),
    "a function; NumPy under a name": ("""
        import numpy
        import tensorflow as tf
        from tests.rewrites.on_data.test_numpy_function import lines
        def python(line, number):
            line = line.numpy()
            words = line.decode().split()
            return words, number.numpy() + len(words)
        def prepare(line):
            words, number = tf.py_function(python, inp=[line, 3], Tout=[tf.string, tf.int64])
            words.set_shape([2])
            return words, number
        ds = lines().map(prepare, num_parallel_calls=2)
        """,
        (
            "def python(line, number):\n    words = line.decode().split()\n    return words, number + len(words)\n",
            "words, number = numpy_call(python, inp=[line, 3], Tout=[tf.string, tf.int64])",
            "isinstance(value, numpy.ndarray)",
        )),
    "lambdas, without NumPy": ("""
        import tensorflow
        from tests.rewrites.on_data.test_numpy_function import vectors
        ds = vectors().map(
            lambda vector: tensorflow.py_function(lambda x: x.numpy()[::-1], [vector], tensorflow.int64)
        )
        """,
        (
            "lambda vector: numpy_call(lambda x: x[::-1], [vector], tensorflow.int64)",
            "    import numpy as np\n\n    kinds = [tensorflow.as_dtype(kind)",
        )),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(("text", "expected"), PATCHES.values(), ids=PATCHES)
def test_patched_source_gives_the_elements_of_the_plan(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    sample = script(tmp_path, text, above="")
    source, _, (rewrite,) = _found(sample.run().ds)
    new = check_patch(sample, source, rewrite)
    assert all(part in new for part in expected), new


@pytest.mark.parametrize(("call", "why"), [
    ("tf.py_function(of['python'], [vector], tf.int64)", "not visible in the call"),
    ("other(vector)", "used in 2 places"),
    ("other(vector) if of else tf.py_function(lambda x: x, [vector], tf.int64)", "unknown which of them ran"),
])  # fmt: skip
def test_what_cannot_be_written(call: str, why: str, tmp_path: Path) -> None:
    text = f"""
    import tensorflow as tf
    from tests.rewrites.on_data.test_numpy_function import vectors
    def python(x):
        return x.numpy()
    def other(vector):
        return tf.py_function(python, [vector], tf.int64)
    of = {{"python": python}}
    ds = vectors().map(lambda vector: {call})
    """
    source, _, (rewrite,) = _found(script(tmp_path, text, above="").run().ds)
    assert why in why_not_patched(source, rewrite)
