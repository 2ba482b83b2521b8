"""The operations of composed functions: over a hundred operations of TensorFlow as expressions with placeholders.

An operation has the kinds of its tensors and its text; `programs` draws one, fills its placeholders with the available
tensors, and runs it on a sample. It is dropped if that raises, so an operation need not define when it is legal.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from tests.soundness.values import INTEGERS, NUMBERS


@dataclass(frozen=True)
class Operation:
    """The source text of an operation.

    `kinds` are those of the tensor that replaces `{x}`: f floats, i integers, b booleans, s strings; n means f and i,
    r ragged ones, and a word strings with that content (see `values.TEXTS`).
    """

    name: str
    text: str
    kinds: str = "n"
    ranks: Sequence[int] = (0, 1, 2, 3)
    weight: float = 1.0  # how often it is drawn if another one is in focus


class NoPlace(Exception):
    """No available tensor fits."""


@dataclass
class Scope:
    """The tensors available while a function is composed, by name, each with one sample; and its constants."""

    rng: random.Random
    tensors: dict[str, Any]
    contents: dict[str, str]
    constants: dict[str, str] = field(default_factory=dict)  # name -> text of its value
    used: list[str] = field(default_factory=list)  # names that the expression being filled uses
    namespace: dict[str, Any] = field(default_factory=lambda: {"tf": tf, "np": np, **_helpers()})

    def choose(self, fits: Callable[[str, Any], bool]) -> str:
        """A name of a tensor that fits; more often a late one, so that functions become deep."""
        names = [name for name, tensor in self.tensors.items() if fits(name, tensor)]
        if not names:
            raise NoPlace
        name = names[-1] if self.rng.random() < 0.6 else self.rng.choice(names)
        self.used.append(name)
        return name

    def constant(self, text: str) -> str:
        """The name of a constant of the module."""
        name = f"K{len(self.constants)}"
        try:
            self.namespace[name] = eval(text, self.namespace)
        except Exception as error:  # for example, of a type without a lookup table in TensorFlow
            raise NoPlace from error
        self.constants[name] = text
        return name


def _helpers() -> dict[str, Any]:
    namespace: dict[str, Any] = {"tf": tf}
    for text in HELPERS.values():
        exec(text, namespace)
    return {name: namespace[name] for name in HELPERS}


def filled(operation: Operation, scope: Scope) -> str:
    """The expression with its placeholders filled.

    Raises:
        NoPlace: no tensor fits one of them.
    """
    scope.used = []
    main: list[str] = []

    def place(match: re.Match[str]) -> str:
        word = match.group(1)
        if not main:
            main.append(scope.choose(lambda name, tensor: _suits(operation, scope, name, tensor)))
        return main[0] if word == "x" else _PLACES[word](scope, scope.tensors[main[0]], main[0])

    return re.sub(r"\{(\w+)\}", place, operation.text)


def _suits(operation: Operation, scope: Scope, name: str, tensor: Any) -> bool:
    if isinstance(tensor, tf.RaggedTensor):
        return operation.kinds == "r"
    if operation.kinds == "r" or tensor.shape.rank not in operation.ranks:
        return False
    if len(operation.kinds) > 2 and operation.kinds not in ("fib", "nbs"):
        return scope.contents.get(name) == operation.kinds
    return kind_of(tensor) in operation.kinds.replace("n", "fi")


def kind_of(tensor: Any) -> str:
    """f, i, b or s; c for kinds that no operation takes."""
    if tensor.dtype == tf.string:
        return "s"
    if tensor.dtype == tf.bool:
        return "b"
    return "f" if tensor.dtype.is_floating else "i" if tensor.dtype.is_integer else "c"


# -- placeholders

_Place = Callable[[Scope, Any, str], str]


def _axis(scope: Scope, x: Any, _: str) -> str:
    rank = x.shape.rank
    if not rank:
        raise NoPlace
    return str(scope.rng.randrange(-rank, rank))


def _axes(scope: Scope, x: Any, name: str) -> str:
    rank = x.shape.rank
    draw = scope.rng.random()
    if not rank or draw < 0.15:
        return ""
    if draw < 0.75 or rank == 1:
        return f", axis={_axis(scope, x, name)}"
    chosen = scope.rng.sample(range(rank), 2)
    return f", axis={[axis - rank if scope.rng.random() < 0.4 else axis for axis in chosen]}"


def _length(x: Any, axis: int) -> int:
    return int(x.shape[axis])


def _slices(scope: Scope, x: Any, _: str) -> str:
    """Every kind of index: numbers, slices with and without ends and steps, ellipses, new axes."""
    rng, rank = scope.rng, x.shape.rank
    parts = []
    for axis in range(rng.randint(1, rank) if rank else 0):
        size = _length(x, axis)
        parts.append(
            rng.choice(
                [":", ":", str(rng.randrange(-size, size)), f"{rng.randrange(size)}:", f":{rng.randint(1, size)}", "::-1",
                 f":-{rng.randint(1, size)}" if size > 1 else ":", "::2", f"{rng.randrange(size)}:{size}", "-1:", "-1"]
            )
        )  # fmt: skip
    if rng.random() < 0.3:
        parts.insert(rng.randint(0, len(parts)), "...")
    if rng.random() < 0.25 or not parts:
        parts.insert(rng.randint(0, len(parts)), rng.choice(["None", "tf.newaxis"]))
    return ", ".join(parts)


def _permutation(scope: Scope, x: Any, _: str) -> str:
    order = list(range(x.shape.rank))
    scope.rng.shuffle(order)
    return str(order)


def _number(scope: Scope, x: Any, _: str) -> str:
    rng = scope.rng
    if x.dtype == tf.bool:
        return rng.choice(["True", "False"])
    if x.dtype == tf.string:
        return repr(rng.choice(["a", "", "red", " "]))
    if x.dtype.is_floating:
        return rng.choice(["0.0", "1.0", "0.5", "-1.5", "2.0", "3.0", "0.1", "100.0", "255.0", "-0.0"])
    return rng.choice(["1", "2", "3", "5", "0", "7"])


def _another(scope: Scope, wanted: bool, fits: Callable[[str, Any], bool]) -> str:
    """The name of a tensor that fits and is not ragged, if wanted; '' where there is none."""
    with contextlib.suppress(NoPlace):
        if wanted:
            return scope.choose(lambda name, tensor: not isinstance(tensor, tf.RaggedTensor) and fits(name, tensor))
    return ""


def _other(scope: Scope, x: Any, name: str) -> str:
    """An operand for x: another tensor that broadcasts, a number, a constant of the module, a part of x."""
    rng = scope.rng
    draw = rng.random()
    if other := _another(scope, draw < 0.35, lambda other, tensor: other != name and _broadcasts(tensor, x)):
        return other
    if draw < 0.55:
        return _number(scope, x, name)
    if draw < 0.75 and x.shape.rank and x.dtype not in (tf.bool, tf.string):
        return _constant(scope, x, name)
    if draw < 0.9 and x.shape.rank:
        part = f"{name}[{_slices(scope, x, name)}]"
        return part if draw < 0.85 else f"{name}[..., None]"
    return name


def _broadcasts(tensor: Any, x: Any) -> bool:
    with contextlib.suppress(ValueError):
        return tensor.dtype == x.dtype and bool(tf.broadcast_static_shape(tensor.shape, x.shape) is not None)
    return False


def _constant(scope: Scope, x: Any, _: str) -> str:
    """An array of NumPy or TensorFlow with a shape that broadcasts with x."""
    rng = scope.rng
    shape = [int(size) for size in x.shape][rng.randrange(x.shape.rank) :]
    if rng.random() < 0.4:
        shape[rng.randrange(len(shape))] = 1
    count = int(np.prod(shape))
    values = f"np.arange({count}, dtype='{x.dtype.name}').reshape({shape})"
    return scope.constant(values if rng.random() < 0.5 else f"tf.constant({values})")


def _same_shape(scope: Scope, x: Any, name: str) -> str:
    """A tensor of the same type and shape, or x itself."""
    if other := _another(
        scope, scope.rng.random() < 0.6,
        lambda other, tensor: tensor.dtype == x.dtype and tensor.shape == x.shape and other != name,
    ):  # fmt: skip
        return other
    return scope.rng.choice([name, f"{name}[::-1]"]) if x.shape.rank else name


def _new_shape(scope: Scope, x: Any, _: str) -> str:
    count = int(np.prod([int(size) for size in x.shape]))
    divisors = [n for n in range(1, count + 1) if count % n == 0]
    rng = scope.rng
    first = rng.choice(divisors)
    second = rng.choice([n for n in divisors if (count // first) % n == 0])
    return str(
        rng.choice(
            [[-1], [count], [first, count // first], [first, -1], [-1, first], [1, -1], [count, 1],
             [first, second, count // first // second], [int(size) for size in x.shape][::-1]]
        )
    )  # fmt: skip


def _indices(scope: Scope, x: Any, _: str) -> str:
    size = _length(x, 0) if x.shape.rank else 1
    return str([scope.rng.randrange(size) for _ in range(scope.rng.randint(1, 3))])


def _picked(scope: Scope, x: Any, name: str) -> str:
    """Integers for indexing: computed from the element, or literals; as an argument besides an axis."""
    axis = int(_axis(scope, x, name))
    size = _length(x, axis)
    small = lambda _, tensor: tensor.dtype in (tf.int32, tf.int64) and tensor.shape.rank < 2  # noqa: E731
    if other := _another(scope, scope.rng.random() < 0.4, small):
        return f"tf.math.floormod({other}, {size}), axis={axis}"
    found = [scope.rng.randrange(size) for _ in range(scope.rng.randint(1, 3))]
    return f"{found if scope.rng.random() < 0.7 else found[0]}, axis={axis}"


def _boolean(scope: Scope, x: Any, name: str) -> str:
    """A condition with the shape of x, or one that broadcasts with it."""
    alike = lambda _, tensor: tensor.dtype == tf.bool and tensor.shape == x.shape  # noqa: E731
    if other := _another(scope, scope.rng.random() < 0.3, alike):
        return other
    if x.dtype == tf.bool:
        return name
    if x.dtype == tf.string:
        return f"tf.equal({name}, {_number(scope, x, name)})"
    return f"{name} > {_number(scope, x, name)}"


def _one_condition(scope: Scope, x: Any, name: str) -> str:
    rng = scope.rng
    if x.dtype == tf.bool:
        return f"tf.reduce_{rng.choice(['any', 'all'])}({name})"
    if x.dtype == tf.string:
        return f"tf.reduce_any(tf.equal({name}, 'red'))"
    return f"tf.reduce_{rng.choice(['sum', 'max', 'min'])}({name}) > {_number(scope, x, name)}"


def _matrix(scope: Scope, x: Any, _: str) -> str:
    """A matrix to multiply the last axis by."""
    size = _length(x, -1)
    wide = scope.rng.choice([size, 1, 3])
    return scope.constant(f"tf.constant((np.arange({size * wide}) % 7 - 3).reshape({size}, {wide}), tf.{x.dtype.name})")


def _table(scope: Scope, _x: Any, _: str) -> str:
    """A table of a few rows to gather from."""
    shape = scope.rng.choice([[9], [9, 3], [9, 2, 2]])
    values = f"np.arange({int(np.prod(shape))}, dtype='float32').reshape({shape})"
    return scope.constant(f"tf.constant({values})")


def _lookup(scope: Scope, x: Any, _: str) -> str:
    keys = "['red', 'a', '', 'UPPER']" if x.dtype == tf.string else "tf.constant([0, 1, 2, 7], tf.int64)"
    made = f"tf.lookup.KeyValueTensorInitializer({keys}, tf.constant([3, 1, 4, 1], tf.int64))"
    return scope.constant(f"tf.lookup.StaticHashTable({made}, -1)")


_TYPES = (*NUMBERS, "bool", "bfloat16")


def _layer(text: str) -> _Place:
    return lambda scope, _x, _: scope.constant(f"tf.keras.layers.{text}")


_PLACES: dict[str, _Place] = {
    "axes": _axes,
    "axis": _axis,
    "bool": _boolean,
    "c": _number,
    "centercrop": _layer("CenterCrop(2, 2)"),
    "cond": _one_condition,
    "discretization": _layer("Discretization(bin_boundaries=[0.0, 1.0, 2.0])"),
    "encoding": _layer("CategoryEncoding(num_tokens=4, output_mode='multi_hot')"),
    "flag": lambda scope, _x, _: scope.rng.choice(["True", "False"]),
    "hashing": _layer("Hashing(num_bins=7)"),
    "idx": _indices,
    "int": lambda scope, x, _: "tf." + scope.rng.choice([name for name in INTEGERS if name != x.dtype.name]),
    "k": _constant,
    "keep": lambda scope, _x, _: ", keepdims=True" if scope.rng.random() < 0.35 else "",
    "lookup": _lookup,
    "matrix": _matrix,
    "naxis": lambda scope, x, _: str(scope.rng.randrange(-x.shape.rank - 1, x.shape.rank + 1)),
    "pads": lambda scope, x, _: str([[scope.rng.choice([0, 0, 1]), scope.rng.choice([0, 1, 1])] for _ in x.shape]),
    "perm": _permutation,
    "pick": _picked,
    "raw": lambda scope, _x, _: scope.rng.choice(["uint8", "float32", "int32", "int16", "float64"]),
    "rescaling": _layer("Rescaling(1 / 255.0, offset=-0.5)"),
    "resizing": _layer("Resizing(4, 5)"),
    "reps": lambda scope, x, _: str([scope.rng.choice([1, 1, 2, 3]) for _ in range(x.shape.rank)]),
    "s": _slices,
    "same": _same_shape,
    "seed": lambda scope, _x, _: str(scope.rng.randint(1, 9)),
    "shape": _new_shape,
    "shift": lambda scope, _x, _: str(scope.rng.choice([1, 2, 3, -1, -2])),
    "small": lambda scope, _x, _: str(scope.rng.randint(1, 3)),
    "table": _table,
    "type": lambda scope, x, _: "tf." + scope.rng.choice([one for one in _TYPES if one != x.dtype.name]),
    "unit": _layer("UnitNormalization()"),
    "y": _other,
}


# -- the operations


def _operations(*entries: str) -> list[Operation]:
    """Operations as `n 123 0.5: name := text`: kinds, ranks (or all), weight (or 1), name (or the called function), text.

    Kinds, ranks and weight are those of the entry before where none are given. `n: tf.{op}({x}) for exp log` is two.
    """
    found, kind = [], [""]
    for entry in entries:
        if match := re.match(r"([a-z]+8?( [0-3]+)?( [\d.]+)?): ", entry):
            kind, entry = match[1].split(), entry[match.end() :]
        kinds, ranks, weight = (*kind, *("0123", "1")[len(kind) - 1 :])
        name, _, text = entry.rpartition(" := ")
        text, _, names = text.partition(" for ") if "{op}" in text else (text, "", "-")
        for one in names.split():
            called = text.replace("{op}", one)
            title = name or re.sub(r"^tf\.(?:\w+\.)*(\w+)\(.*", r"\1", called)
            found.append(Operation(title, called, kinds, tuple(map(int, ranks)), float(weight)))
    return found


_ARITHMETIC = _operations(
    "n: tf.{op}({x}) for abs negative sign square floor math.ceil round math.rint",
    "f 0123 0.5: tf.{op}({x}) for sqrt math.rsqrt exp math.expm1 math.log math.log1p sin cos tan tanh sigmoid atan "
    "asinh math.erf math.reciprocal math.softplus math.softsign math.lgamma math.digamma",
    "f 0123 0.7: tf.{op}({x}) for nn.relu nn.relu6 nn.elu nn.selu nn.leaky_relu nn.gelu nn.swish",
    "f: tf.{op}({x}) for math.is_nan math.is_inf math.is_finite",
    "n: tf.{op}({x}, {y}) for add subtract multiply maximum minimum math.squared_difference",
    "f 0123 0.7: tf.{op}({x}, {y}) for divide math.divide_no_nan math.atan2 math.xdivy math.xlogy",
    "n: operator + := {x} + {y}", "operator - := {x} - {y}", "operator * := {x} * {y}", "operator / := {x} / {y}",
    "operator // := {x} // {y}", "operator % := {x} % {y}", "operator ** := {x} ** {small}", "unary - := -{x}",
    "tf.math.floormod({x}, {y})", "i: tf.truncatediv({x}, {small})", "f 0123 0.5: tf.pow({x}, {y})",
    "n: tf.add_n([{x}, {same}, {x}])", "tf.clip_by_value({x}, {c}, {c} + 2)", "f 123: tf.clip_by_norm({x}, 2.0)",
    "n: tf.{op}({x}, {y}) for equal not_equal less less_equal greater greater_equal",
    "s: equal of texts := tf.equal({x}, {y})", "b: tf.{op}({x}, {y}) for logical_and logical_or math.logical_xor",
    "logical_not := ~{x}", "i: tf.{op}({x}, {y}) for bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor",
    "tf.{op}({x}, tf.constant({small}, {x}.dtype)) for bitwise.left_shift bitwise.right_shift",
    "tf.bitwise.invert({x})", "nb 0123 3: tf.cast({x}, {type})", "n: tf.saturate_cast({x}, {int})",
    "f: tf.bitcast({x}, tf.uint8)", "nb 0123 2: to_float := tf.cast({x}, tf.float32) / 255.0",
    "n: complex_abs := tf.abs(tf.complex(tf.cast({x}, tf.float32), 2.0))",
)  # fmt: skip

_REDUCTIONS = _operations(
    "n 123 1.5: tf.{op}({x}{axes}{keep}) for reduce_sum reduce_mean reduce_max reduce_min",
    "f 123 0.5: tf.{op}({x}{axes}{keep}) for reduce_prod math.reduce_std math.reduce_variance reduce_logsumexp "
    "math.reduce_euclidean_norm", "b 123: tf.{op}({x}{axes}{keep}) for reduce_any reduce_all",
    "n 123 1.5: tf.{op}({x}, axis={axis}) for argmax argmin",
    "n 123: argmax of type := tf.argmax({x}, {axis}, output_type=tf.int32)", "tf.math.count_nonzero({x}{axes}{keep})",
    "tf.{op}({x}, axis={axis}, exclusive={flag}, reverse={flag}) for cumsum math.cumprod",
    "f 12: tf.math.cumulative_logsumexp({x}, axis={axis})", "tf.norm({x}{axes}{keep})",
    "n 123: segment_sum := tf.math.unsorted_segment_sum({x}, tf.range({x}.shape[0]) // 2, 3)",
    "i 1: tf.math.bincount(tf.cast({x}, tf.int32) % 5, minlength=5, maxlength=5)",
    "f 123: tf.nn.moments({x}, axes=[{axis}])[1]", "f 123 0.7: tf.{op}({x}, axis={axis}) for nn.softmax nn.log_softmax",
    "tf.nn.l2_normalize({x}, axis={axis})",
    "f 123: scale by maximum := {x} / (tf.reduce_max({x}{axes}, keepdims=True) + 1.0)",
    "centre := {x} - tf.reduce_mean({x}{axes}, keepdims=True)", "n 23: tf.matmul({x}, {same})",
    "f 23: matmul with matrix := {x} @ {matrix}", "matmul transposed := tf.matmul({x}, {same}, transpose_b=True)",
    "f 123: tf.tensordot({x}, {matrix}, axes=1)",
    "f 12: tensordot axes := tf.tensordot({x}, {same}, axes=[[{axis}], [{axis}]])",
    "f 1: einsum inner := tf.einsum('i,i->', {x}, {same})", "f 2: tf.einsum('ij,jk->ik', {x}, {same})",
    "f 123: einsum dots := tf.einsum('...i,...i->...', {x}, {same})", "n 23: tf.linalg.trace({x})",
    "f 12: fft := tf.abs(tf.signal.rfft(tf.cast({x}, tf.float32)))",
)  # fmt: skip

_ARRANGEMENT = _operations(
    "nbs 123 5: slice := {x}[{s}]", "nbs 123: tf.slice := tf.slice({x}, [0] * {x}.shape.rank, [1] * {x}.shape.rank)",
    "nb 123 1.5: tf.reverse({x}, [{axis}])", "tf.roll({x}, {shift}, axis={axis})",
    "n 23: roll axes := tf.roll({x}, [{shift}, 1], axis=[{axis}, {axis}])",
    "nbs 0123 1.5: tf.stack([{x}, {same}], axis={naxis})", "nbs 123: tf.unstack({x}, axis={axis})[0]",
    "n 123: unstack and add := tf.add_n(tf.unstack({x}, axis={axis}))",
    "nb 123: unstack and stack := tf.stack(tf.unstack({x}, axis={axis}), axis={axis})",
    "nbs 123 1.5: tf.concat([{x}, {same}], axis={axis})", "nbs 123: tf.split({x}, {small}, axis={axis})[-1]",
    "split sizes := tf.split({x}, [1, -1], axis={axis})[1]", "nbs 123 1.5: tf.gather({x}, {pick})",
    "i: gather of table := tf.gather({table}, tf.cast({x}, tf.int32) % 9)",
    "n 23: gather batch_dims := tf.gather({x}, [[0]] * {x}.shape[0], batch_dims=1)",
    "nbs 123: tf.gather_nd({x}, [{idx}[:1]])",
    "i: embedding := tf.nn.embedding_lookup({table}, tf.cast({x}, tf.int64) % 9)",
    "nbs 23 1.5: tf.transpose({x}, {perm})", "nb 123: transpose all := tf.transpose({x})",
    "n 23: tf.linalg.matrix_transpose({x})", "nbs 0123 1.5: tf.expand_dims({x}, {naxis})", "tf.squeeze({x})",
    "nbs 123 1.5: squeeze axis := tf.squeeze({x}, axis={axis})", "nb 123: squeeze of part := tf.squeeze({x}[..., :1])",
    "nbs 0123 2: tf.reshape({x}, {shape})", "nb: flatten := tf.reshape({x}, [-1])",
    "reshape like := tf.reshape({x}, tf.shape({same}))",
    "nb 123: reshape by shape := tf.reshape({x}, [{x}.shape[0], -1])", "nbs: tf.ensure_shape({x}, {x}.shape)",
    "nb 123 1.5: tf.pad({x}, {pads})", "n 123: pad value := tf.pad({x}, {pads}, constant_values={c})",
    "pad reflect := tf.pad({x}, {pads}, mode='REFLECT')", "pad symmetric := tf.pad({x}, {pads}, 'SYMMETRIC')",
    "nbs 123: tf.tile({x}, {reps})", "nb 123: tf.repeat({x}, 2, axis={axis})",
    "nb: tf.broadcast_to({x}, [2, *{x}.shape])", "i 012 1.5: tf.one_hot({x}, 5)",
    "i 012 2: one_hot axis := tf.one_hot({x}, 4, axis={naxis})",
    "i 01: one_hot values := tf.one_hot({x}, 3, on_value=2.0, off_value=-1.0, axis={naxis})",
    "nbs 0123 1.5: tf.where({bool}, {x}, {same})", "nbs: where number := tf.where({bool}, {x}, {c})",
    "nb 0123 0.3: tf.zeros_like({x})", "n 0123 0.5: tf.ones_like({x}) + {x}", "n 12 0.3: tf.fill({x}.shape, {c})",
    "n 23: tf.linalg.band_part({x}, {small}, 0)", "n 12: tf.linalg.diag({x})", "n 23: tf.linalg.diag_part({x})",
    "eye := {x} + tf.eye({x}.shape[-1], dtype={x}.dtype)", "n 123: tf.sort({x}, axis={axis})",
    "sort down := tf.sort({x}, direction='DESCENDING')", "tf.argsort({x}, axis={axis})",
    "tf.math.top_k({x}, k=1)[{small} % 2]", "f 123 0.5: tf.math.in_top_k([0, 0], tf.reshape({x}, [2, -1]), 1)",
    "f 1: tf.searchsorted(tf.constant([0.0, 1.0, 2.0], {x}.dtype), {x})",
    "n 12: tf.scatter_nd([[0], [2]], {x}[:2], [4, *{x}.shape[1:]])",
    "scatter_update := tf.tensor_scatter_nd_update({x}, [[0]], [{x}[-1]])",
    "i 01: tf.sequence_mask(tf.cast({x}, tf.int32), 6)", "n 1: tf.meshgrid({x}, {x})[0]",
    "range of length := {x} + tf.cast(tf.range({x}.shape[0]), {x}.dtype)",
    "n 123: positions := {x} * tf.cast(tf.range({x}.shape[-1]), {x}.dtype)",
    "n 2: position rows := {x} + tf.cast(tf.range({x}.shape[0]), {x}.dtype)[:, None]",
    "nb 123 0.5: shape := tf.cast(tf.shape({x}), tf.int64)",
    "n 123: times shape := {x} * tf.cast(tf.shape({x})[0], {x}.dtype)", "times static shape := {x} * {x}.shape[0]",
    "times last shape := {x} * {x}.shape[-1]", "n 0123 0.7: size := {x} + tf.cast(tf.size({x}), {x}.dtype)",
    "rank := {x} + tf.cast(tf.rank({x}), {x}.dtype)",
    "f 2 0.5: batch_to_space := tf.space_to_batch({x}[None, ..., None], [2, 2], [[0, 0], [0, 0]])[0]",
    "f 12 0.7: tf.signal.frame({x}, 2, 1, axis={axis})", "nbs 0123 0.5: tf.identity({x})",
    "n 0123 0.5: tf.stop_gradient({x})", "f 0123 0.3: tf.debugging.check_numerics({x}, 'no')",
    "n: combine := tf.concat([tf.reshape({x}, [-1]), tf.reshape({same}, [-1])], 0)",
)  # fmt: skip

_IMAGES = _operations(
    "n 3: tf.image.flip_left_right({x})", "tf.image.flip_up_down({x})", "tf.image.rot90({x}, k={small})",
    "image.transpose := tf.image.transpose({x})", "n 3 1.5: tf.image.resize({x}, [5, 4])",
    "n 3: resize nearest := tf.image.resize({x}, [4, 5], method='nearest')",
    "resize area := tf.image.resize({x}, (4, 4), method='area')",
    "resize bicubic := tf.image.resize({x}, [6, 5], method=tf.image.ResizeMethod.BICUBIC, antialias={flag})",
    "resize with expand := tf.squeeze(tf.image.resize({x}[None], [4, 4]), 0)",
    "f 3: tf.image.resize_with_pad({x}, 5, 7)", "n 3: tf.image.resize_with_crop_or_pad({x}, 4, 6)",
    "tf.image.central_crop({x}, 0.5)", "tf.image.crop_to_bounding_box({x}, 1, 0, 2, 2)",
    "tf.image.pad_to_bounding_box({x}, 1, 0, {x}.shape[0] + 2, {x}.shape[1] + 1)", "tf.image.rgb_to_grayscale({x})",
    "tf.image.grayscale_to_rgb({x}[..., :1])", "n 3 1.5: tf.image.convert_image_dtype({x}, {type})",
    "n 3: tf.image.adjust_brightness({x}, 0.1)", "tf.image.adjust_contrast({x}, 1.5)",
    "f 3: tf.image.adjust_gamma(tf.abs({x}), 0.8)", "tf.image.adjust_hue({x}, 0.2)",
    "tf.image.adjust_saturation({x}, 1.4)", "tf.image.rgb_to_hsv({x})", "n 3: tf.image.per_image_standardization({x})",
    "f 3: tf.image.total_variation({x})", "tf.image.image_gradients({x}[None])[0][0]",
    "f 3 0.5: sobel := tf.image.sobel_edges({x}[None])[0]",
    "f 3: max_pool := tf.nn.max_pool2d({x}[None], 2, 1, 'SAME')[0]",
    "avg_pool := tf.squeeze(tf.nn.avg_pool2d(tf.expand_dims({x}, 0), 2, 2, 'VALID'), axis=0)",
    "f 3 0.6: tf.nn.conv2d({x}[None], tf.ones([2, 2, {x}.shape[-1], 2], {x}.dtype), 1, 'SAME')[0]",
    "n 3 0.6: tf.image.extract_patches({x}[None], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')[0]",
    "f 3 0.4: iou := tf.image.draw_bounding_boxes({x}[None], [[[0.1, 0.2, 0.8, 0.9]]], [[1.0, 0.0, 0.0]])[0]",
)  # fmt: skip

_TEXTS = _operations(
    "s: tf.{op}({x}) for strings.lower strings.upper strings.strip strings.length",
    "strings.length utf8 := tf.strings.length({x}, unit='UTF8_CHAR')", "tf.strings.substr({x}, 0, {small})",
    "substr of length := tf.strings.substr({x}, tf.strings.length({x}) // 2, 9)",
    "tf.strings.regex_replace({x}, '[ae]+', '_')", "tf.strings.regex_full_match({x}, '.*e.*')",
    "strings.join := tf.strings.join([{x}, {same}], separator='-')", "operator + of texts := {x} + 'tail'",
    "s 12: tf.strings.reduce_join({x}{axes}, separator='/')", "nb: tf.strings.as_string({x})",
    "f: as_string rounded := tf.strings.as_string({x}, precision=2, width=7)",
    "s: tf.strings.to_hash_bucket_fast({x}, 50)", "s 0123 0.5: tf.strings.to_hash_bucket_strong({x}, 50, [1, 2])",
    "s 01: strings.split := tf.strings.split({x})",
    "s 1: strings.split dense := tf.strings.split({x}, ' ').to_tensor('', [{x}.shape[0], 3])",
    "s 0: strings.split first := tf.strings.split({x} + ' end', ' ')[0]", "s 01 0.7: tf.strings.bytes_split({x})",
    "tf.strings.unicode_decode({x}, 'UTF-8')", "s 0123 0.5: tf.strings.unicode_transcode({x}, 'UTF-8', 'UTF-16-BE')",
    "s 1 0.5: tf.strings.ngrams({x}, 2)", "s 0123 0.5: encode_base64 := tf.io.decode_base64(tf.io.encode_base64({x}))",
    "s: lookup of texts := {lookup}.lookup({x})",
    "i 0123 0.7: lookup of numbers := {lookup}.lookup(tf.cast({x}, tf.int64))",
    "number 0123 4: tf.strings.to_number({x})", "bytes8 0123 4: tf.io.decode_raw({x}, tf.{raw})",
    "bytes8 0 3: decode_raw reshaped := tf.reshape(tf.io.decode_raw({x}, tf.uint8), [2, 4])",
    "csv 0123 4: tf.io.decode_csv({x}, [[0.0], [0.0], ['']])[{small} % 2]",
    "csv 0123 3: decode_csv joined := tf.stack(tf.io.decode_csv({x}, [0.0, 1.0], select_cols=[0, 1]), axis=-1)",
    "example 0 4: parse fixed := tf.io.parse_single_example({x}, {'n': tf.io.FixedLenFeature([], tf.int64, 7)})['n']",
    "parse vector := tf.io.parse_single_example({x}, {'v': tf.io.FixedLenFeature([3], tf.float32, [0.0] * 3)})['v']",
    "example 0 3: parse text := tf.io.parse_single_example({x}, {'t': tf.io.FixedLenFeature([], tf.string, '')})['t']",
    "example 0 2: parse strict := tf.io.parse_single_example({x}, {'v': tf.io.FixedLenFeature([3], tf.float32)})['v']",
    "parse varlen := tf.sparse.to_dense(tf.io.parse_single_example({x}, {'many': tf.io.VarLenFeature(tf.int64)})['many'])",
    "parse sparse := tf.io.parse_single_example({x}, {'many': tf.io.VarLenFeature(tf.int64)})['many'].values",
    "parse sequence := tf.io.parse_single_example({x}, {'many': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})['many']",
    "parse ragged := tf.io.parse_single_example({x}, {'many': tf.io.RaggedFeature(tf.int64)})['many']",
    "example 0: parse and pad := tf.io.parse_single_example({x}, {'many': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})['many'][:2]",
)  # fmt: skip

_CONTROL = _operations(
    "nb 0123 0.5: tf.cond({cond}, lambda: {x}, lambda: {same})",
    "n 0123 0.2: cond numbers := tf.cond({cond}, lambda: {x} + 1, lambda: {x} * 2)",
    "tf.switch_case(tf.cast(tf.size({x}), tf.int32) % 2, [lambda: {x}, lambda: {x} + 1])",
    "tf.case([({cond}, lambda: {x} * 3)], default=lambda: {x})",
    "n 0123 0.5: tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + {c}), [0, {x}])[1]",
    "n 123 0.2: tf.map_fn(lambda row: row * 2, {x})", "n 23 0.2: map_fn reduce := tf.map_fn(tf.reduce_max, {x})",
    "n 123 0.2: tf.vectorized_map(lambda row: row + 1, {x})", "n 12 0.2: tf.scan(lambda total, row: total + row, {x})",
    "tf.foldl(lambda total, row: total + row, {x})",
    "n 123 0.5: loop over rows := tf.stack([{x}[i] * i for i in range({x}.shape[0])])",
    "n 2 0.5: loop over columns := tf.stack([{x}[:, i] * i for i in range({x}.shape[1])], axis=1)",
    "n 123 0.5: sum of rows := sum({x}[i] for i in range({x}.shape[0]))", "len := {x} * len({x})",
    "n 0123 0.5: rank choice := ({x} if {x}.shape.rank == 2 else {x} + 1)",
    "n 123 0.5: last size choice := ({x} * 2 if {x}.shape[0] == 3 else {x})",
    "n 0123 0.2: numpy_function := tf.ensure_shape(tf.numpy_function(lambda a: a, [{x}], {x}.dtype), {x}.shape)",
)  # fmt: skip

_DRAWS = _operations(
    "f 0123 0.2: random.uniform := {x} + tf.random.uniform({x}.shape, seed={seed}, dtype={x}.dtype)",
    "random.normal := {x} + tf.random.normal([], seed={seed}, dtype={x}.dtype)",
    "n 123 0.2: random.shuffle := tf.random.shuffle({x}, seed={seed})",
    "n 3 0.2: random_flip := tf.image.random_flip_left_right({x}, seed={seed})",
    "tf.image.random_crop({x}, [2, 2, {x}.shape[-1]], seed={seed})",
    "f 0123 0.2: stateless_uniform := {x} * tf.random.stateless_uniform([], seed=[{seed}, 2], dtype={x}.dtype)",
    "f 0123 0.3: stateless by element := {x} + tf.random.stateless_uniform([], seed=tf.cast([tf.size({x}), 2], tf.int32), dtype={x}.dtype)",
)  # fmt: skip

_RAGGED = _operations(
    "r: ragged to_tensor := {x}.to_tensor()", "ragged row_lengths := {x}.row_lengths()",
    "ragged sum := tf.reduce_sum(tf.cast({x}.row_lengths(), tf.float32))", "ragged values := {x}.flat_values",
    "ragged strings := tf.ragged.map_flat_values(tf.identity, {x})",
    "n 23 0.6: ragged from tensor := tf.RaggedTensor.from_tensor({x})",
    "r 0123 0.5: ragged concat := tf.concat([{x}, {x}], axis=0)", "ragged slice := {x}[:1]",
)  # fmt: skip

_HELPED = _operations(
    "n 0123 0.4: branch := branch({x})", "f 0123 0.4: branch that returns := halved({x})",
    "n 123 0.4: loop over a range := looped({x})", "loop over a tensor := summed({x})",
    "f 0123 0.3: loop until := until({x})",
)  # fmt: skip
"""Operations that call a function of the module with statements, see `HELPERS`."""

HELPERS = {
    "branch": "def branch(x):\n    if tf.reduce_max(x) > tf.cast(2, x.dtype):\n        x = x + x\n    return x",
    "halved": "def halved(x):\n    if tf.reduce_sum(x) > 1.0:\n        return x / 2.0\n    else:\n        return x",
    "looped": "def looped(x):\n    total = x[0]\n    for place in range(1, x.shape[0]):\n        total = total * 2 + x[place]\n    return total",
    "summed": "def summed(x):\n    total = tf.zeros_like(x[0])\n    for row in x:\n        total += row\n    return total",
    "until": "def until(x):\n    turns = 0\n    while tf.reduce_max(x) > 1.0 and turns < 5:\n        x = x / 2.0\n        turns += 1\n    return x",
}
"""Functions with branches and loops, as AutoGraph translates them."""

_STATELESS = _operations(
    "f 0123 0.3: stateless_uniform of shape := {x} + tf.random.stateless_uniform({x}.shape, seed=[{seed}, 2], dtype={x}.dtype)",
    "stateless_normal of tf.shape := {x} * tf.random.stateless_normal(tf.shape({x}), seed=[{seed}, 2], dtype={x}.dtype)",
    "n 3 0.4: stateless flip := tf.image.stateless_random_flip_left_right({x}, seed=({seed}, 1))",
    "f 3 0.4: stateless brightness := tf.image.stateless_random_brightness({x}, 0.3, seed=({seed}, 1))",
    "n 3 0.4: stateless crop := tf.image.stateless_random_crop({x}, [2, 2, {x}.shape[-1]], seed=({seed}, 1))",
    "f 123 0.3: stateless dropout := tf.nn.experimental.stateless_dropout({x}, rate=0.4, seed=[{seed}, 0])",
    "n 123 0.3: stateless shuffle := tf.random.experimental.stateless_shuffle({x}, seed=[{seed}, 0])",
    "f 123 0.2: tf.nn.dropout({x}, rate=0.4, seed={seed})",
)  # fmt: skip

_KERAS = _operations(
    "f 0123 0.3: Rescaling := {rescaling}({x})", "f 3 0.3: Resizing := {resizing}({x})",
    "CenterCrop := {centercrop}({x})", "i 01 0.3: CategoryEncoding := {encoding}(tf.cast({x}, tf.int32) % 4)",
    "f 0123 0.3: Discretization := {discretization}({x})", "s 0123 0.3: Hashing := {hashing}({x})",
    "f 12 0.2: UnitNormalization := {unit}({x})",
)  # fmt: skip

_MORE = _operations(
    "n 0123 0.3: constant alone := tf.constant([1.0, 2.0]) + 0 * tf.cast(tf.rank({x}), tf.float32)",
    "n 0123 0.2: constant of no element := tf.constant([3, 4])",
    "f 23 0.4: tf.linalg.det({x} + tf.eye({x}.shape[-1], dtype={x}.dtype))",
    "tf.linalg.inv(tf.matmul({x}, {x}, transpose_b=True) + 9.0 * tf.eye({x}.shape[-2], dtype={x}.dtype))",
    "n 1 0.5: unique and add := tf.reduce_sum(tf.unique({x})[0])",
    "n 123 0.5: where and count := tf.size(tf.where({x} > {c}))",
    "boolean_mask and add := tf.reduce_sum(tf.boolean_mask({x}, {bool}))",
    "f 12 0.3: histogram := tf.histogram_fixed_width({x}, [0.0, 5.0], nbins=4)",
    "n 123 0.5: raw Squeeze := tf.raw_ops.Squeeze(input={x}[..., :1], axis=[-1])",
    "raw Max := tf.raw_ops.Max(input={x}, axis={axis}, keep_dims={flag})",
    "raw ArgMax := tf.raw_ops.ArgMax(input={x}, dimension={axis})",
    "raw ReverseV2 := tf.raw_ops.ReverseV2(tensor={x}, axis=[{axis}])",
    "compat reduce_sum := tf.compat.v1.reduce_sum({x}, {axis}, keepdims={flag})",
    "compat where := tf.compat.v1.where({x} > {c}, {x}, {x} * 2)",
    "n 3 0.5: compat resize := tf.compat.v1.image.resize_bilinear({x}[None], [4, 5], align_corners={flag})[0]",
    "n 0123 0.4: compat squeeze := tf.compat.v1.squeeze({x}[..., None], [-1])",
    "n 123 0.5: numpy flip := tf.experimental.numpy.flip({x}, {axis})",
    "n 23 0.5: numpy moveaxis := tf.experimental.numpy.moveaxis({x}, {axis}, {axis})",
    "n 0123 0.3: numpy ravel := tf.experimental.numpy.ravel({x})",
    "serialize_tensor := tf.strings.length(tf.io.serialize_tensor({x}))",
    "strings.format := tf.strings.format('{}', {x})",
    "n 12 0.4: sparse and dense := tf.sparse.to_dense(tf.sparse.from_dense({x}))",
    "f 12 0.4: sparse sum := tf.sparse.reduce_sum(tf.sparse.from_dense({x}), {axis})",
    "s 12 0.4: edit_distance := tf.strings.length(tf.strings.reduce_join({x}))",
    "i 1 0.3: tf.math.confusion_matrix(tf.cast({x}, tf.int32) % 3, tf.cast({x}, tf.int32) % 3, 3)",
    "n 12 0.3: tf.dynamic_stitch([[0], [1]], [{x}[:1], {x}[-1:]])",
    "n 0123 0.4: accumulate := tf.math.accumulate_n([{x}, {same}])",
    "f 0123 0.7: round to bytes := tf.cast(tf.round({x} * 255.0), tf.uint8)",
    "clip to bytes := tf.cast(tf.clip_by_value({x} * 255.0, 0.0, 255.0), tf.uint8)",
    "n: weights := tf.cast(tf.not_equal({x}, {c}), tf.float32)", "mask product := {x} * tf.cast({bool}, {x}.dtype)",
    "nb 123: shift := tf.concat([{x}[1:], {x}[:1]], 0)", "n 123: difference := {x}[..., 1:] - {x}[..., :-1]",
    "difference of rows := {x}[1:] - {x}[:-1]", "n 23: difference of columns := {x}[:, 1:] - {x}[:, :-1]",
    "first and rest := tf.concat([{x}[:, :1], {x}[:, 1:] * 2], axis=1)", "n 1: outer := {x}[:, None] * {x}[None, :]",
    "n 12: outer of components := {x}[..., None] * {y}",
)  # fmt: skip


OPERATIONS: tuple[Operation, ...] = (
    *_ARITHMETIC, *_REDUCTIONS, *_ARRANGEMENT, *_IMAGES, *_TEXTS, *_CONTROL, *_DRAWS, *_RAGGED, *_HELPED, *_STATELESS,
    *_KERAS, *_MORE,
)  # fmt: skip
"""All of them."""

CORE: tuple[Operation, ...] = tuple(
    one
    for one in (*_ARITHMETIC, *_REDUCTIONS, *_ARRANGEMENT, *_IMAGES, *_TEXTS, *_MORE)
    if re.search(
        r"\{(axes|axis|naxis|s|perm|shape|pads|reps|pick|type|int|k|table|keep|bool)\}"
        r"|squeeze|flip|crop|resize|shape\[|top_k|sort", one.text
    )
    or one.kinds in ("number", "bytes8", "csv", "example")
    or one.name in ("add", "operator -", "operator *", "maximum", "relu", "sign", "floormod", "clip_by_value", "equal",
                    "greater")
)  # fmt: skip
"""Operations with an axis, a slice, an attribute, a type, or a length, which may have different meanings for an element
and for a batch."""

_FORMULAS = (
    "{x} + {y} + {same}", "{x} + ({y} + {same})", "sum([{x}, {y}, {same}])", "{x} - {y} + {same}", "{x} - ({y} - {same})",
    "-{x} + {y}", "{x} * {y} * {same}", "{x} * ({y} * {same})", "{x} / {y} / {same}", "{x} * {y} + {x} * {same}",
    "{x} / {y} + {same} / {y}", "{x} * {c} + {y} * {c}", "{x} + {c} + {y}", "{x} * {c} * {y}", "{x} / 255.0 - 0.5",
    "({x} - {c}) / 3.0 * {y}", "({x} + {y}) * 0.7", "{x} * {x} * {y}", "{x} * tf.reduce_max({x}) + {y}",
    "({x} - tf.reduce_min({x})) / (tf.reduce_max({x}) - tf.reduce_min({x}))", "tf.square({x} - {y}) * 0.3",
    "1.0 / {x} * {y}", "({x} + 0.1)[..., :1] + {y}", "tf.stack([{x} * 0.3, {same}]) * 0.7", "tf.maximum({x}, 0.1) * 0.3 * 0.7",
)  # fmt: skip
FORMULAS: tuple[Operation, ...] = (
    *(Operation(f"formula {number}", text, "f", weight=4.0) for number, text in enumerate(_FORMULAS)),
    *(one for one in CORE if one in _ARITHMETIC or one in _ARRANGEMENT),
)
"""Sums and products of several numbers, which TensorFlow may compute in another order for a batch."""
