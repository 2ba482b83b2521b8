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
        return tuple(dict.fromkeys(step.operation for step in self.steps))

    def source(self) -> str:
        """The module: constants, the function `f`, and `make(data)`, which returns the pipeline."""
        lines = ["import numpy as np", "import tensorflow as tf", "", *self._defined(), "", "", *self._function()]
        return "\n".join([*lines, "", "", *self._make(), ""])

    def pasted(self) -> str:
        """A few lines to paste: the function, its data in words, the pipeline."""
        made = ", ".join(
            f"{name}: {part.dtype}{list(part.shape)} {part.content}".strip() for name, part in self.components.items()
        )
        one = self.setting
        data = f"# {one.rows} rows, {one.manner}, row {one.odd} unlike the others (seed {one.seed}): {made}"
        return "\n".join([*self._defined(), *self._function(), data, f"ds = {self._chain('ds')}"])

    def _defined(self) -> list[str]:
        """The functions with branches and loops that a step calls, and the constants."""
        called = " ".join(step.text for step in self.steps)
        helpers = [text for name, text in HELPERS.items() if f"{name}(" in called]
        return [*helpers, *(f"{name} = {text}" for name, text in dict(self.constants).items())]

    def _function(self) -> list[str]:
        body = self._body()
        names, by_name = ", ".join(self.components), self.takes == "dict"
        arguments = "element" if by_name else names
        if self.style == "lambda" and len(body) == 1:
            return [f"f = lambda {arguments}: {body[0].removeprefix('return ')}"]
        inner = [f"    {line}" for line in body]
        if self.style == "helper":
            given = ", ".join(f"element['{name}']" for name in self.components) if by_name else names
            return [f"def helper({names}):", *inner, "", "", f"def f({arguments}):", f"    return helper({given})"]
        if self.style == "stars" and not by_name:
            return ["def f(*element):", f"    {names}{',' * (len(self.components) == 1)} = element", *inner]
        signature = f"(input_signature={self._signature()})" if self.style == "signature" else ""
        lines = [f"@tf.function{signature}"] if self.style in ("tf.function", "signature") else []
        parts = [f"    {name} = element['{name}']" for name in self.components] if by_name else []
        return [*lines, f"def f({arguments}):", *parts, *inner]

    def _signature(self) -> str:
        specs = [f"tf.TensorSpec({list(part.shape)}, tf.{part.dtype})" for part in self.components.values()]
        if self.takes == "dict":
            named = ", ".join(f"'{name}': {spec}" for name, spec in zip(self.components, specs, strict=True))
            return f"[{{{named}}}]"
        return f"[{', '.join(specs)}]"

    def _body(self) -> list[str]:
        names = list(self.gives)
        if self.style in ("expression", "lambda") and self.takes == "arguments":
            texts: dict[str, str] = {}
            for step in self.steps:
                texts[step.name] = re.sub(r"\bh\d+\b", lambda match: f"({texts[match.group()]})", step.text)
            if sum(map(len, texts.values())) < 1500:
                return [f"return {self._packed([texts.get(name, name) for name in names])}"]
        return [*(f"{step.name} = {step.text}" for step in self.steps), f"return {self._packed(names)}"]

    def _packed(self, texts: Sequence[str]) -> str:
        if self.form == "list" and len(texts) > 1:
            return f"[{', '.join(texts)}]"
        if self.form == "dict":
            return "{" + ", ".join(f"'r{place}': {text}" for place, text in enumerate(texts)) + "}"
        return (
            texts[0]
            if self.form == "single" and len(texts) == 1
            else "(" + "".join(f"{text}, " for text in texts) + ")"
        )

    def _make(self) -> list[str]:
        parts = ", ".join(f"'{name}': " * (self.takes == "dict") + f"data['{name}']" for name in self.components)
        given = f"{{{parts}}}" if self.takes == "dict" else f"({parts})" if len(self.components) > 1 else parts
        made = f"    ds = tf.data.Dataset.from_tensor_slices({given})"
        return ["def make(data):", made, f"    return {self._chain('ds')}"]

    def _chain(self, name: str) -> str:
        one = self.setting
        drops = ", drop_remainder=True" if one.drop_remainder else ""
        links = [*one.above, f".map(f{one.map_arguments})", *one.between, f".batch({one.batch}{drops})", *one.below]
        return name + "".join(links)

    def data(self) -> dict[str, np.ndarray]:
        one = self.setting
        return columns(self.components, rows=one.rows, manner=one.manner, odd=one.odd, seed=one.seed)

    def packed(self) -> dict[str, Any]:
        return asdict(replace(self, constants=dict(self.constants), components=dict(self.components)))


def unpacked(packed: Mapping[str, Any]) -> Program:
    parts = packed["components"].items()
    setting = packed["setting"]
    fields = {
        "components": {name: Component(part["dtype"], tuple(part["shape"]), part["content"]) for name, part in parts},
        "steps": tuple(Step(**{**step, "uses": tuple(step["uses"])}) for step in packed["steps"]),
        "gives": tuple(packed["gives"]),
        "setting": Setting(**setting | {name: tuple(setting[name]) for name in ("above", "between", "below")}),
    }
    return Program(**{**packed, **fields})


def compose(
    seed: str, *, focus: Operation | None = None, manner: str | None = None, among: Sequence[Operation] = OPERATIONS
) -> Program:
    """A program from a seed that has the operation in focus, if any, and data of this one of `MANNERS`.

    If it is composed among some operations only, elements are more often square. Raises `Unbuilt` where the operation
    was not legal on any of the drawn tensors.
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

    def add(wanted: Operation | None) -> None:
        steps.extend(filter(None, [_step(scope, f"h{len(steps)}", wanted, among)]))

    if focus is not None and focus.kinds == "r":
        add(rng.choice(_MAKE_RAGGED))
    for number in range(depth):
        add(focus if number >= place and not _has(steps, focus) else None)
    if not _has(steps, focus):
        add(focus)
    if not steps or not _has(steps, focus):
        return None
    gives = _gives(rng, components, steps)
    if not _has(_needed(steps, gives), focus):
        return None
    form = rng.choice(["single", "tuple", "dict"] if len(gives) == 1 else ["tuple", "tuple", "dict", "list"])
    style = rng.choices(_STYLES, [12, 4, 2, 1, 2, 2, 1])[0]
    takes = "dict" if rng.random() < 0.15 else "arguments"
    if style == "lambda" and takes == "dict":
        style = "statements"
    return _tidied(Program(components, tuple(steps), gives, Setting(), form, takes, style, scope.constants))


_STYLES = ("statements", "expression", "tf.function", "signature", "helper", "lambda", "stars")


def _has(steps: Sequence[Step], focus: Operation | None) -> bool:
    return focus is None or any(step.operation == focus.name for step in steps)


def _components(rng: random.Random, focus: Operation | None, *, square: bool) -> dict[str, Component]:
    found = {}
    for name in "xyz"[: rng.choices([1, 2, 3], [5, 3, 1])[0]]:
        kinds, ranks = (focus.kinds, focus.ranks) if focus is not None and name == "x" else ("", (0, 1, 2, 3))
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
    names += [rng.choice(steps[:-1]).name] if len(steps) > 1 and rng.random() < 0.3 else []
    names += [rng.choice(list(components))] if rng.random() < 0.3 else []
    return tuple(dict.fromkeys(names))


def _needed(steps: Sequence[Step], gives: Sequence[str]) -> list[Step]:
    """The program without steps that no result depends on."""
    wanted, kept = set(gives), []
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
    epochs, between, below = 1, "", ""
    if rng.random() < 0.1:
        epochs = 3
        above.append(rng.choice(["", ".cache()", ".take(700)", ".skip(3)", ".prefetch(2)", ".repeat(2)"]))
        unlike = ".shuffle(20, seed=5, reshuffle_each_iteration=False)"
        between = rng.choice(["", ".prefetch(1)", unlike, ".take(901)", ".cache()"])
        links = ["", ".prefetch(2)", ".repeat(2)", ".take(90)", ".skip(1)", ".cache()", ".unbatch().batch(3)"]
        below = rng.choice(links)
    arguments = rng.choices(["", ", num_parallel_calls=2", ", num_parallel_calls=tf.data.AUTOTUNE"], [6, 1, 1])[0]
    drops, seed = rng.random() < (0.7 if program.form == "list" else 0.25), rng.randrange(1 << 30)
    calls = [tuple(filter(None, links)) for links in (above, [between], [below])]
    return Setting(batch, drops, rows, manner, odd, seed, calls[0], calls[1], calls[2], arguments, epochs)


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
            yield replace(program, components={key: part for key, part in program.components.items() if key != name})
    plain: dict[str, Any] = {"above": (), "between": (), "below": (), "epochs": 1}
    alone = [{"map_arguments": ""}, *({name: value} for name, value in plain.items()), {"drop_remainder": False}]
    for fields in (plain, *alone):
        if (changed := replace(program.setting, **fields)) != program.setting:
            yield replace(program, setting=changed)
    if program.style != "statements" or program.takes != "arguments" or program.form == "dict":
        form = "single" if len(program.gives) == 1 else "tuple"
        yield replace(program, style="statements", takes="arguments", form=form)


def _renamed(step: Step, name: str, other: str) -> Step:
    uses = tuple(other if used == name else used for used in step.uses)
    return replace(step, text=re.sub(rf"\b{name}\b", other, step.text), uses=uses)


def _tidied(program: Program) -> Program:
    steps = tuple(_needed(program.steps, program.gives))
    used = {name for step in steps for name in re.findall(r"\bK\d+\b", step.text)}
    constants = {name: text for name, text in dict(program.constants).items() if name in used}
    return replace(program, steps=steps, constants=constants)
