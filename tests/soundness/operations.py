"""The operations of composed functions: over a hundred operations of TensorFlow as expressions with placeholders.

An operation has the kinds of its tensors and its text; `programs` draws one, fills its placeholders with the available
tensors, and runs it on a sample. It is dropped if that raises, so an operation need not define when it is legal.
"""

from __future__ import annotations

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
        if word == "x":
            if not main:
                main.append(scope.choose(lambda name, tensor: _suits(operation, scope, name, tensor)))
            return main[0]
        if not main:
            main.append(scope.choose(lambda name, tensor: _suits(operation, scope, name, tensor)))
        return _PLACES[word](scope, scope.tensors[main[0]], main[0])

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
    """A number of the type of x."""
    rng = scope.rng
    if x.dtype == tf.bool:
        return rng.choice(["True", "False"])
    if x.dtype == tf.string:
        return repr(rng.choice(["a", "", "red", " "]))
    if x.dtype.is_floating:
        return rng.choice(["0.0", "1.0", "0.5", "-1.5", "2.0", "3.0", "0.1", "100.0", "255.0", "-0.0"])
    return rng.choice(["1", "2", "3", "5", "0", "7"])


def _other(scope: Scope, x: Any, name: str) -> str:
    """An operand for x: another tensor that broadcasts, a number, a constant of the module, a part of x."""
    rng = scope.rng
    draw = rng.random()
    if draw < 0.35:
        try:
            return scope.choose(lambda other, tensor: other != name and _broadcasts(tensor, x))
        except NoPlace:
            pass
    if draw < 0.55:
        return _number(scope, x, name)
    if draw < 0.75 and x.shape.rank and x.dtype not in (tf.bool, tf.string):
        return _constant(scope, x, name)
    if draw < 0.9 and x.shape.rank:
        part = f"{name}[{_slices(scope, x, name)}]"
        return part if draw < 0.85 else f"{name}[..., None]"
    return name


def _broadcasts(tensor: Any, x: Any) -> bool:
    if isinstance(tensor, tf.RaggedTensor) or tensor.dtype != x.dtype:
        return False
    try:
        tf.broadcast_static_shape(tensor.shape, x.shape)
    except ValueError:
        return False
    return True


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
    if scope.rng.random() < 0.6:
        try:
            return scope.choose(
                lambda other, tensor: (
                    not isinstance(tensor, tf.RaggedTensor) and tensor.dtype == x.dtype and tensor.shape == x.shape
                    and other != name
                )
            )  # fmt: skip
        except NoPlace:
            pass
    return scope.rng.choice([name, f"{name}[::-1]"]) if x.shape.rank else name


def _new_shape(scope: Scope, x: Any, _: str) -> str:
    count = int(np.prod([int(size) for size in x.shape]))
    divisors = [n for n in range(1, count + 1) if count % n == 0]
    rng = scope.rng
    first = rng.choice(divisors)
    choices = [[-1], [count], [first, count // first], [first, -1], [-1, first], [1, -1], [count, 1]]
    second = rng.choice([n for n in divisors if (count // first) % n == 0])
    choices += [[first, second, count // first // second]]
    choices += [list(reversed([int(size) for size in x.shape]))]
    return str(rng.choice(choices))


def _indices(scope: Scope, x: Any, _: str) -> str:
    size = _length(x, 0) if x.shape.rank else 1
    found = [scope.rng.randrange(size) for _ in range(scope.rng.randint(1, 3))]
    return str(found)


def _picked(scope: Scope, x: Any, name: str) -> str:
    """Integers for indexing: computed from the element, or literals; as an argument besides an axis."""
    axis = int(_axis(scope, x, name))
    size = _length(x, axis)
    if scope.rng.random() < 0.4:
        try:
            other = scope.choose(
                lambda _, tensor: (
                    not isinstance(tensor, tf.RaggedTensor) and tensor.dtype in (tf.int32, tf.int64)
                    and tensor.shape.rank < 2
                )
            )  # fmt: skip
            return f"tf.math.floormod({other}, {size}), axis={axis}"
        except NoPlace:
            pass
    found = [scope.rng.randrange(size) for _ in range(scope.rng.randint(1, 3))]
    return f"{found if scope.rng.random() < 0.7 else found[0]}, axis={axis}"


def _boolean(scope: Scope, x: Any, name: str) -> str:
    """A condition with the shape of x, or one that broadcasts with it."""
    rng = scope.rng
    if rng.random() < 0.3:
        try:
            return scope.choose(
                lambda _, tensor: (
                    not isinstance(tensor, tf.RaggedTensor) and tensor.dtype == tf.bool and tensor.shape == x.shape
                )
            )
        except NoPlace:
            pass
    if x.dtype == tf.bool:
        return name
    if x.dtype == tf.string:
        return f"tf.equal({name}, {_number(scope, x, name)})"
    return f"{name} > {_number(scope, x, name)}"


def _one_condition(scope: Scope, x: Any, name: str) -> str:
    """A condition of the whole element."""
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
    if x.dtype == tf.string:
        keys, default = "['red', 'a', '', 'UPPER']", -1
    else:
        keys, default = "tf.constant([0, 1, 2, 7], tf.int64)", -1
    made = f"tf.lookup.KeyValueTensorInitializer({keys}, tf.constant([3, 1, 4, 1], tf.int64))"
    return scope.constant(f"tf.lookup.StaticHashTable({made}, {default})")


_PLACES: dict[str, _Place] = {
    "axes": _axes,
    "axis": _axis,
    "bool": _boolean,
    "c": _number,
    "cond": _one_condition,
    "flag": lambda scope, _x, _: scope.rng.choice(["True", "False"]),
    "idx": _indices,
    "int": lambda scope, x, _: "tf." + scope.rng.choice([name for name in INTEGERS if name != x.dtype.name]),
    "k": _constant,
    "keep": lambda scope, _x, _: ", keepdims=True" if scope.rng.random() < 0.35 else "",
    "lookup": _lookup,
    "matrix": _matrix,
    "naxis": lambda scope, x, _: str(scope.rng.randrange(-x.shape.rank - 1, x.shape.rank + 1)),
    "pads": lambda scope, x, _: str(
        [[scope.rng.choice([0, 0, 1]), scope.rng.choice([0, 1, 1])] for _ in range(x.shape.rank)]
    ),
    "perm": _permutation,
    "pick": _picked,
    "reps": lambda scope, x, _: str([scope.rng.choice([1, 1, 2, 3]) for _ in range(x.shape.rank)]),
    "s": _slices,
    "same": _same_shape,
    "seed": lambda scope, _x, _: str(scope.rng.randint(1, 9)),
    "shape": _new_shape,
    "shift": lambda scope, _x, _: str(scope.rng.choice([1, 2, 3, -1, -2])),
    "small": lambda scope, _x, _: str(scope.rng.randint(1, 3)),
    "table": _table,
    "type": lambda scope, x, _: (
        "tf." + scope.rng.choice([name for name in (*NUMBERS, "bool", "bfloat16") if name != x.dtype.name])
    ),
    "y": _other,
}


# -- the operations


def _each(
    names: str, text: str, kinds: str = "n", ranks: Sequence[int] = (0, 1, 2, 3), weight: float = 1.0
) -> list[Operation]:
    """Several operations with similar text."""
    return [Operation(name.split(".")[-1], text.replace("{op}", name), kinds, ranks, weight) for name in names.split()]


_ARITHMETIC = [
    *_each("abs negative sign square floor math.ceil round math.rint", "tf.{op}({x})"),
    *_each("sqrt math.rsqrt exp math.expm1 math.log math.log1p sin cos tan tanh sigmoid atan asinh math.erf "
           "math.reciprocal math.softplus math.softsign math.lgamma math.digamma", "tf.{op}({x})", "f", weight=0.5),
    *_each("nn.relu nn.relu6 nn.elu nn.selu nn.leaky_relu nn.gelu nn.swish", "tf.{op}({x})", "f", weight=0.7),
    *_each("math.is_nan math.is_inf math.is_finite", "tf.{op}({x})", "f"),
    *_each("add subtract multiply maximum minimum math.squared_difference", "tf.{op}({x}, {y})"),
    *_each("divide math.divide_no_nan math.atan2 math.xdivy math.xlogy", "tf.{op}({x}, {y})", "f", weight=0.7),
    Operation("operator +", "{x} + {y}"), Operation("operator -", "{x} - {y}"), Operation("operator *", "{x} * {y}"),
    Operation("operator /", "{x} / {y}"), Operation("operator //", "{x} // {y}"), Operation("operator %", "{x} % {y}"),
    Operation("operator **", "{x} ** {small}"), Operation("unary -", "-{x}"),
    Operation("floormod", "tf.math.floormod({x}, {y})"), Operation("truncatediv", "tf.truncatediv({x}, {small})", "i"),
    Operation("pow", "tf.pow({x}, {y})", "f", weight=0.5),
    Operation("add_n", "tf.add_n([{x}, {same}, {x}])"),
    Operation("clip_by_value", "tf.clip_by_value({x}, {c}, {c} + 2)"),
    Operation("clip_by_norm", "tf.clip_by_norm({x}, 2.0)", "f", (1, 2, 3)),
    *_each("equal not_equal less less_equal greater greater_equal", "tf.{op}({x}, {y})"),
    Operation("equal of texts", "tf.equal({x}, {y})", "s"),
    *_each("logical_and logical_or math.logical_xor", "tf.{op}({x}, {y})", "b"),
    Operation("logical_not", "~{x}", "b"),
    *_each("bitwise.bitwise_and bitwise.bitwise_or bitwise.bitwise_xor", "tf.{op}({x}, {y})", "i"),
    *_each("bitwise.left_shift bitwise.right_shift", "tf.{op}({x}, tf.constant({small}, {x}.dtype))", "i"),
    Operation("invert", "tf.bitwise.invert({x})", "i"),
    Operation("cast", "tf.cast({x}, {type})", "nb", weight=3.0),
    Operation("saturate_cast", "tf.saturate_cast({x}, {int})"),
    Operation("bitcast", "tf.bitcast({x}, tf.uint8)", "f"),
    Operation("to_float", "tf.cast({x}, tf.float32) / 255.0", "nb", weight=2.0),
    Operation("complex_abs", "tf.abs(tf.complex(tf.cast({x}, tf.float32), 2.0))"),
]  # fmt: skip

_REDUCTIONS = [
    *_each("reduce_sum reduce_mean reduce_max reduce_min", "tf.{op}({x}{axes}{keep})", "n", (1, 2, 3), 1.5),
    *_each("reduce_prod math.reduce_std math.reduce_variance reduce_logsumexp math.reduce_euclidean_norm",
           "tf.{op}({x}{axes}{keep})", "f", (1, 2, 3), 0.5),
    *_each("reduce_any reduce_all", "tf.{op}({x}{axes}{keep})", "b", (1, 2, 3)),
    *_each("argmax argmin", "tf.{op}({x}, axis={axis})", "n", (1, 2, 3), 1.5),
    Operation("argmax of type", "tf.argmax({x}, {axis}, output_type=tf.int32)", "n", (1, 2, 3)),
    Operation("count_nonzero", "tf.math.count_nonzero({x}{axes}{keep})", "n", (1, 2, 3)),
    *_each("cumsum math.cumprod", "tf.{op}({x}, axis={axis}, exclusive={flag}, reverse={flag})", "n", (1, 2, 3)),
    Operation("cumulative_logsumexp", "tf.math.cumulative_logsumexp({x}, axis={axis})", "f", (1, 2)),
    Operation("norm", "tf.norm({x}{axes}{keep})", "f", (1, 2)),
    Operation("segment_sum", "tf.math.unsorted_segment_sum({x}, tf.range({x}.shape[0]) // 2, 3)", "n", (1, 2, 3)),
    Operation("bincount", "tf.math.bincount(tf.cast({x}, tf.int32) % 5, minlength=5, maxlength=5)", "i", (1,)),
    Operation("moments", "tf.nn.moments({x}, axes=[{axis}])[1]", "f", (1, 2, 3)),
    *_each("nn.softmax nn.log_softmax", "tf.{op}({x}, axis={axis})", "f", (1, 2, 3), 0.7),
    Operation("l2_normalize", "tf.nn.l2_normalize({x}, axis={axis})", "f", (1, 2, 3), 0.7),
    Operation("scale by maximum", "{x} / (tf.reduce_max({x}{axes}, keepdims=True) + 1.0)", "f", (1, 2, 3)),
    Operation("centre", "{x} - tf.reduce_mean({x}{axes}, keepdims=True)", "f", (1, 2, 3)),
    Operation("matmul", "tf.matmul({x}, {same})", "n", (2, 3)),
    Operation("matmul with matrix", "{x} @ {matrix}", "f", (2, 3)),
    Operation("matmul transposed", "tf.matmul({x}, {same}, transpose_b=True)", "f", (2, 3)),
    Operation("tensordot", "tf.tensordot({x}, {matrix}, axes=1)", "f", (1, 2, 3)),
    Operation("tensordot axes", "tf.tensordot({x}, {same}, axes=[[{axis}], [{axis}]])", "f", (1, 2)),
    Operation("einsum inner", "tf.einsum('i,i->', {x}, {same})", "f", (1,)),
    Operation("einsum", "tf.einsum('ij,jk->ik', {x}, {same})", "f", (2,)),
    Operation("einsum dots", "tf.einsum('...i,...i->...', {x}, {same})", "f", (1, 2, 3)),
    Operation("trace", "tf.linalg.trace({x})", "n", (2, 3)),
    Operation("fft", "tf.abs(tf.signal.rfft(tf.cast({x}, tf.float32)))", "f", (1, 2)),
]  # fmt: skip

_ARRANGEMENT = [
    Operation("slice", "{x}[{s}]", "nbs", (1, 2, 3), 5.0),
    Operation("tf.slice", "tf.slice({x}, [0] * {x}.shape.rank, [1] * {x}.shape.rank)", "nbs", (1, 2, 3)),
    Operation("reverse", "tf.reverse({x}, [{axis}])", "nb", (1, 2, 3), 1.5),
    Operation("roll", "tf.roll({x}, {shift}, axis={axis})", "nb", (1, 2, 3), 1.5),
    Operation("roll axes", "tf.roll({x}, [{shift}, 1], axis=[{axis}, {axis}])", "n", (2, 3)),
    Operation("stack", "tf.stack([{x}, {same}], axis={naxis})", "nbs", weight=1.5),
    Operation("unstack", "tf.unstack({x}, axis={axis})[0]", "nbs", (1, 2, 3)),
    Operation("unstack and add", "tf.add_n(tf.unstack({x}, axis={axis}))", "n", (1, 2, 3)),
    Operation("unstack and stack", "tf.stack(tf.unstack({x}, axis={axis}), axis={axis})", "nb", (1, 2, 3)),
    Operation("concat", "tf.concat([{x}, {same}], axis={axis})", "nbs", (1, 2, 3), 1.5),
    Operation("split", "tf.split({x}, {small}, axis={axis})[-1]", "nbs", (1, 2, 3)),
    Operation("split sizes", "tf.split({x}, [1, -1], axis={axis})[1]", "nbs", (1, 2, 3)),
    Operation("gather", "tf.gather({x}, {pick})", "nbs", (1, 2, 3), 1.5),
    Operation("gather of table", "tf.gather({table}, tf.cast({x}, tf.int32) % 9)", "i"),
    Operation("gather batch_dims", "tf.gather({x}, [[0]] * {x}.shape[0], batch_dims=1)", "n", (2, 3)),
    Operation("gather_nd", "tf.gather_nd({x}, [{idx}[:1]])", "nbs", (1, 2, 3)),
    Operation("embedding", "tf.nn.embedding_lookup({table}, tf.cast({x}, tf.int64) % 9)", "i"),
    Operation("transpose", "tf.transpose({x}, {perm})", "nbs", (2, 3), 1.5),
    Operation("transpose all", "tf.transpose({x})", "nb", (1, 2, 3)),
    Operation("matrix_transpose", "tf.linalg.matrix_transpose({x})", "n", (2, 3)),
    Operation("expand_dims", "tf.expand_dims({x}, {naxis})", "nbs", weight=1.5),
    Operation("squeeze", "tf.squeeze({x})", "nbs", weight=1.5),
    Operation("squeeze axis", "tf.squeeze({x}, axis={axis})", "nbs", (1, 2, 3), 1.5),
    Operation("squeeze of part", "tf.squeeze({x}[..., :1])", "nb", (1, 2, 3)),
    Operation("reshape", "tf.reshape({x}, {shape})", "nbs", weight=2.0),
    Operation("flatten", "tf.reshape({x}, [-1])", "nb"),
    Operation("reshape like", "tf.reshape({x}, tf.shape({same}))", "nb"),
    Operation("reshape by shape", "tf.reshape({x}, [{x}.shape[0], -1])", "nb", (1, 2, 3)),
    Operation("ensure_shape", "tf.ensure_shape({x}, {x}.shape)", "nbs"),
    Operation("pad", "tf.pad({x}, {pads})", "nb", (1, 2, 3), 1.5),
    Operation("pad value", "tf.pad({x}, {pads}, constant_values={c})", "n", (1, 2, 3)),
    Operation("pad reflect", "tf.pad({x}, {pads}, mode='REFLECT')", "n", (1, 2, 3)),
    Operation("pad symmetric", "tf.pad({x}, {pads}, 'SYMMETRIC')", "n", (1, 2, 3)),
    Operation("tile", "tf.tile({x}, {reps})", "nbs", (1, 2, 3)),
    Operation("repeat", "tf.repeat({x}, 2, axis={axis})", "nb", (1, 2, 3)),
    Operation("broadcast_to", "tf.broadcast_to({x}, [2, *{x}.shape])", "nb"),
    Operation("one_hot", "tf.one_hot({x}, 5)", "i", (0, 1, 2), 1.5),
    Operation("one_hot axis", "tf.one_hot({x}, 4, axis={naxis})", "i", (0, 1, 2), 2.0),
    Operation("one_hot values", "tf.one_hot({x}, 3, on_value=2.0, off_value=-1.0, axis={naxis})", "i", (0, 1)),
    Operation("where", "tf.where({bool}, {x}, {same})", "nbs", weight=1.5),
    Operation("where number", "tf.where({bool}, {x}, {c})", "nbs"),
    Operation("zeros_like", "tf.zeros_like({x})", "nb", weight=0.3),
    Operation("ones_like", "tf.ones_like({x}) + {x}", "n", weight=0.5),
    Operation("fill", "tf.fill({x}.shape, {c})", "n", (1, 2), 0.3),
    Operation("band_part", "tf.linalg.band_part({x}, {small}, 0)", "n", (2, 3)),
    Operation("diag", "tf.linalg.diag({x})", "n", (1, 2)),
    Operation("diag_part", "tf.linalg.diag_part({x})", "n", (2, 3)),
    Operation("eye", "{x} + tf.eye({x}.shape[-1], dtype={x}.dtype)", "n", (2, 3)),
    Operation("sort", "tf.sort({x}, axis={axis})", "n", (1, 2, 3)),
    Operation("sort down", "tf.sort({x}, direction='DESCENDING')", "n", (1, 2, 3)),
    Operation("argsort", "tf.argsort({x}, axis={axis})", "n", (1, 2, 3)),
    Operation("top_k", "tf.math.top_k({x}, k=1)[{small} % 2]", "n", (1, 2, 3)),
    Operation("in_top_k", "tf.math.in_top_k([0, 0], tf.reshape({x}, [2, -1]), 1)", "f", (1, 2, 3), 0.5),
    Operation("searchsorted", "tf.searchsorted(tf.constant([0.0, 1.0, 2.0], {x}.dtype), {x})", "f", (1,)),
    Operation("scatter_nd", "tf.scatter_nd([[0], [2]], {x}[:2], [4, *{x}.shape[1:]])", "n", (1, 2)),
    Operation("scatter_update", "tf.tensor_scatter_nd_update({x}, [[0]], [{x}[-1]])", "n", (1, 2)),
    Operation("sequence_mask", "tf.sequence_mask(tf.cast({x}, tf.int32), 6)", "i", (0, 1)),
    Operation("meshgrid", "tf.meshgrid({x}, {x})[0]", "n", (1,)),
    Operation("range of length", "{x} + tf.cast(tf.range({x}.shape[0]), {x}.dtype)", "n", (1,)),
    Operation("positions", "{x} * tf.cast(tf.range({x}.shape[-1]), {x}.dtype)", "n", (1, 2, 3)),
    Operation("position rows", "{x} + tf.cast(tf.range({x}.shape[0]), {x}.dtype)[:, None]", "n", (2,)),
    Operation("shape", "tf.cast(tf.shape({x}), tf.int64)", "nb", (1, 2, 3), 0.5),
    Operation("times shape", "{x} * tf.cast(tf.shape({x})[0], {x}.dtype)", "n", (1, 2, 3)),
    Operation("times static shape", "{x} * {x}.shape[0]", "n", (1, 2, 3)),
    Operation("times last shape", "{x} * {x}.shape[-1]", "n", (1, 2, 3)),
    Operation("size", "{x} + tf.cast(tf.size({x}), {x}.dtype)", "n", weight=0.7),
    Operation("rank", "{x} + tf.cast(tf.rank({x}), {x}.dtype)", "n", weight=0.7),
    Operation("batch_to_space", "tf.space_to_batch({x}[None, ..., None], [2, 2], [[0, 0], [0, 0]])[0]", "f", (2,), 0.5),
    Operation("frame", "tf.signal.frame({x}, 2, 1, axis={axis})", "f", (1, 2), 0.7),
    Operation("identity", "tf.identity({x})", "nbs", weight=0.5),
    Operation("stop_gradient", "tf.stop_gradient({x})", "n", weight=0.5),
    Operation("check_numerics", "tf.debugging.check_numerics({x}, 'no')", "f", weight=0.3),
    Operation("combine", "tf.concat([tf.reshape({x}, [-1]), tf.reshape({same}, [-1])], 0)", "n"),
]  # fmt: skip

_IMAGES = [
    Operation("flip_left_right", "tf.image.flip_left_right({x})", "n", (3,)),
    Operation("flip_up_down", "tf.image.flip_up_down({x})", "n", (3,)),
    Operation("rot90", "tf.image.rot90({x}, k={small})", "n", (3,)),
    Operation("image.transpose", "tf.image.transpose({x})", "n", (3,)),
    Operation("resize", "tf.image.resize({x}, [5, 4])", "n", (3,), 1.5),
    Operation("resize nearest", "tf.image.resize({x}, [4, 5], method='nearest')", "n", (3,)),
    Operation("resize area", "tf.image.resize({x}, (4, 4), method='area')", "n", (3,)),
    Operation("resize bicubic", "tf.image.resize({x}, [6, 5], method=tf.image.ResizeMethod.BICUBIC, antialias={flag})", "n", (3,)),
    Operation("resize with expand", "tf.squeeze(tf.image.resize({x}[None], [4, 4]), 0)", "n", (3,)),
    Operation("resize_with_pad", "tf.image.resize_with_pad({x}, 5, 7)", "f", (3,)),
    Operation("resize_with_crop_or_pad", "tf.image.resize_with_crop_or_pad({x}, 4, 6)", "n", (3,)),
    Operation("central_crop", "tf.image.central_crop({x}, 0.5)", "n", (3,)),
    Operation("crop_to_bounding_box", "tf.image.crop_to_bounding_box({x}, 1, 0, 2, 2)", "n", (3,)),
    Operation("pad_to_bounding_box", "tf.image.pad_to_bounding_box({x}, 1, 0, {x}.shape[0] + 2, {x}.shape[1] + 1)", "n", (3,)),
    Operation("rgb_to_grayscale", "tf.image.rgb_to_grayscale({x})", "n", (3,)),
    Operation("grayscale_to_rgb", "tf.image.grayscale_to_rgb({x}[..., :1])", "n", (3,)),
    Operation("convert_image_dtype", "tf.image.convert_image_dtype({x}, {type})", "n", (3,), 1.5),
    Operation("adjust_brightness", "tf.image.adjust_brightness({x}, 0.1)", "n", (3,)),
    Operation("adjust_contrast", "tf.image.adjust_contrast({x}, 1.5)", "n", (3,)),
    Operation("adjust_gamma", "tf.image.adjust_gamma(tf.abs({x}), 0.8)", "f", (3,)),
    Operation("adjust_hue", "tf.image.adjust_hue({x}, 0.2)", "f", (3,)),
    Operation("adjust_saturation", "tf.image.adjust_saturation({x}, 1.4)", "f", (3,)),
    Operation("rgb_to_hsv", "tf.image.rgb_to_hsv({x})", "f", (3,)),
    Operation("per_image_standardization", "tf.image.per_image_standardization({x})", "n", (3,)),
    Operation("total_variation", "tf.image.total_variation({x})", "f", (3,)),
    Operation("image_gradients", "tf.image.image_gradients({x}[None])[0][0]", "f", (3,)),
    Operation("sobel", "tf.image.sobel_edges({x}[None])[0]", "f", (3,), 0.5),
    Operation("max_pool", "tf.nn.max_pool2d({x}[None], 2, 1, 'SAME')[0]", "f", (3,)),
    Operation("avg_pool", "tf.squeeze(tf.nn.avg_pool2d(tf.expand_dims({x}, 0), 2, 2, 'VALID'), axis=0)", "f", (3,)),
    Operation("conv2d", "tf.nn.conv2d({x}[None], tf.ones([2, 2, {x}.shape[-1], 2], {x}.dtype), 1, 'SAME')[0]", "f", (3,), 0.6),
    Operation("extract_patches", "tf.image.extract_patches({x}[None], [1, 2, 2, 1], [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')[0]", "n", (3,), 0.6),
    Operation("iou", "tf.image.draw_bounding_boxes({x}[None], [[[0.1, 0.2, 0.8, 0.9]]], [[1.0, 0.0, 0.0]])[0]", "f", (3,), 0.4),
]  # fmt: skip

_TEXTS = [
    *_each("strings.lower strings.upper strings.strip strings.length", "tf.{op}({x})", "s"),
    Operation("strings.length utf8", "tf.strings.length({x}, unit='UTF8_CHAR')", "s"),
    Operation("substr", "tf.strings.substr({x}, 0, {small})", "s"),
    Operation("substr of length", "tf.strings.substr({x}, tf.strings.length({x}) // 2, 9)", "s"),
    Operation("regex_replace", "tf.strings.regex_replace({x}, '[ae]+', '_')", "s"),
    Operation("regex_full_match", "tf.strings.regex_full_match({x}, '.*e.*')", "s"),
    Operation("strings.join", "tf.strings.join([{x}, {same}], separator='-')", "s"),
    Operation("operator + of texts", "{x} + 'tail'", "s"),
    Operation("reduce_join", "tf.strings.reduce_join({x}{axes}, separator='/')", "s", (1, 2)),
    Operation("as_string", "tf.strings.as_string({x})", "nb"),
    Operation("as_string rounded", "tf.strings.as_string({x}, precision=2, width=7)", "f"),
    Operation("to_hash_bucket_fast", "tf.strings.to_hash_bucket_fast({x}, 50)", "s"),
    Operation("to_hash_bucket_strong", "tf.strings.to_hash_bucket_strong({x}, 50, [1, 2])", "s", weight=0.5),
    Operation("strings.split", "tf.strings.split({x})", "s", (0, 1)),
    Operation("strings.split dense", "tf.strings.split({x}, ' ').to_tensor('', [{x}.shape[0], 3])", "s", (1,)),
    Operation("strings.split first", "tf.strings.split({x} + ' end', ' ')[0]", "s", (0,)),
    Operation("bytes_split", "tf.strings.bytes_split({x})", "s", (0, 1), 0.7),
    Operation("unicode_decode", "tf.strings.unicode_decode({x}, 'UTF-8')", "s", (0, 1), 0.7),
    Operation("unicode_transcode", "tf.strings.unicode_transcode({x}, 'UTF-8', 'UTF-16-BE')", "s", weight=0.5),
    Operation("ngrams", "tf.strings.ngrams({x}, 2)", "s", (1,), 0.5),
    Operation("encode_base64", "tf.io.decode_base64(tf.io.encode_base64({x}))", "s", weight=0.5),
    Operation("lookup of texts", "{lookup}.lookup({x})", "s"),
    Operation("lookup of numbers", "{lookup}.lookup(tf.cast({x}, tf.int64))", "i", weight=0.7),
    Operation("to_number", "tf.strings.to_number({x})", "number", weight=4.0),
    Operation("decode_raw", "tf.io.decode_raw({x}, tf.{raw})", "bytes8", weight=4.0),
    Operation("decode_raw reshaped", "tf.reshape(tf.io.decode_raw({x}, tf.uint8), [2, 4])", "bytes8", (0,), 3.0),
    Operation("decode_csv", "tf.io.decode_csv({x}, [[0.0], [0.0], ['']])[{small} % 2]", "csv", weight=4.0),
    Operation("decode_csv joined", "tf.stack(tf.io.decode_csv({x}, [0.0, 1.0], select_cols=[0, 1]), axis=-1)", "csv", weight=3.0),
    Operation("parse fixed", "tf.io.parse_single_example({x}, {'n': tf.io.FixedLenFeature([], tf.int64, 7)})['n']", "example", (0,), 4.0),
    Operation("parse vector", "tf.io.parse_single_example({x}, {'v': tf.io.FixedLenFeature([3], tf.float32, [0.0] * 3)})['v']", "example", (0,), 4.0),
    Operation("parse text", "tf.io.parse_single_example({x}, {'t': tf.io.FixedLenFeature([], tf.string, '')})['t']", "example", (0,), 3.0),
    Operation("parse strict", "tf.io.parse_single_example({x}, {'v': tf.io.FixedLenFeature([3], tf.float32)})['v']", "example", (0,), 2.0),
    Operation("parse varlen", "tf.sparse.to_dense(tf.io.parse_single_example({x}, {'many': tf.io.VarLenFeature(tf.int64)})['many'])", "example", (0,), 2.0),
    Operation("parse sparse", "tf.io.parse_single_example({x}, {'many': tf.io.VarLenFeature(tf.int64)})['many'].values", "example", (0,), 2.0),
    Operation("parse sequence", "tf.io.parse_single_example({x}, {'many': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})['many']", "example", (0,), 2.0),
    Operation("parse ragged", "tf.io.parse_single_example({x}, {'many': tf.io.RaggedFeature(tf.int64)})['many']", "example", (0,), 2.0),
    Operation("parse and pad", "tf.io.parse_single_example({x}, {'many': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)})['many'][:2]", "example", (0,), 1.0),
]  # fmt: skip

_CONTROL = [
    Operation("cond", "tf.cond({cond}, lambda: {x}, lambda: {same})", "nb", weight=0.5),
    Operation("cond numbers", "tf.cond({cond}, lambda: {x} + 1, lambda: {x} * 2)", "n", weight=0.2),
    Operation("switch_case", "tf.switch_case(tf.cast(tf.size({x}), tf.int32) % 2, [lambda: {x}, lambda: {x} + 1])", "n", weight=0.2),
    Operation("case", "tf.case([({cond}, lambda: {x} * 3)], default=lambda: {x})", "n", weight=0.2),
    Operation("while_loop", "tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + {c}), [0, {x}])[1]", "n", weight=0.5),
    Operation("map_fn", "tf.map_fn(lambda row: row * 2, {x})", "n", (1, 2, 3), weight=0.2),
    Operation("map_fn reduce", "tf.map_fn(tf.reduce_max, {x})", "n", (2, 3), weight=0.2),
    Operation("vectorized_map", "tf.vectorized_map(lambda row: row + 1, {x})", "n", (1, 2, 3), 0.2),
    Operation("scan", "tf.scan(lambda total, row: total + row, {x})", "n", (1, 2), 0.2),
    Operation("foldl", "tf.foldl(lambda total, row: total + row, {x})", "n", (1, 2), 0.2),
    Operation("loop over rows", "tf.stack([{x}[i] * i for i in range({x}.shape[0])])", "n", (1, 2, 3), weight=0.5),
    Operation("loop over columns", "tf.stack([{x}[:, i] * i for i in range({x}.shape[1])], axis=1)", "n", (2,), weight=0.5),
    Operation("sum of rows", "sum({x}[i] for i in range({x}.shape[0]))", "n", (1, 2, 3), weight=0.5),
    Operation("len", "{x} * len({x})", "n", (1, 2, 3), weight=0.5),
    Operation("rank choice", "({x} if {x}.shape.rank == 2 else {x} + 1)", "n", weight=0.5),
    Operation("last size choice", "({x} * 2 if {x}.shape[0] == 3 else {x})", "n", (1, 2, 3), weight=0.5),
    Operation("numpy_function", "tf.ensure_shape(tf.numpy_function(lambda a: a, [{x}], {x}.dtype), {x}.shape)", "n", weight=0.2),
]  # fmt: skip

_DRAWS = [
    Operation("random.uniform", "{x} + tf.random.uniform({x}.shape, seed={seed}, dtype={x}.dtype)", "f", weight=0.2),
    Operation("random.normal", "{x} + tf.random.normal([], seed={seed}, dtype={x}.dtype)", "f", weight=0.2),
    Operation("random.shuffle", "tf.random.shuffle({x}, seed={seed})", "n", (1, 2, 3), 0.2),
    Operation("random_flip", "tf.image.random_flip_left_right({x}, seed={seed})", "n", (3,), 0.2),
    Operation("random_crop", "tf.image.random_crop({x}, [2, 2, {x}.shape[-1]], seed={seed})", "n", (3,), 0.2),
    Operation("stateless_uniform", "{x} * tf.random.stateless_uniform([], seed=[{seed}, 2], dtype={x}.dtype)", "f", weight=0.2),
    Operation("stateless by element",
              "{x} + tf.random.stateless_uniform([], seed=tf.cast([tf.size({x}), 2], tf.int32), dtype={x}.dtype)", "f", weight=0.3),
]  # fmt: skip

_RAGGED = [
    Operation("ragged to_tensor", "{x}.to_tensor()", "r"),
    Operation("ragged row_lengths", "{x}.row_lengths()", "r"),
    Operation("ragged sum", "tf.reduce_sum(tf.cast({x}.row_lengths(), tf.float32))", "r"),
    Operation("ragged values", "{x}.flat_values", "r"),
    Operation("ragged strings", "tf.ragged.map_flat_values(tf.identity, {x})", "r"),
    Operation("ragged from tensor", "tf.RaggedTensor.from_tensor({x})", "n", (2, 3), 0.6),
    Operation("ragged concat", "tf.concat([{x}, {x}], axis=0)", "r", weight=0.5),
    Operation("ragged slice", "{x}[:1]", "r", weight=0.5),
]  # fmt: skip

_HELPED = [
    Operation("branch", "branch({x})", "n", weight=0.4),
    Operation("branch that returns", "halved({x})", "f", weight=0.4),
    Operation("loop over a range", "looped({x})", "n", (1, 2, 3), 0.4),
    Operation("loop over a tensor", "summed({x})", "n", (1, 2, 3), 0.4),
    Operation("loop until", "until({x})", "f", weight=0.3),
]
"""Operations that call a function of the module with statements, see `HELPERS`."""

HELPERS = {
    "branch": "def branch(x):\n    if tf.reduce_max(x) > tf.cast(2, x.dtype):\n        x = x + x\n    return x",
    "halved": "def halved(x):\n    if tf.reduce_sum(x) > 1.0:\n        return x / 2.0\n    else:\n        return x",
    "looped": "def looped(x):\n    total = x[0]\n    for place in range(1, x.shape[0]):\n        total = total * 2 + x[place]\n    return total",
    "summed": "def summed(x):\n    total = tf.zeros_like(x[0])\n    for row in x:\n        total += row\n    return total",
    "until": "def until(x):\n    turns = 0\n    while tf.reduce_max(x) > 1.0 and turns < 5:\n        x = x / 2.0\n        turns += 1\n    return x",
}
"""Functions with branches and loops, as AutoGraph translates them."""

_STATELESS = [
    Operation("stateless_uniform of shape", "{x} + tf.random.stateless_uniform({x}.shape, seed=[{seed}, 2], dtype={x}.dtype)", "f", weight=0.3),
    Operation("stateless_normal of tf.shape", "{x} * tf.random.stateless_normal(tf.shape({x}), seed=[{seed}, 2], dtype={x}.dtype)", "f", weight=0.3),
    Operation("stateless flip", "tf.image.stateless_random_flip_left_right({x}, seed=({seed}, 1))", "n", (3,), 0.4),
    Operation("stateless brightness", "tf.image.stateless_random_brightness({x}, 0.3, seed=({seed}, 1))", "f", (3,), 0.4),
    Operation("stateless crop", "tf.image.stateless_random_crop({x}, [2, 2, {x}.shape[-1]], seed=({seed}, 1))", "n", (3,), 0.4),
    Operation("stateless dropout", "tf.nn.experimental.stateless_dropout({x}, rate=0.4, seed=[{seed}, 0])", "f", (1, 2, 3), 0.3),
    Operation("stateless shuffle", "tf.random.experimental.stateless_shuffle({x}, seed=[{seed}, 0])", "n", (1, 2, 3), 0.3),
    Operation("dropout", "tf.nn.dropout({x}, rate=0.4, seed={seed})", "f", (1, 2, 3), 0.2),
]  # fmt: skip

_KERAS = [
    Operation("Rescaling", "{rescaling}({x})", "f", weight=0.3),
    Operation("Resizing", "{resizing}({x})", "f", (3,), 0.3),
    Operation("CenterCrop", "{centercrop}({x})", "f", (3,), 0.3),
    Operation("CategoryEncoding", "{encoding}(tf.cast({x}, tf.int32) % 4)", "i", (0, 1), 0.3),
    Operation("Discretization", "{discretization}({x})", "f", weight=0.3),
    Operation("Hashing", "{hashing}({x})", "s", weight=0.3),
    Operation("UnitNormalization", "{unit}({x})", "f", (1, 2), 0.2),
]

_MORE = [
    Operation("constant alone", "tf.constant([1.0, 2.0]) + 0 * tf.cast(tf.rank({x}), tf.float32)", "n", weight=0.3),
    Operation("constant of no element", "tf.constant([3, 4])", "n", weight=0.2),
    Operation("det", "tf.linalg.det({x} + tf.eye({x}.shape[-1], dtype={x}.dtype))", "f", (2, 3), 0.4),
    Operation("inv", "tf.linalg.inv(tf.matmul({x}, {x}, transpose_b=True) + 9.0 * tf.eye({x}.shape[-2], dtype={x}.dtype))", "f", (2, 3), 0.4),
    Operation("unique and add", "tf.reduce_sum(tf.unique({x})[0])", "n", (1,), 0.5),
    Operation("where and count", "tf.size(tf.where({x} > {c}))", "n", (1, 2, 3), 0.5),
    Operation("boolean_mask and add", "tf.reduce_sum(tf.boolean_mask({x}, {bool}))", "n", (1, 2, 3), 0.5),
    Operation("histogram", "tf.histogram_fixed_width({x}, [0.0, 5.0], nbins=4)", "f", (1, 2), 0.3),
    Operation("raw Squeeze", "tf.raw_ops.Squeeze(input={x}[..., :1], axis=[-1])", "n", (1, 2, 3), 0.5),
    Operation("raw Max", "tf.raw_ops.Max(input={x}, axis={axis}, keep_dims={flag})", "n", (1, 2, 3), 0.5),
    Operation("raw ArgMax", "tf.raw_ops.ArgMax(input={x}, dimension={axis})", "n", (1, 2, 3), 0.5),
    Operation("raw ReverseV2", "tf.raw_ops.ReverseV2(tensor={x}, axis=[{axis}])", "n", (1, 2, 3), 0.5),
    Operation("compat reduce_sum", "tf.compat.v1.reduce_sum({x}, {axis}, keepdims={flag})", "n", (1, 2, 3), 0.5),
    Operation("compat where", "tf.compat.v1.where({x} > {c}, {x}, {x} * 2)", "n", (1, 2, 3), 0.5),
    Operation("compat resize", "tf.compat.v1.image.resize_bilinear({x}[None], [4, 5], align_corners={flag})[0]", "n", (3,), 0.5),
    Operation("compat squeeze", "tf.compat.v1.squeeze({x}[..., None], [-1])", "n", weight=0.4),
    Operation("numpy flip", "tf.experimental.numpy.flip({x}, {axis})", "n", (1, 2, 3), 0.5),
    Operation("numpy moveaxis", "tf.experimental.numpy.moveaxis({x}, {axis}, {axis})", "n", (2, 3), 0.5),
    Operation("numpy ravel", "tf.experimental.numpy.ravel({x})", "n", weight=0.3),
    Operation("serialize_tensor", "tf.strings.length(tf.io.serialize_tensor({x}))", "n", weight=0.3),
    Operation("strings.format", "tf.strings.format('{}', {x})", "n", weight=0.3),
    Operation("sparse and dense", "tf.sparse.to_dense(tf.sparse.from_dense({x}))", "n", (1, 2), 0.4),
    Operation("sparse sum", "tf.sparse.reduce_sum(tf.sparse.from_dense({x}), {axis})", "f", (1, 2), 0.4),
    Operation("edit_distance", "tf.strings.length(tf.strings.reduce_join({x}))", "s", (1, 2), 0.4),
    Operation("confusion_matrix", "tf.math.confusion_matrix(tf.cast({x}, tf.int32) % 3, tf.cast({x}, tf.int32) % 3, 3)", "i", (1,), 0.3),
    Operation("dynamic_stitch", "tf.dynamic_stitch([[0], [1]], [{x}[:1], {x}[-1:]])", "n", (1, 2), 0.3),
    Operation("accumulate", "tf.math.accumulate_n([{x}, {same}])", "n", weight=0.4),
    Operation("round to bytes", "tf.cast(tf.round({x} * 255.0), tf.uint8)", "f", weight=0.7),
    Operation("clip to bytes", "tf.cast(tf.clip_by_value({x} * 255.0, 0.0, 255.0), tf.uint8)", "f", weight=0.7),
    Operation("weights", "tf.cast(tf.not_equal({x}, {c}), tf.float32)", "n"),
    Operation("mask product", "{x} * tf.cast({bool}, {x}.dtype)", "n"),
    Operation("shift", "tf.concat([{x}[1:], {x}[:1]], 0)", "nb", (1, 2, 3)),
    Operation("difference", "{x}[..., 1:] - {x}[..., :-1]", "n", (1, 2, 3)),
    Operation("difference of rows", "{x}[1:] - {x}[:-1]", "n", (1, 2, 3)),
    Operation("difference of columns", "{x}[:, 1:] - {x}[:, :-1]", "n", (2, 3)),
    Operation("first and rest", "tf.concat([{x}[:, :1], {x}[:, 1:] * 2], axis=1)", "n", (2, 3)),
    Operation("outer", "{x}[:, None] * {x}[None, :]", "n", (1,)),
    Operation("outer of components", "{x}[..., None] * {y}", "n", (1, 2)),
]  # fmt: skip


def _layer(text: str) -> _Place:
    return lambda scope, x, name: scope.constant(text)


_PLACES |= {
    "rescaling": _layer("tf.keras.layers.Rescaling(1 / 255.0, offset=-0.5)"),
    "resizing": _layer("tf.keras.layers.Resizing(4, 5)"),
    "centercrop": _layer("tf.keras.layers.CenterCrop(2, 2)"),
    "encoding": _layer("tf.keras.layers.CategoryEncoding(num_tokens=4, output_mode='multi_hot')"),
    "discretization": _layer("tf.keras.layers.Discretization(bin_boundaries=[0.0, 1.0, 2.0])"),
    "hashing": _layer("tf.keras.layers.Hashing(num_bins=7)"),
    "unit": _layer("tf.keras.layers.UnitNormalization()"),
}
_PLACES["raw"] = lambda scope, x, name: scope.rng.choice(["uint8", "float32", "int32", "int16", "float64"])

OPERATIONS: tuple[Operation, ...] = tuple(
    one
    for one in (
        *_ARITHMETIC,
        *_REDUCTIONS,
        *_ARRANGEMENT,
        *_IMAGES,
        *_TEXTS,
        *_CONTROL,
        *_DRAWS,
        *_RAGGED,
        *_HELPED,
        *_STATELESS,
        *_KERAS,
        *_MORE,
    )
    if one.weight > 0
)
"""All of them."""

CORE: tuple[Operation, ...] = tuple(
    one
    for one in (*_ARITHMETIC, *_REDUCTIONS, *_ARRANGEMENT, *_IMAGES, *_TEXTS, *_MORE)
    if re.search(
        r"\{(axes|axis|naxis|s|perm|shape|pads|reps|pick|type|int|k|table|keep|bool)\}|squeeze|flip|crop|resize|shape\[|top_k|sort",
        one.text,
    )
    or one.kinds in ("number", "bytes8", "csv", "example")
    or one.name
    in ("add", "operator -", "operator *", "maximum", "relu", "sign", "floormod", "clip_by_value", "equal", "greater")
)
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
