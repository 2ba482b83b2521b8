"""Functions composed at random: Python source of one to eight operations, and the pipeline around it.

The same seed gives the same program in every process and on every version of pipetune.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tests.soundness.drained import Unbuilt
from tests.soundness.operations import HELPERS, OPERATIONS, NoPlace, Operation, Scope, filled
from tests.soundness.values import FLOATS, INTEGERS, MANNERS, TEXTS, Component, columns

_DEPTHS = (30, 25, 15, 10, 8, 5, 4, 3)
"""Of a hundred functions, how many have one operation, two...: few, as one unsupported operation hides the others."""

MOST_NUMBERS = 3000
"""Numbers in a tensor at most, as several copies of 2,000 rows are in memory."""

_TRIES = 60
_SHAPES: tuple[tuple[tuple[int, ...], float], ...] = (
    ((), 2.0), ((5,), 2.0), ((3,), 1.0), ((4, 4), 2.0), ((1, 1), 0.3), ((2, 2), 0.5), ((2, 2, 2), 0.5),
    ((16, 16), 1.5), ((3, 3, 3), 2.0), ((1, 7), 1.0), ((2, 1, 2), 1.0),
    ((6, 5, 3), 1.5), ((8, 8, 3), 1.0), ((4, 3), 1.0), ((1,), 0.7), ((3, 1), 0.7), ((2, 3, 4), 0.7), ((6, 6, 1), 0.7),
)  # fmt: skip
"""Shapes of an element with their weights: square ones, where an added axis may give the same spec, and odd ones."""


@dataclass(frozen=True)
class Step:
    """One statement of a function: `name = text`."""

    name: str
    operation: str
    text: str
    uses: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """The pipeline around a function, and its data."""

    batch: int = 4
    drop_remainder: bool = False
    rows: int = 2003
    manner: str = "alike"
    odd: int = 500
    seed: int = 0
    above: tuple[str, ...] = ()  # calls between the source and the map, such as `.shuffle(9, seed=1)`
    between: tuple[str, ...] = ()  # between the map and the batch
    below: tuple[str, ...] = ()  # after the batch
    map_arguments: str = ""
    epochs: int = 1


@dataclass(frozen=True)
class Program:
    """A function, its inputs, and the pipeline around it."""

    components: Mapping[str, Component]
    steps: tuple[Step, ...]
    gives: tuple[str, ...]
    setting: Setting
    form: str = "tuple"  # of its result: "single", "tuple", "dict", "list" (which TensorFlow stacks)
    takes: str = "arguments"  # "arguments" or "dict"
    style: str = "statements"  # "statements", "expression", "tf.function", "signature", "helper", "lambda", "stars"
    constants: Mapping[str, str] = ()  # type: ignore[assignment]

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations, each once."""
        return tuple(dict.fromkeys(step.operation for step in self.steps))

    def source(self) -> str:
        """The module: constants, the function `f`, and `make(data)`, which returns the pipeline."""
        lines = ["import numpy as np", "import tensorflow as tf", ""]
        lines += [*self._helpers(), *(f"{name} = {text}" for name, text in dict(self.constants).items())]
        lines += ["", "", *self._function(), "", "", *self._make()]
        return "\n".join(lines) + "\n"

    def pasted(self) -> str:
        """A few lines to paste: the function, its data in words, the pipeline."""
        made = ", ".join(
            f"{name}: {part.dtype}{list(part.shape)}{' ' + part.content if part.content else ''}"
            for name, part in self.components.items()
        )
        one = self.setting
        data = f"# {one.rows} rows, {one.manner}, row {one.odd} unlike the others (seed {one.seed}): {made}"
        constants = [f"{name} = {text}" for name, text in dict(self.constants).items()]
        return "\n".join([*self._helpers(), *constants, *self._function(), data, f"ds = {self._chain('ds')}"])

    def _helpers(self) -> list[str]:
        """Functions with branches and loops that a step calls."""
        called = " ".join(step.text for step in self.steps)
        return [text for name, text in HELPERS.items() if f"{name}(" in called]

    def _function(self) -> list[str]:
        body = self._body()
        if self.style == "lambda" and len(body) == 1:
            return [f"f = lambda {self._arguments()}: {body[0].removeprefix('return ')}"]
        lines = {
            "tf.function": ["@tf.function"],
            "signature": [f"@tf.function(input_signature={self._signature()})"],
        }.get(self.style, [])
        if self.style == "helper":
            inner = [f"    {line}" for line in body]
            names = ", ".join(self.components)
            called = [f"def f({self._arguments()}):", f"    return helper({self._given()})"]
            return [f"def helper({names}):", *inner, "", "", *called]
        if self.style == "stars" and self.takes == "arguments":
            taken = f"    {', '.join(self.components)}{',' * (len(self.components) == 1)} = element"
            return [*lines, "def f(*element):", taken, *(f"    {line}" for line in body)]
        lines.append(f"def f({self._arguments()}):")
        if self.takes == "dict" and self.style != "helper":
            lines += [f"    {name} = element['{name}']" for name in self.components]
        return [*lines, *(f"    {line}" for line in body)]

    def _signature(self) -> str:
        specs = [f"tf.TensorSpec({list(part.shape)}, tf.{part.dtype})" for part in self.components.values()]
        if self.takes == "dict":
            named = ", ".join(f"'{name}': {spec}" for name, spec in zip(self.components, specs, strict=True))
            return f"[{{{named}}}]"
        return f"[{', '.join(specs)}]"

    def _arguments(self) -> str:
        return "element" if self.takes == "dict" else ", ".join(self.components)

    def _given(self) -> str:
        return ", ".join(f"element['{name}']" if self.takes == "dict" else name for name in self.components)

    def _body(self) -> list[str]:
        names = list(self.gives)
        if self.style in ("expression", "lambda") and self.takes == "arguments":
            texts: dict[str, str] = {}
            for step in self.steps:
                texts[step.name] = _substituted(step.text, texts)
            if sum(map(len, texts.values())) < 1500:
                return [f"return {self._packed([texts.get(name, name) for name in names])}"]
        lines = [f"{step.name} = {step.text}" for step in self.steps]
        return [*lines, f"return {self._packed(names)}"]

    def _packed(self, texts: Sequence[str]) -> str:
        if self.form == "list" and len(texts) > 1:
            return f"[{', '.join(texts)}]"
        if self.form == "dict":
            return "{" + ", ".join(f"'r{place}': {text}" for place, text in enumerate(texts)) + "}"
        if self.form == "single" and len(texts) == 1:
            return texts[0]
        return "(" + "".join(f"{text}, " for text in texts) + ")"

    def _make(self) -> list[str]:
        if self.takes == "dict":
            given = "{" + ", ".join(f"'{name}': data['{name}']" for name in self.components) + "}"
        elif len(self.components) == 1:
            given = f"data['{next(iter(self.components))}']"
        else:
            given = "(" + ", ".join(f"data['{name}']" for name in self.components) + ")"
        return [
            "def make(data):",
            f"    ds = tf.data.Dataset.from_tensor_slices({given})",
            f"    return {self._chain('ds')}",
        ]

    def _chain(self, name: str) -> str:
        one = self.setting
        drops = ", drop_remainder=True" if one.drop_remainder else ""
        links = [*one.above, f".map(f{one.map_arguments})", *one.between, f".batch({one.batch}{drops})", *one.below]
        return name + "".join(links)

    def data(self) -> dict[str, np.ndarray]:
        """The rows of each component."""
        one = self.setting
        return columns(self.components, rows=one.rows, manner=one.manner, odd=one.odd, seed=one.seed)

    def packed(self) -> dict[str, Any]:
        """The program as JSON knows it."""
        return asdict(replace(self, constants=dict(self.constants), components=dict(self.components)))


def unpacked(packed: Mapping[str, Any]) -> Program:
    """The program from the result of `Program.packed`."""
    fields = dict(packed)
    fields["components"] = {
        name: Component(part["dtype"], tuple(part["shape"]), part["content"])
        for name, part in packed["components"].items()
    }
    fields["steps"] = tuple(Step(**{**step, "uses": tuple(step["uses"])}) for step in packed["steps"])
    fields["gives"] = tuple(packed["gives"])
    setting = dict(packed["setting"])
    for name in ("above", "between", "below"):
        setting[name] = tuple(setting[name])
    fields["setting"] = Setting(**setting)
    return Program(**fields)


def _substituted(text: str, texts: Mapping[str, str]) -> str:
    return re.sub(r"\bh\d+\b", lambda match: f"({texts[match.group()]})", text)


def compose(
    seed: str, *, focus: Operation | None = None, manner: str | None = None, among: Sequence[Operation] = OPERATIONS
) -> Program:
    """A program from a seed.

    Args:
        focus: an operation that it always has.
        manner: of its data, one of `MANNERS`.
        among: the operations it is composed of; if not all, elements are more often square.

    Raises:
        Unbuilt: the operation was not legal on any of the drawn tensors.
    """
    rng = random.Random(seed)
    for _ in range(_TRIES):
        with contextlib.suppress(NoPlace):
            program = _composed(rng, focus, among)
            if program is not None:
                return replace(program, setting=_setting(rng, program, manner))
    raise Unbuilt(focus.name if focus is not None else seed)


def _composed(rng: random.Random, focus: Operation | None, among: Sequence[Operation]) -> Program | None:
    components = _components(rng, focus, square=among is not OPERATIONS)
    tensors = {
        name: tf.constant(columns({name: part}, rows=2, manner="random", odd=0, seed=9)[name][1])
        for name, part in components.items()
    }
    scope = Scope(rng, tensors, {name: part.content for name, part in components.items()})
    scope.namespace.update(scope.tensors)
    depth = rng.choices([1, 2, 3, 4, 5, 6, 7, 8], _DEPTHS)[0]
    place = rng.randrange(depth) if focus is not None else -1
    steps: list[Step] = []
    if focus is not None and focus.kinds == "r":
        steps += filter(None, [_step(scope, "h0", rng.choice(_MAKE_RAGGED), among)])
    for number in range(depth):
        wanted = focus if number >= place and focus is not None and not _has(steps, focus) else None
        step = _step(scope, f"h{len(steps)}", wanted, among)
        if step is not None:
            steps.append(step)
    if focus is not None and not _has(steps, focus):
        step = _step(scope, f"h{len(steps)}", focus, among)
        if step is None:
            return None
        steps.append(step)
    if not steps:
        return None
    gives = _gives(rng, components, steps)
    steps = _needed(steps, gives)
    if focus is not None and not _has(steps, focus):
        return None
    used = {name for step in steps for name in re.findall(r"\bK\d+\b", step.text)}
    form = rng.choice(["single", "tuple", "dict"] if len(gives) == 1 else ["tuple", "tuple", "dict", "list"])
    style = rng.choices(_STYLES, [12, 4, 2, 1, 2, 2, 1])[0]
    takes = "dict" if rng.random() < 0.15 else "arguments"
    constants = {name: text for name, text in scope.constants.items() if name in used}
    if style == "lambda" and takes == "dict":
        style = "statements"
    return Program(components, tuple(steps), gives, Setting(), form, takes, style, constants)


_STYLES = ("statements", "expression", "tf.function", "signature", "helper", "lambda", "stars")


def _has(steps: Sequence[Step], operation: Operation) -> bool:
    return any(step.operation == operation.name for step in steps)


def _components(rng: random.Random, focus: Operation | None, *, square: bool) -> dict[str, Component]:
    names = ("x", "y", "z")[: rng.choices([1, 2, 3], [5, 3, 1])[0]]
    found = {}
    for place, name in enumerate(names):
        kinds = focus.kinds if focus is not None and place == 0 else ""
        ranks = focus.ranks if focus is not None and place == 0 else (0, 1, 2, 3)
        found[name] = _component(rng, kinds, ranks, square=square)
    return found


def _component(rng: random.Random, kinds: str, ranks: Sequence[int], *, square: bool) -> Component:
    shapes = [(shape, weight) for shape, weight in _SHAPES if len(shape) in ranks or rng.random() < 0.2]
    shapes = [(shape, weight * (4 if square and len(set(shape)) == 1 else 1)) for shape, weight in shapes]
    shape = rng.choices([one for one, _ in shapes], [weight for _, weight in shapes])[0]
    if kinds == "r":
        return rng.choice([Component("string", (3,), "text"), Component("float32", (3, 4))])
    if kinds in TEXTS:
        return Component("string", shape if kinds != "example" and len(shape) < 3 else (), kinds)
    letter = rng.choice(kinds.replace("n", "fi")) if kinds else rng.choice("ffffiiibs")
    if letter == "s":
        content = "text" if kinds else rng.choice(TEXTS)
        return Component("string", shape if len(shape) < 2 and content != "example" else (), content)
    if letter == "b":
        return Component("bool", shape)
    dtypes = [*["float32"] * 5, *FLOATS] if letter == "f" else ["int32", "int64", "uint8", *INTEGERS]
    return Component(rng.choice(dtypes), shape)


def _step(scope: Scope, name: str, wanted: Operation | None, among: Sequence[Operation]) -> Step | None:
    weights = [operation.weight for operation in among]
    for _ in range(25 if wanted is None else 6):
        operation = wanted or scope.rng.choices(among, weights)[0]
        constants = dict(scope.constants)
        with contextlib.suppress(NoPlace):
            text = filled(operation, scope)
            result = _tried(text, scope)
            if result is not None:
                scope.tensors[name] = scope.namespace[name] = result
                return Step(name, operation.name, text, tuple(dict.fromkeys(scope.used)))
        scope.constants = constants
    return None


_MAKE_RAGGED = [one for one in OPERATIONS if one.name in ("strings.split", "ragged from tensor", "bytes_split")]


def _tried(text: str, scope: Scope) -> Any:
    """The value of the expression on the sample; None where it raises, or cannot be part of an element."""
    try:
        result = eval(text, scope.namespace)
    except Exception:  # any error of TensorFlow about incompatible arguments
        return None
    if isinstance(result, tf.RaggedTensor):
        return result if result.shape.rank is not None and result.flat_values.shape.num_elements() < 200 else None
    if not isinstance(result, tf.Tensor) or result.dtype not in _HELD:
        return None
    return result if 0 < result.shape.num_elements() <= MOST_NUMBERS and result.shape.rank <= 4 else None


_HELD = frozenset(tf.as_dtype(name) for name in (*FLOATS, *INTEGERS, "bool", "string", "uint64", "bfloat16"))


def _gives(rng: random.Random, components: Mapping[str, Component], steps: Sequence[Step]) -> tuple[str, ...]:
    names = [steps[-1].name]
    if len(steps) > 1 and rng.random() < 0.3:
        names.append(rng.choice(steps[:-1]).name)
    if rng.random() < 0.3:
        names.append(rng.choice(list(components)))
    return tuple(dict.fromkeys(names))


def _needed(steps: Sequence[Step], gives: Sequence[str]) -> list[Step]:
    """The program without steps that no result depends on."""
    wanted = set(gives)
    kept = []
    for step in reversed(steps):
        if step.name in wanted:
            kept.append(step)
            wanted.update(re.findall(r"\b[hxyz]\d*\b", step.text))
    return kept[::-1]


def _setting(rng: random.Random, program: Program, manner: str | None) -> Setting:
    """The pipeline: last batches of 1, 2 and B - 1 rows, and batch sizes equal to dimensions of elements."""
    sizes = [size for part in program.components.values() for size in part.shape if 1 < size <= 16]
    batch = rng.choice([2, 3, 4, 5, 7, 8, 16, 32, *sizes * 2])
    if program.form == "list" and rng.random() < 0.7:
        batch = len(program.gives)  # then the stacked components look like the rows of a batch
    rest = rng.choice([0, 1, 1, 2, batch - 1]) % batch
    manner = manner or rng.choices(MANNERS, [2, 5, 2, 1])[0]
    numbers = sum(int(np.prod(part.shape)) for part in program.components.values())
    about = 2000 if manner in ("alike", "rare") and numbers < 1500 else 300
    rows = about // batch * batch + rest
    odd = rng.randrange(130, 900) if about == 2000 else rng.randrange(rows)
    if about == 2000 and rng.random() < 0.3:
        odd = rng.randrange(1200, 1800)
    above = [".shuffle(50, seed=3)"] if rng.random() < 0.2 else []
    epochs, between, below = 1, [], []
    if rng.random() < 0.1:
        epochs = 3
        above += rng.choice([[], [".cache()"], [".take(700)"], [".skip(3)"], [".prefetch(2)"], [".repeat(2)"]])
        between += rng.choice(
            [
                [],
                [".prefetch(1)"],
                [".shuffle(20, seed=5, reshuffle_each_iteration=False)"],
                [".take(901)"],
                [".cache()"],
            ]
        )
        below += rng.choice(
            [[], [".prefetch(2)"], [".repeat(2)"], [".take(90)"], [".skip(1)"], [".cache()"], [".unbatch().batch(3)"]]
        )
    arguments = rng.choices(["", ", num_parallel_calls=2", ", num_parallel_calls=tf.data.AUTOTUNE"], [6, 1, 1])[0]
    return Setting(
        batch=batch,
        drop_remainder=rng.random() < (0.7 if program.form == "list" else 0.25),
        rows=rows,
        manner=manner,
        odd=odd,
        seed=rng.randrange(1 << 30),
        above=tuple(above),
        between=tuple(between),
        below=tuple(below),
        map_arguments=arguments,
        epochs=epochs,
    )


def smaller(program: Program) -> Iterator[Program]:
    """Smaller programs, the smallest first, for the reduction of a failure."""
    steps = program.steps
    ends = [step.name for step in steps if step is not steps[-1] or len(program.gives) > 1]
    for name in (*ends, *(program.gives if len(program.gives) > 1 else ())):  # everything up to one step, one result
        yield _tidied(replace(program, gives=(name,)))
    for place, step in enumerate(steps):  # without one step, whose input replaces it
        for used in step.uses:
            rest = [_renamed(other, step.name, used) for other in steps[:place] + steps[place + 1 :]]
            gives = tuple(dict.fromkeys(used if name == step.name else name for name in program.gives))
            yield _tidied(replace(program, steps=tuple(rest), gives=gives))
    for name in program.components:
        unused = not any(re.search(rf"\b{name}\b", step.text) for step in steps) and name not in program.gives
        if unused and len(program.components) > 1:
            rest_of = {other: part for other, part in program.components.items() if other != name}
            yield replace(program, components=rest_of)
    one = program.setting
    for changed in (
        replace(one, above=(), between=(), below=(), epochs=1),
        replace(one, map_arguments=""),
        replace(one, above=()),
        replace(one, between=()),
        replace(one, below=()),
        replace(one, epochs=1),
        replace(one, drop_remainder=False),
    ):
        if changed != one:
            yield replace(program, setting=changed)
    if program.style != "statements" or program.takes != "arguments" or program.form == "dict":
        yield replace(
            program, style="statements", takes="arguments", form="single" if len(program.gives) == 1 else "tuple"
        )


def _renamed(step: Step, name: str, other: str) -> Step:
    uses = tuple(other if used == name else used for used in step.uses)
    return replace(step, text=re.sub(rf"\b{name}\b", other, step.text), uses=uses)


def _tidied(program: Program) -> Program:
    steps = tuple(_needed(program.steps, program.gives))
    used = {name for step in steps for name in re.findall(r"\bK\d+\b", step.text)}
    constants = {name: text for name, text in dict(program.constants).items() if name in used}
    return replace(program, steps=steps, constants=constants)
