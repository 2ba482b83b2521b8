"""Pipelines composed at random: all tf.data operators in all orders, with functions that draw, keep state and raise."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tests.soundness.handwritten import PRELUDE, Hand


@dataclass(frozen=True)
class Link:
    """The source text of one operator, which follows its upstream expression, and the functions it needs.

    A text with `{ds}` is an expression around its upstream expression.
    """

    operator: str
    text: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chain:
    """A pipeline as source text."""

    source: Link
    links: tuple[Link, ...]
    facts: Mapping[str, Any]
    style: str = "pair"  # of an element: "pair" (number, three floats), "dict" or "number"

    @property
    def operations(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.source.operator, *(link.operator for link in self.links))))

    @property
    def random(self) -> bool:
        """Whether one of its functions draws, or another operator is random."""
        return bool(_RANDOM.search(self.text()))

    @property
    def racy(self) -> bool:
        """Whether parallel calls share a generator or a variable, so that the original itself is nondeterministic.

        It also is where a variable is counted up upstream of an operator that stops early: TensorFlow parallelizes
        maps between them, and the number of elements they have read by then varies. And where two branches read one
        shuffle ahead: it gives the order of the next epoch to the branch that asks first.
        """
        if _STATE.search(links := self._links()) and _STOPS_EARLY.search(links):
            return True
        for place, link in enumerate(self.links):
            shuffled = any("shuffle(" in upstream.text for upstream in self.links[:place])
            if link.text.count("{ds}") > 1 and "prefetch(" in link.text and shuffled:
                return True
        defined = {text.split("(")[0].removeprefix("def "): text for link in self.links for text in link.functions}
        for link in self.links:
            used = (text for name, text in defined.items() if re.search(rf"\b{name}\b", link.text))
            called = link.text + " ".join(used)
            if "num_parallel_calls" in link.text and re.search(r"random\.|shuffle\(|state\.|calls\.", called):
                return True
        return False

    @property
    def _functions(self) -> dict[str, None]:
        return dict.fromkeys(text for link in (self.source, *self.links) for text in link.functions)

    def text(self) -> str:
        """The module: functions, and `make(folder)`, which returns the pipeline."""
        lines = ["import numpy as np", "import tensorflow as tf", "", *(_FILES if "folder" in self.source.text else ())]
        lines += [line for text in self._functions for line in ("", "", text)]
        lines += ["", "", "def make(folder):", *(f"    {line}" for line in self._made()), "    return ds", ""]
        return "\n".join(lines)

    def _made(self) -> list[str]:
        lines = ["state = tf.Variable(0, dtype=tf.int64)", "calls = []"] if _STATE.search(self._links()) else []
        texts = (link.text.format(ds="ds") if "{ds}" in link.text else f"ds{link.text}" for link in self.links)
        return [*lines, f"ds = {self.source.text}", *(f"ds = {text}" for text in texts)]

    def _links(self) -> str:
        return " ".join((self.source.text, *(link.text for link in self.links)))

    def pasted(self) -> str:
        return "\n".join([*self._functions, "tf.random.set_seed(7)", *self._made()])

    def packed(self) -> dict[str, Any]:
        return asdict(replace(self, facts=dict(self.facts)))


_RANDOM = re.compile(r"random|shuffle|sample_from|Generator|draws")
_STATE = re.compile(r"state\.|calls\.")
_STOPS_EARLY = re.compile(r"\.(take|take_while)\(|zip|choose_from|sample_from")

_FILES = (
    "def records(folder, files=3, rows=5):",
    "    paths = []",
    "    for number in range(files):",
    "        paths.append(f'{folder}/records-{number}')",
    "        with tf.io.TFRecordWriter(paths[-1]) as writer:",
    "            for row in range(rows + number):",
    "                writer.write(str(number * 100 + row).encode())",
    "    return paths",
    "",
    "",
    "def slices(paths):",
    "    return tf.data.Dataset.from_tensor_slices(paths)",
    "",
    "",
    "def lines(folder, files=2):",
    "    paths = []",
    "    for number in range(files):",
    "        paths.append(f'{folder}/lines-{number}.txt')",
    "        with open(paths[-1], 'w') as file:",
    "            file.writelines(f'{number * 10 + row}\\n' for row in range(6))",
    "    return paths",
)


def unpacked(packed: Mapping[str, Any]) -> Chain:
    def link(one: Mapping[str, Any]) -> Link:
        return Link(one["operator"], one["text"], tuple(one["functions"]))

    fields = {**packed, "source": link(packed["source"]), "links": tuple(map(link, packed["links"]))}
    return Chain(**fields)


# -- composing one


class _Maker:
    """Draws operators for one pipeline, with unique function names."""

    def __init__(self, rng: random.Random, style: str) -> None:
        self.rng = rng
        self.style = style
        self._functions = 0

    def function(self, number: str, floats: str, *, before: Sequence[str] = ()) -> tuple[str, tuple[str, ...]]:
        """A function of an element: its name or text, and its definition. `i` and `x` are the element's two parts."""
        self._functions += 1
        name = f"f{self._functions}"
        texts = [self._statement(text) for text in before]
        result = self._packed(self._in_style(number), self._in_style(floats))
        if not texts and self.rng.random() < 0.5:
            return f"lambda {self.taken}: {result}", ()
        body = "".join(f"\n    {text}" for text in texts)
        return name, (f"def {name}({self.taken}):{body}\n    return {result}",)

    def predicate(self, text: str) -> str:
        return f"lambda {self.taken}: {self._in_style(text)}"

    def by_style(self, **texts: str) -> str:
        """The one of these texts that is for the style of the elements."""
        return texts[self.style]

    @property
    def taken(self) -> str:
        return self.by_style(pair="i, x", dict="e", number="i")

    def _statement(self, text: str) -> str:
        part, equals, rest = text.partition(" = ")
        if self.style == "dict" and equals and part in ("i", "x"):
            return f"e = {{**e, '{part}': {self._in_style(rest)}}}"
        return self._in_style(text)

    def _in_style(self, text: str) -> str:
        return re.sub(r"\b([ix])\b", r"e['\1']", text) if self.style == "dict" else text

    def _packed(self, number: str, floats: str) -> str:
        return self.by_style(pair=f"({number}, {floats})", dict=f"{{'i': {number}, 'x': {floats}}}", number=number)


_PLAIN_FUNCTIONS = (
    ("i", "x * 2.0 + 1.0"), ("i", "x"), ("i + 1", "x"), ("i", "x - tf.cast(i, tf.float32)[..., None]"), ("i * 2", "x"),
    ("i", "tf.reverse(x, [-1])"), ("i", "x[..., ::-1]"), ("i // 2", "x"), ("i", "tf.maximum(x, 0.0)"), ("i", "x / 3.0"),
    ("i", "tf.cast(tf.cast(x, tf.uint8), tf.float32)"), ("i", "tf.exp(-tf.abs(x))"), ("i", "x + tf.reduce_sum(x)"),
    ("i", "tf.reduce_max(x, axis=0, keepdims=True) * x"), ("i", "tf.squeeze(x)"), ("i", "tf.math.cumsum(x)"),
    ("tf.abs(i)", "x * tf.cast(tf.size(x), tf.float32)"), ("i", "tf.roll(x, 1, axis=-1)"), ("i", "tf.sort(x)"),
)  # fmt: skip
_RANDOM_FUNCTIONS = (
    ("i", "x + tf.random.uniform([])"), ("i", "x + tf.random.uniform([], seed=4)"),
    ("i", "x * tf.random.normal(tf.shape(x), seed=1)"),
    ("i", "tf.random.shuffle(x, seed=2)"), ("i", "x + tf.random.stateless_uniform([], seed=[1, 2])"),
    ("i", "x + tf.random.uniform([], maxval=3.0, seed=4) * tf.random.uniform([])"),
    ("i", "tf.sqrt(tf.abs(x)) + tf.random.uniform([3])"),
)  # fmt: skip
_NUMBERS_DRAWN = (
    "i + tf.random.uniform([], maxval=9, dtype=tf.int64)",
    "i + tf.random.uniform([], maxval=9, dtype=tf.int64, seed=3)",
)
_RAISING = (
    "tf.debugging.assert_none_equal(i, tf.constant(7, tf.int64))",
    "i = i + 0 * (tf.constant(1, tf.int64) // tf.where(i == 5, tf.zeros_like(i), tf.ones_like(i)))",
    "i = i + 0 * tf.strings.to_number(tf.where(tf.equal(i, 9), 'nine', '1'), tf.int64)",
    "i = i + 0 * tf.gather(tf.constant([1, 1, 1], tf.int64), 9 * tf.cast(i == 4, tf.int64))",
    "x = tf.debugging.check_numerics(x / tf.cast(i - 6, tf.float32)[..., None], 'six')",
)
_PREDICATES = (
    "tf.reduce_sum(i) % 3 != 1", "tf.reduce_max(i) < 18", "tf.reduce_sum(i) % 2 == 0", "tf.reduce_min(i) > 2",
    "tf.equal(tf.size(i), 0) == False", "tf.reduce_any(i >= 0)",
)  # fmt: skip

_Operator = Callable[[_Maker], Link]

_CALLS = ("", ", num_parallel_calls=2", ", num_parallel_calls=tf.data.AUTOTUNE",
          ", num_parallel_calls=2, deterministic=False")  # fmt: skip


def _map(maker: _Maker) -> Link:
    rng = maker.rng
    draw = rng.random()
    before: list[str] = []
    if draw < 0.6:
        number, floats = rng.choice(_PLAIN_FUNCTIONS)
    elif draw < 0.78:
        number, floats = rng.choice(_RANDOM_FUNCTIONS)
        if maker.style == "number":
            number = rng.choice(_NUMBERS_DRAWN)
    elif draw < 0.92:
        number, floats = rng.choice(_PLAIN_FUNCTIONS[:8])
        before = [rng.choice(_RAISING[: 4 if maker.style == "number" else 5])]
    elif draw < 0.96:
        number, floats = "i + state.assign_add(1)", "x"
    else:
        number, floats = "tf.ensure_shape(tf.numpy_function(lambda a: a + 1, [i], tf.int64), i.shape)", "x"
    name, definition = maker.function(number, floats, before=before)
    if "state." in number and definition:  # it closes over a variable of `make`
        taken = re.match(r"def \w+\((.*)\):\n    return (.*)$", definition[0])
        assert taken is not None
        name, definition = f"lambda {taken.group(1)}: {taken.group(2)}", ()
    arguments = rng.choices([*_CALLS, ", deterministic=False"], [10, 2, 2, 1, 1])[0]
    return Link("map", f".map({name}{arguments})", definition)


def _batch(maker: _Maker) -> Link:
    rng = maker.rng
    drops = rng.choice(["", "", ", drop_remainder=True"])
    calls = rng.choice(["", "", "", ", num_parallel_calls=2"])
    return Link("batch", f".batch({rng.choice([2, 3, 4, 5])}{drops}{calls})")


def _scan(maker: _Maker) -> Link:
    taken = maker.by_style(pair="s, e: (s + 1, (e[0] + s, e[1]))", number="s, i: (s + 1, i + s)",
                           dict="s, e: (s + 1, {'i': e['i'] + s, 'x': e['x']})")  # fmt: skip
    return Link("scan", f".scan(tf.constant(0, tf.int64), lambda {taken})")


def _flat_map(maker: _Maker) -> Link:
    rng, taken = maker.rng, maker.taken
    inner = rng.choice([".repeat(2)", "", ".shuffle(3).repeat(2)", ".map(lambda *e: e if len(e) > 1 else e[0])"])
    element = maker.by_style(pair="(i, x)", dict="e", number="i")
    given = f"lambda {taken}: tf.data.Dataset.from_tensors({element}){inner}"
    if rng.random() < 0.5:
        return Link("flat_map", f".flat_map({given})")
    calls = rng.choice(_CALLS)
    length = rng.choice(["", ", cycle_length=2", ", cycle_length=3, block_length=2"])
    return Link("interleave", f".interleave({given}{length}{calls})")


def _window(maker: _Maker) -> Link:
    size = maker.rng.choice([2, 3, 5])
    arguments = maker.rng.choice(
        ["", ", shift=1", ", shift=2, drop_remainder=True", ", shift=1, stride=2, drop_remainder=True",
         ", drop_remainder=True"]
    )  # fmt: skip
    zipped = maker.by_style(
        pair=f"i, x: tf.data.Dataset.zip((i.batch({size}), x.batch({size})))", number=f"i: i.batch({size})",
        dict=f"e: tf.data.Dataset.zip({{'i': e['i'].batch({size}), 'x': e['x'].batch({size})}})",
    )  # fmt: skip
    return Link("window", f".window({size}{arguments}).flat_map(lambda {zipped})")


_PAIRED = {"pair": "(a[0], a[1] + b[1])", "dict": "{{'i': a['i'], 'x': b['x']}}", "number": "a"}


def _zipped(maker: _Maker, one: str, other: str) -> Link:
    joined = f".map(lambda a, b: {_PAIRED[maker.style]})"
    return Link("zip", f"tf.data.Dataset.zip(({{ds}}{one}, {{ds}}{other})){joined}")


def _branches(maker: _Maker) -> list[Link]:
    """Two branches of one shuffle, each with its own iterator."""
    rng = maker.rng
    one, other = (rng.choice(["", ".repeat(2)", ".take(20).repeat(2)", ".skip(1).repeat(3)"]) for _ in range(2))
    more = rng.choice(["", ".batch(3)", ".prefetch(2)"])
    shuffle = Link("shuffle", rng.choice([".shuffle(50, seed=4)", ".shuffle(7, seed=4)", ".shuffle(9)"]))
    return [shuffle, _zipped(maker, one + more, other + more)]


def _fixed(operator: str, *texts: str) -> _Operator:
    return lambda maker: Link(operator, maker.rng.choice(texts))


_OPTIONS = (
    "deterministic = False", "experimental_optimization.map_and_batch_fusion = False", "autotune.enabled = False",
    "experimental_optimization.apply_default_optimizations = False", "deterministic = True",
    "experimental_optimization.map_parallelization = False", "experimental_optimization.noop_elimination = False",
    "threading.private_threadpool_size = 2",
)  # fmt: skip


def _options(maker: _Maker) -> Link:
    chosen_option = maker.rng.choice(_OPTIONS)
    name = f"options{maker.rng.randrange(1000)}"
    made = f"def {name}():\n    options = tf.data.Options()\n    options.{chosen_option}\n    return options"
    return Link("with_options", f".with_options({name}())", (made,))


_OPERATORS: tuple[tuple[_Operator, float], ...] = (
    (_map, 9.0),
    (lambda maker: Link("filter", f".filter({maker.predicate(maker.rng.choice(_PREDICATES))})"), 2.0),
    (_batch, 4.0),
    (_scan, 0.4),
    (_flat_map, 1.5),
    (_window, 1.2),
    (lambda maker: Link("group_by_window", f".group_by_window({maker.predicate('tf.reduce_sum(i) % 2')}, "
                        "lambda k, d: d.batch(3), window_size=3)"), 0.3),
    (lambda maker: _zipped(maker, "", ".skip(1)"), 0.4),
    (lambda maker: Link("take_while", f".take_while({maker.predicate('tf.reduce_max(i) < 15')})"), 0.3),
    (_options, 0.7),
    (_fixed("shuffle", ".shuffle(5, seed=3)", ".shuffle(50, seed=4)", ".shuffle(6)",
            ".shuffle(8, reshuffle_each_iteration=False)", ".shuffle(4, seed=1, reshuffle_each_iteration=False)"), 3.0),
    (_fixed("repeat", ".repeat(2)", ".repeat(3)", ".repeat(1)", ".repeat()"), 1.8),
    (_fixed("take", ".take(7)", ".take(-1)", ".take(100)"), 1.0),
    (_fixed("skip", ".skip(2)", ".skip(0)"), 1.0),
    (_fixed("shard", ".shard(2, 1)", ".shard(1, 0)", ".shard(3, 0)"), 0.8),
    (_fixed("cache", ".cache()"), 1.8),
    (_fixed("prefetch", ".prefetch(1)", ".prefetch(tf.data.AUTOTUNE)", ".prefetch(4)"), 1.5),
    (_fixed("unbatch", ".unbatch()"), 0.7),
    (_fixed("rebatch", ".rebatch(3)", ".rebatch(4, drop_remainder=True)"), 0.3),
    (_fixed("padded_batch", ".padded_batch(3)", ".padded_batch(4, drop_remainder=True)"), 0.7),
    (_fixed("ragged_batch", ".ragged_batch(3)"), 0.3),
    (_fixed("ignore_errors", ".ignore_errors()"), 0.9),
    (_fixed("unique", ".map(lambda *e: tf.nest.flatten(e)[0]).unique()"), 0.1),
    (_fixed("enumerate", ".enumerate().map(lambda n, e: e)"), 0.4),
    (_fixed("assert_cardinality", ".apply(tf.data.experimental.assert_cardinality(-2))"), 0.1),
    (_fixed("concatenate", "{ds}.concatenate({ds}.take(3))", "{ds}.take(4).concatenate({ds})"), 0.5),
    (_fixed("choose", "tf.data.Dataset.sample_from_datasets([{ds}, {ds}], seed=3)",
            "tf.data.Dataset.choose_from_datasets([{ds}, {ds}], tf.data.Dataset.range(2).repeat(9))",
            "tf.data.Dataset.sample_from_datasets([{ds}.repeat(), {ds}.repeat()]).take(90)",
            "tf.data.Dataset.choose_from_datasets([{ds}.repeat()] * 2, tf.data.Dataset.range(2).repeat(45))"), 0.3),
)  # fmt: skip


def source(rng: random.Random, style: str) -> Link:
    rows = rng.choice([9, 12, 13, 17, 22, 24, 25, 31, 40])
    draw = rng.random()
    numbers = f"np.arange({rows}), (np.arange({3 * rows}, dtype=np.float32) - 9).reshape({rows}, 3)"
    if style == "number":
        choices = [f"tf.data.Dataset.range({rows})", f"tf.data.Dataset.from_tensor_slices(np.arange({rows}))",
                   f"tf.data.Dataset.random(seed=5).take({rows}).map(lambda n: n % 30)"]  # fmt: skip
        if draw < 0.7:
            text = rng.choice(choices)
            return Link("range" if "range(" in text and "arange" not in text else "from_tensor_slices", text)
        return rng.choice(_FILE_SOURCES)
    if draw < 0.6 or style == "dict":
        given = f"({numbers})" if style == "pair" else "{'i': " + numbers.replace("), (", "), 'x': (", 1) + "}"
        return Link("from_tensor_slices", f"tf.data.Dataset.from_tensor_slices({given})")
    if draw < 0.75:
        generator = f"def numbers():\n    for n in range({rows}):\n        yield n, [n * 1.0, n / 2, -n]"
        signature = "(tf.TensorSpec([], tf.int64), tf.TensorSpec([3], tf.float32))"
        made = f"tf.data.Dataset.from_generator(numbers, output_signature={signature})"
        return Link("from_generator", made, (generator,))
    of_files = rng.choice(_FILE_SOURCES)
    return Link(of_files.operator, of_files.text + ".map(lambda i: (i, tf.fill([3], tf.cast(i, tf.float32))))")


_FILE_SOURCES = tuple(
    Link(operator, text + ".map(lambda t: tf.strings.to_number(t, tf.int64))")
    for operator, text in (
        ("TFRecordDataset", "tf.data.TFRecordDataset(records(folder))"),
        ("TFRecordDataset", "tf.data.TFRecordDataset(tf.data.Dataset.from_tensor_slices(records(folder)))"),
        ("TextLineDataset", "tf.data.TextLineDataset(lines(folder))"),
        ("interleave", "slices(records(folder)).interleave(tf.data.TFRecordDataset, cycle_length=2)"),
        ("interleave", "tf.data.Dataset.list_files(records(folder), seed=3).interleave(tf.data.TFRecordDataset)"),
        ("flat_map", "tf.data.Dataset.list_files(records(folder), shuffle=False).flat_map(tf.data.TFRecordDataset)"),
        ("flat_map", "slices(lines(folder)).flat_map(lambda p: tf.data.TextLineDataset(p).skip(1))"),
    )
)


def compose(seed: str) -> Chain:
    """A pipeline from a seed; TensorFlow may not be able to build it."""
    rng = random.Random(seed)
    style = rng.choices(["pair", "number", "dict"], [5, 2, 2])[0]
    maker = _Maker(rng, style)
    operators, weights = zip(*_OPERATORS, strict=True)
    links = [one(maker) for one in rng.choices(operators, weights, k=rng.choice([2, 3, 4, 4, 5, 6, 7]))]
    if rng.random() < 0.5 and not any(link.operator == "batch" for link in links):
        links.append(_batch(maker))
    if not seed.startswith("recall:") and rng.random() < 0.1:  # the list of right proposals has none of them
        place = rng.randrange(len(links) + 1)
        links[place:place] = _branches(maker)
    facts: dict[str, Any] = {"randomness_fixed": rng.random() < 0.3}
    facts |= {name: rng.choice([None, None, few]) for name, few in (("cores_believed", 4), ("epochs", 3))}
    return Chain(source(rng, style), tuple(links), facts, style)


def by_hand(hand: Hand) -> Chain:
    return Chain(Link("by hand", hand.expression, (*PRELUDE, *hand.functions)), (), {}, style="hand")
