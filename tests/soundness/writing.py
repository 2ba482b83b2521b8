"""Scripts in usual and unusual styles: one dataset, created in pieces of many styles.

Every style takes the calls of a chain, such as `.batch(4)`, and returns statements that apply them to `ds`.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Lines = list[str]


@dataclass(frozen=True)
class Script:
    """A script: its statements and their layout in a file."""

    head: tuple[str, ...]  # imports
    functions: tuple[str, ...]  # definitions that the calls use, some lines each
    pieces: tuple[tuple[str, ...], ...]  # statements, in order
    tail: tuple[str, ...] = ()  # statements after the dataset
    newline: str = "\n"
    mark: bool = False  # begins with a byte order mark
    tabs: bool = False
    inside: bool = False  # everything in a function
    ends: bool = True  # ends with a newline

    def text(self) -> str:
        lines = [*self.head, ""]
        for definition in self.functions:
            lines += ["", *definition.split("\n"), ""]
        body = [line for piece in self.pieces for line in piece]
        if self.inside:
            inner = [f"    {line}" if line else "" for line in (*body, "return ds")]
            body = ["def make_dataset():", *inner, "", "ds = make_dataset()"]
        lines += [*body, *self.tail, "dataset = ds"]
        text = "\n".join(lines) + ("\n" if self.ends else "")
        if self.tabs:
            text = "\n".join(_tabbed(line) for line in text.split("\n"))
        return ("\ufeff" if self.mark else "") + text.replace("\n", self.newline)

    pasted = text

    @property
    def operations(self) -> tuple[str, ...]:
        try:
            tree = ast.parse(self.text().lstrip("\ufeff"))
        except SyntaxError:
            return ()
        kinds = ast.stmt | ast.Lambda | ast.NamedExpr | ast.IfExp
        return tuple(sorted({type(node).__name__ for node in ast.walk(tree) if isinstance(node, kinds)}))

    def packed(self) -> dict[str, Any]:
        return {"script": asdict(self)}


def unpacked(packed: Mapping[str, Any]) -> Script:
    fields = dict(packed["script"])
    fields |= {name: tuple(fields[name]) for name in ("head", "functions", "tail")}
    return Script(**{**fields, "pieces": tuple(map(tuple, fields["pieces"]))})


def _tabbed(line: str) -> str:
    blank = len(line) - len(line.lstrip(" "))
    return "\t" * (blank // 4) + " " * (blank % 4) + line.lstrip(" ")


class Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._names = 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def script(self) -> Script:
        rng = self.rng
        self.functions: list[str] = []
        head, dataset = rng.choice(_IMPORTS)
        pieces: list[tuple[str, ...]] = [(f"ds = {self._source(dataset)}",)]
        for _ in range(rng.randint(1, 3)):
            links = [self._link() for _ in range(rng.randint(1, 3))]
            style = rng.choice(_STYLES)
            pieces.append(tuple(style(self, links, dataset)))
            if rng.random() < 0.3:
                pieces.append((rng.choice(_NOISE),))
        if rng.random() < 0.7 and not any("batch(" in line for piece in pieces for line in piece):
            pieces.append(tuple(rng.choice(_STYLES)(self, [self._batch()], dataset)))
        tail = (rng.choice(_TAILS).replace("DATASET", dataset),) if rng.random() < 0.3 else ()
        return Script(
            ("import functools", "import numpy as np", *head),
            tuple(self.functions),
            tuple(pieces),
            tail,
            newline=rng.choice(["\n", "\n", "\n", "\r\n"]),
            mark=rng.random() < 0.1,
            tabs=rng.random() < 0.1,
            inside=rng.random() < 0.25,
            ends=rng.random() < 0.9,
        )

    def _source(self, dataset: str) -> str:
        rows = self.rng.choice([22, 23, 25, 33])
        return self.rng.choice(
            [f"{dataset}.range({rows})", f"{dataset}.from_tensor_slices(np.arange({rows * 4}).reshape({rows}, 4))",
             f"{dataset}.from_tensor_slices(np.arange({rows * 9}, dtype=np.float32).reshape({rows}, 3, 3))",
             f"(\n    {dataset}  # the source\n    .range({rows})\n)"]
        )  # fmt: skip

    def _link(self) -> str:
        rng = self.rng
        draw = rng.random()
        if draw < 0.5:
            numbers = ["", "", "", ", num_parallel_calls=2", ", 2", ",\n        num_parallel_calls=2,  # two\n    "]
            calls = rng.choice(numbers)
            return f".map({self._function()}{calls})"
        if draw < 0.65:
            return self._batch()
        return rng.choice(
            [".shuffle(9, seed=1)", ".shuffle(\n        buffer_size=20,\n        seed=3,\n    )", ".prefetch(1)",
             ".prefetch(-1)", ".cache()",
             ".repeat(2)", ".take(15)", ".skip(1)", ".filter(lambda *e: True)", ".repeat(1)", ".take(-1)"]
        )  # fmt: skip

    def _batch(self) -> str:
        return self.rng.choice(
            [".batch(4)", ".batch(batch_size=3)", ".batch(5, drop_remainder=True)", ".batch(4, True)", ".batch( 4 )",
             ".batch(2+2)"]
        )  # fmt: skip

    def _function(self) -> str:
        """A function as an expression; adds its definition if it needs one."""
        body = self.rng.choice(_BODIES).replace("tf_", "tensorflow")
        kind = self.rng.choice(_KINDS)
        name = self.name("prepare")
        if kind == "lambda":
            return f"lambda x: {body}"
        if kind == "long":
            return f"(\n        lambda x:  # a function\n        {body}\n    )"
        self.functions.append(_DEFINITIONS[kind].format(name=name, body=body))
        return name


_KINDS = (
    "lambda", "lambda", "def", "nested", "partial", "method", "object", "decorated", "default", "doc", "static", "long"
)  # fmt: skip
_DEFINITIONS = {
    "def": "def {name}(x):\n    return {body}",
    "doc": 'def {name}(x):\n    """Prepares x.\n\n    Not .map(x) or .batch(4).\n    """\n    y = {body}  # é\n'
           "    return y",
    "nested": "def make_{name}():\n    def inner(x):\n        return {body}\n    return inner\n\n"
              "{name} = make_{name}()",
    "partial": "def whole_{name}(k, x):\n    return {body}\n\n{name} = functools.partial(whole_{name}, 3)",
    "method": "class Has{name}:\n    def go(self, x):\n        return {body}\n\n{name} = Has{name}().go",
    "static": "class Has{name}:\n    @staticmethod\n    def go(x):\n        return {body}\n\n{name} = Has{name}.go",
    "object": "class Has{name}:\n    def __call__(self, x):\n        return {body}\n\n{name} = Has{name}()",
    "decorated": "@tensorflow.function\ndef {name}(x):\n    return {body}",
    "default": "def {name}(x, k=2):\n    if k:\n        x = {body}\n    return x",
}  # fmt: skip
"""How a function of a `body` is defined and bound to a `name`; the other kinds are expressions."""

_IMPORTS: tuple[tuple[tuple[str, ...], str], ...] = (
    *((("import tensorflow", "import tensorflow as tf"), "tf.data.Dataset"),) * 2,
    (("import tensorflow",), "tensorflow.data.Dataset"),
    (("import tensorflow", "from tensorflow import data as tfd"), "tfd.Dataset"),
    (("import tensorflow", "from tensorflow.data import Dataset"), "Dataset"),
    (("import tensorflow", "import tensorflow as tf", "D = tf.data.Dataset"), "D"),
    (("# tf.data.Dataset.range(9).map(x)", "import tensorflow; import tensorflow as tf"), "tf.data.Dataset"),
    (("import os, sys; import tensorflow", "import tensorflow as tf", "data = tf.data"), "data.Dataset"),
)

_NOISE = (
    "# ds = ds.map(old)", "n = 1; m = 'ds.batch(4)'", "text = '''\nds = ds.map(f)\n'''", "", "if True: pass",
    "numbers = [.5, .25]", "\f", "assert ds is not None  # é ü 日本",
)  # fmt: skip
_TAILS = (
    "valid = DATASET.range(9).map(lambda x: x + 1).batch(4)", "for _ in range(2): pass",
    "def unused(): return ds.map(lambda x: x)", "other = ds", "preview = ds.take(1)",
)  # fmt: skip

_BODIES = (
    "x * 2", "x + 1", "x * x - 3", "x[..., None]", "-x", "tf_.cast(x, 'float32') / 255.0", "tf_.reduce_sum(x)",
    "tf_.reverse(x, [-1]) if x.shape.rank else x", "(x, x + 1)[0]", "tf_.cast(x, 'int64') % 7",
)  # fmt: skip

_Style = Callable[[Writer, Sequence[str], str], Lines]


def _text(*lines: str, name: str = "") -> _Style:
    """A style as its lines, in which `<all>`, `<first>` and `<rest>` stand for calls of the chain, one after another.

    A line with `<each>` is repeated for each call. `<name>` stands for a new name that begins with `name`.
    """

    def style(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
        first, *rest = links
        given = {"all": "".join(links), "first": first, "rest": "".join(rest)}
        if name:
            given["name"] = writer.name(name)
        found = []
        for line in lines:
            for given["each"] in links if "<each>" in line else ("",):
                found.append(re.sub(r"<(\w+)>", lambda match: given[match[1]], line))
        return found

    return style


def _line(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    return [f"ds = ds{''.join(links)}" + writer.rng.choice(["", "  # a comment", " ;"])]


def _names(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    lines, last = [], "ds"
    for link in links:
        name = writer.name("part")
        lines.append(f"{name} = {last}{link}")
        last = name
    return [*lines, f"ds = {last}"]


def _parentheses(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    lines = ["ds = (", "    ds  # so far"]
    for link in links:
        lines += ["    # " + writer.rng.choice([".map(f)", "next", "(", "ünlü"])] if writer.rng.random() < 0.5 else []
        lines.append(f"    {link}" + writer.rng.choice(["", "  # done", "   "]))
    return [*lines, ")"]


def _backslashes(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    *inner, last = (f"    {link}" for link in links)
    return ["ds = ds \\", *(f"{link} \\" for link in inner), last]


def _dots_behind(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    return ["ds = (ds." + ".\n      ".join(link[1:] for link in links) + ")"]


def _function(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    return (_BUILD if writer.rng.random() < 0.5 else _BUILD_FOR_TRAINING)(writer, links, dataset)


_BUILD = _text("def <name>(ds):", "    ds = ds<each>", "    return ds", "ds = <name>(ds)", name="build")
_BUILD_FOR_TRAINING = _text(
    "def <name>(d, *, training=True):", "    return d<all>", "ds = <name>(ds, training=False)", name="build"
)


def _semicolons(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    return ["; ".join([*(f"ds = ds{link}" for link in links), "done = True"])]


def _loop(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    first = links[0] if "batch" not in links[0] else ".map(lambda x: x * 3)"
    return ["for turn in range(2):", f"    ds = ds{first}", *(f"ds = ds{link}" for link in links[1:])]


def _conditional(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    return [f"ds = ds{link} if {'ds is not None' if place % 2 else 'True'} else ds" for place, link in enumerate(links)]


def _unbound(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    def called(link: str) -> str:
        method, _, rest = link[1:].partition("(")
        return f"{dataset}.{method}(ds{', ' if rest[:-1].strip() else ''}{rest[:-1]})"

    return [f"ds = {called(link) if link.endswith(')') else f'ds{link}'}" for link in links]


def _alias(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    lines = []
    for link in links:
        method, _, rest = link[1:].partition("(")
        name = writer.name("call")
        bound = f"ds.{method}" if writer.rng.random() < 0.5 else f"getattr(ds, '{method}')"
        lines += [f"{name} = {bound}", f"ds = {name}({rest}"]
    return lines


def _stars(writer: Writer, links: Sequence[str], dataset: str) -> Lines:
    given = "**given" if writer.rng.random() < 0.5 else "*[3]"
    return ["given = {'batch_size': 4}", f"ds = ds{''.join(links)}", f"ds = ds.batch({given})"]


_STYLES: tuple[_Style, ...] = (
    _line, _line, *[_text("ds = ds<each>")] * 2, _names, _parentheses, _parentheses, _backslashes, _dots_behind,
    _function, _function,
    _text("def <name>(ds):", "    ds = ds<each>", "    return ds", "valid = <name>(ds.take(5))", "ds = <name>(ds)",
          name="build"),
    _text("if (ds := ds<first>) is not None:", "    ds = ds<rest>"),
    _semicolons,
    _text("class <name>:", "    def __init__(self, ds):", "        self.ds = ds", "    def build(self):",
          "        self.ds = self.ds<each>", "        return self", "ds = <name>(ds).build().ds", name="Input"),
    _text("class <name>:", "    source = ds", "    @property", "    def batches(self):",
          "        return self.source<all>", "ds = <name>().batches", name="Input"),
    _loop,
    _text("for factor in (2, 3):", "    ds = ds.map(lambda x: x * factor)", "ds = ds<each>"),
    _text("rows = [0] * 9", "ds = ds.shuffle(len(rows), seed=2)", "rows.append(0)", "ds = ds<each>"),
    _conditional,
    _text("training = True", "if training:", "    ds = ds<all>", "else:", "    ds = ds.batch(1)"),
    _unbound,
    _text("ds = ds.apply(lambda d: d<each>)"),
    _alias,
    _text("steps = [lambda x: x + 1, lambda x: x * 2]",
          "ds = functools.reduce(lambda d, step: d.map(step), steps, ds)", "ds = ds<all>"),
    _text("parts = {'train': ds}", "parts['train'] = parts['train']<first>", "ds = parts['train']<rest>"),
    _text("ds, count = ds<all>, 3"),
    _text("def <name>(d):", "    return d<rest>", "ds = <name>(ds<first>)", name="finish"),
    _text("<name> = lambda d: d<all>", "ds = <name>(ds)", name="build"),
    _text("ds: 'tf.data.Dataset' = ds<all>"),
    _text("try:", "    ds = ds<first>", "finally:", "    pass", "with open(__file__) as file:", "    ds = ds<rest>"),
    _stars,
    _text("ds = [d<all> for d in (ds,)][0]"),
    _text("def <name>(ds):", "    factor = 5", "    def inner():", "        nonlocal factor",
          "        return ds.map(lambda x: x * factor)<all>", "    return inner()", "ds = <name>(ds)", name="outer"),
    _text("match 1:", "    case 1:", "        ds = ds<all>", "    case _:", "        pass"),
)  # fmt: skip


def compose(seed: str) -> Script:
    """A script from a seed; it may not run."""
    return Writer(random.Random(seed)).script()
