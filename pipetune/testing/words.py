"""Pipelines from words, for tests of rules and models. No TensorFlow.

The little language::

    list_files | interleave cycle_length=4 | map! random | shuffle 1000 | batch 32 | repeat

- `|` joins stages; `;` or a new line separates statements; the last statement is the pipeline's output.
- `name = ...` keeps a branch; a statement that begins with the name goes on from it, and `zip a b`,
  `concatenate a b`, `choose a b` join branches.
- A stage is an operator (`Node.op`) and words. `list_files` becomes the two operators TensorFlow makes of it,
  `from_tensor_slices` and `shuffle`; with `shuffle=False` only the first.
- A bare number or AUTOTUNE is the operator's main argument (`shuffle 1000`, `batch 32`, `take 5`).
- `argument=value` sets an argument: whole numbers, True, False, None, AUTOTUNE, text.
- What the function does: `random`, `seeded` (random with seeds), `python`, `python_random`, `variable` or
  `variable=name` (reads it), `writes` or `writes=name`, `table`, `print`, `file` (writes one), `reads_file`,
  `raises`, `unknown` (nothing is known about it). Without such a word it is stateless.
- `inner=TFRecordDataset+map` names what an interleave or flat_map function makes (default: TFRecordDataset),
  `calls=ReadFile+Cast` the kernels in a function and in those it calls.
- `rows=exact` says that the function gives the same rows when called on a batch, `rows=Exp` that the op named
  makes them differ in the last bits, `rows=no` that it does not. `gathers` says that rows of arrays in memory can
  be gathered by their numbers, `gathers=windows` that windows of 3 of them can, `gathers=no` that they cannot;
  `gathers=series` that an operator puts out windows which functions above it take by number.
- `early=2` says that a predicate says the same above the two maps nearest to it, `early=no` that it does not above one.
- `fused=n1` says that the function computes the same when it calls that of the map n1 (`n1+n2`: of both) itself, as one
  function, `unfused=n1` that it does not.
- `passes=0+1` says that a function hands on the components of its input unchanged (-1: one that it makes), and
  `spec=x` what elements look like behind an operator (like all others if not said).
- `crop=yes` says that the function could decode only what it crops, `crop=no` that it needs the whole image.
- `cuts=draws:2k` says that the function can be cut in front of its draws, `cuts=end:2k` that it can in front of ops
  that treat every number by itself, and that 2k bytes are handed on there (`cuts=end:2k+Exp`: such an op is Exp);
  `cuts=draws:no`, `cuts=end:no` that it cannot. `head=80%` is the measured share of the first part, `saves=3us` what
  the other saves per element behind the batch.
- `spread` says that the kernels of an operator were measured to use several threads at once, `padding=0.4:9+17:0.1`
  that 40 % of its batches is padding, and 10 % would be in buckets that begin at the lengths 9 and 17, `padding=0.4:no`
  that its batches cannot be made by length.
- `shrink=2` says that the function could decode at half the scale, `shrink=no` that it needs the image as it is.
- `entries=12` says that a generator goes through lists of 12 entries, `entries=no` that it does something else.
- `bytes=600k` is the measured size of an element (k, M, G: powers of 1000), `static_bytes=4` the size
  that the spec fixes, `elements=2000` how many there are, `cpu=2ms` the measured cost per element (s, ms, us;
  10us if not said), `waits=2ms` that it waits so long beside, as measured, `!` behind the operator a cost of
  10ms. `shared=2` says the call site made two datasets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipetune.core.functions import (
    SCALES,
    Cropping,
    Cut,
    CutKind,
    Entries,
    FunctionFacts,
    Fused,
    Gathering,
    OnBatches,
    OnInput,
    Shrinking,
    Windows,
)
from pipetune.core.location import SourceLocation
from pipetune.core.operators import OPERATORS, facts
from pipetune.core.padding import Padding
from pipetune.core.pipeline import AUTOTUNE, UNKNOWN, Node, Pipeline, Value
from pipetune.core.profile import ConsumerProfile, CutCosts, OperatorProfile, Profile, Stage

_MAIN_ARGUMENT = {
    "shuffle": "buffer_size",
    "prefetch": "buffer_size",
    "batch": "batch_size",
    "padded_batch": "batch_size",
    "ragged_batch": "batch_size",
    "rebatch": "batch_size",
    "repeat": "count",
    "take": "count",
    "skip": "count",
    "range": "stop",
    "window": "size",
    "map": "num_parallel_calls",
    "interleave": "num_parallel_calls",
    "cache": "filename",
    "shard": "num_shards",
}

_DEFAULTS: Mapping[str, Mapping[str, Value]] = {
    "map": {"num_parallel_calls": None, "deterministic": None},
    "interleave": {
        "cycle_length": None,
        "block_length": None,
        "num_parallel_calls": None,
        "deterministic": None,
    },
    "batch": {"drop_remainder": False, "num_parallel_calls": None, "deterministic": None},
    "padded_batch": {"drop_remainder": False},
    "shuffle": {"buffer_size": 100, "seed": None, "reshuffle_each_iteration": True},
    "repeat": {"count": None},
    "prefetch": {"buffer_size": AUTOTUNE},
    "cache": {"filename": ""},
}

_STEADY = FunctionFacts(name="f", digest="")
_FLAGS: Mapping[str, FunctionFacts] = {
    "stateless": _STEADY,
    "random": replace(_STEADY, random=True),
    "seeded": replace(_STEADY, random=True, seeded=True),
    "python": replace(_STEADY, python=True),
    "python_random": replace(_STEADY, random=True, random_python=True),
    "variable": replace(_STEADY, reads_variables=("w",)),
    "writes": replace(_STEADY, reads_variables=("w",), writes_variables=True),
    "table": replace(_STEADY, mutable_tables=True),
    "print": replace(_STEADY, side_effects=("PrintV2",)),
    "file": replace(_STEADY, side_effects=("WriteFile",)),
    "reads_file": replace(_STEADY, reads_files=True),
    "raises": replace(_STEADY, can_raise=True),
}

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_SPENT_BY_DEFAULT = 10e-6
_SPENT_HEAVY = 10e-3


@dataclass(frozen=True)
class Words:
    """A pipeline and the profile that its words describe."""

    pipeline: Pipeline
    profile: Profile


@dataclass
class _Stage:
    """One stage while it is read."""

    op: str
    arguments: dict[str, Value]
    function: FunctionFacts | None
    inner: tuple[str, ...] = ()
    size_bytes: float | None = None
    static_bytes: float | None = None
    elements: int = UNKNOWN
    seconds: float = _SPENT_BY_DEFAULT
    waits: float | None = None
    shared: int = 1
    gathering: Gathering | None = None
    spec: str = ""
    head_share: float | None = None
    saved_seconds: float | None = None
    several_threads: bool = False
    padding: Padding | None = None


def pipeline(text: str, *, options: Mapping[str, Value] | None = None, name: str = "dataset") -> Pipeline:
    """The pipeline that `text` describes.

    Raises:
        ValueError: a word nobody knows.
    """
    return read(text, options=options, name=name).pipeline


def profile(text: str) -> Profile:
    """The profile that `text` describes: costs, visits per element of the output, bytes, counts."""
    return read(text).profile


def read(text: str, *, options: Mapping[str, Value] | None = None, name: str = "dataset") -> Words:
    """Both the pipeline and the profile of `text`."""
    nodes: list[Node] = []
    stages: dict[str, _Stage] = {}
    branches: dict[str, str] = {}
    for statement in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        branch, _, chain = statement.rpartition(" = ")
        last = ""
        for position, words in enumerate(part.split() for part in chain.split("|")):
            if position == 0 and words[0] in branches:
                last = branches[words[0]]
                continue
            joined = tuple(branches[word] for word in words[1:] if word in branches)
            stage = _read_stage([word for word in words if word not in branches])
            inputs = joined or ((last,) if last else ())
            for made in _expand(stage, words[0]):
                node = _node(made, len(nodes), inputs, method=words[0].rstrip("!"))
                nodes.append(node)
                stages[node.id] = made
                inputs, last = (node.id,), node.id
        if branch:
            branches[branch] = last
    built = Pipeline(tuple(nodes), name=name, options=dict(options or {}))
    return Words(built, _profile(built, stages))


def _expand(stage: _Stage, word: str) -> tuple[_Stage, ...]:
    if word.rstrip("!") != "list_files":
        return (stage,)
    shuffles = stage.arguments.pop("shuffle", True) is not False
    seed = stage.arguments.pop("seed", None)
    order = _Stage("shuffle", {**_DEFAULTS["shuffle"], "seed": seed}, None, elements=stage.elements)
    return (stage, order) if shuffles else (stage,)


def _node(stage: _Stage, index: int, inputs: tuple[str, ...], *, method: str) -> Node:
    return Node(
        id=f"n{index}",
        op=stage.op,
        inputs=inputs,
        arguments=stage.arguments,
        function=stage.function,
        inner=stage.inner,
        location=SourceLocation("train.py", index + 1, 0, index + 1, 40, method),
        shared=stage.shared,
        spec=stage.spec,
        cardinality=stage.elements,
        element_bytes=stage.static_bytes,
        gathering=stage.gathering,
    )


def _read_stage(words: list[str]) -> _Stage:
    op = words[0].rstrip("!")
    kind = "from_tensor_slices" if op == "list_files" else op
    if kind not in OPERATORS:
        raise ValueError(f"no operator is called {op!r}")
    function = replace(_STEADY, digest=f"{kind}") if facts(kind).takes_function and kind != "opaque" else None
    stage = _Stage(kind, dict(_DEFAULTS.get(kind, {})), function)
    if kind in ("interleave", "flat_map"):
        stage.inner = ("TFRecordDatasetV2",)
    if words[0].endswith("!"):
        stage.seconds = _SPENT_HEAVY
    for word in words[1:]:
        _read_word(stage, word)
    return stage


def _read_word(stage: _Stage, word: str) -> None:
    name, equals, text = word.partition("=")
    if name == "unknown" and not equals:
        stage.function = None
    elif name in _FLAGS:
        stage.function = _with_flag(stage.function, _FLAGS[name], text)
    elif name == "rows" and stage.function is not None:
        stage.function = replace(stage.function, on_batches=_on_batches(text))
    elif name == "gathers":
        stage.gathering = _gathering(text)
    elif name in ("fused", "unfused") and stage.function is not None:
        why_not = "" if name == "fused" else "called in one, their functions do something else"
        fused = Fused(tuple(text.split("+")), why_not=why_not, digest="fused")
        stage.function = replace(stage.function, fused=fused)
    elif name == "passes" and stage.function is not None:
        stage.function = replace(stage.function, hands_on=tuple(map(int, text.split("+"))))
    elif name == "spread" and not equals:
        stage.several_threads = True
    elif name == "padding":
        stage.padding = _padding(text)
    elif name == "spec":
        stage.spec = text
    elif name == "early" and stage.function is not None:
        stage.function = replace(stage.function, on_inputs=_on_inputs(text))
    elif name == "crop" and stage.function is not None:
        answer = Cropping(digest="cropped", seen="9 elements: all") if text == "yes" else Cropping("it uses it all")
        stage.function = replace(stage.function, cropping=answer)
    elif name == "cuts" and stage.function is not None:
        stage.function = replace(stage.function, cuts=(_cut(text),))
    elif name == "head":
        stage.head_share = float(text.removesuffix("%")) / 100
    elif name == "saves":
        stage.saved_seconds = _scaled(text, _TIMES)
    elif name == "shrink" and stage.function is not None:
        stage.function = replace(stage.function, shrinking=_shrinking(text))
    elif name == "entries":
        known = Entries("it draws") if text == "no" else Entries(digest="entries", count=int(text))
        stage.function = replace(_with_flag(stage.function, _FLAGS["python"], ""), entries=known)
    elif name == "inner":
        stage.inner = tuple(text.split("+"))
    elif name == "calls" and stage.function is not None:
        stage.function = replace(stage.function, operations=tuple(text.split("+")))
    elif name == "bytes":
        stage.size_bytes = _scaled(text, _SIZES)
    elif name == "static_bytes":
        stage.static_bytes = _scaled(text, _SIZES)
    elif name == "elements":
        stage.elements = int(text)
    elif name == "cpu":
        stage.seconds = _scaled(text, _TIMES)
    elif name == "waits":
        stage.waits = _scaled(text, _TIMES)
    elif name == "shared":
        stage.shared = int(text)
    elif equals:
        stage.arguments[name] = _value(text)
    elif stage.op in _MAIN_ARGUMENT:
        stage.arguments[_MAIN_ARGUMENT[stage.op]] = _value(word)
    else:
        raise ValueError(f"{stage.op} does not know the word {word!r}")


def _padding(words: str) -> Padding:
    """`padding=0.4:9+17:0.1`, `padding=0.4:no`."""
    share, boundaries, *rest = words.split(":")
    if boundaries == "no":
        return Padding(float(share), 9, "it pads with values of its own")
    lengths = tuple(map(int, boundaries.split("+")))
    return Padding(float(share), 9, "", (0,), True, lengths, float(rest[0]))
def _gathering(words: str) -> Gathering:
    """`gathers`, `gathers=windows`, `gathers=series`, `gathers=no`."""
    if words == "no":
        return Gathering(why_not="they are sparse or ragged")
    return Gathering("", "gather", Windows(3, 1, 1) if words == "windows" else None, singly=words == "series")


def _shrinking(words: str) -> Shrinking:
    """`shrink=4` (at a quarter of the scale), `shrink=no`."""
    if words == "no":
        return Shrinking(why_not="it uses the size of the image")
    form = next(form for form, ratio in SCALES.items() if ratio == int(words))
    return Shrinking(form=form, digest="shrunk", seen="9 elements: all", most_apart=0.2, mean_apart=0.01)


def _on_batches(words: str) -> OnBatches:
    """`rows=exact`, `rows=Exp+Log` (not bit-equal on batches), `rows=no`."""
    if words == "no":
        return OnBatches(why_not="its op MatMul mixes rows")
    return OnBatches(digest="on batches", inexact=() if words == "exact" else tuple(words.split("+")))


def _cut(words: str) -> Cut:
    """`draws:2k`, `end:2k+Exp`, `end:no`."""
    where, _, rest = words.partition(":")
    kind = CutKind.BEFORE_DRAWS if where == "draws" else CutKind.BEFORE_EACH_NUMBER
    if rest == "no":
        return Cut(kind, why_not="what its first part gives has no fixed shape")
    size, _, inexact = rest.partition("+")
    return Cut(
        kind,
        position=3,
        element_bytes=_scaled(size, _SIZES),
        head="head",
        tail="tail",
        inexact=tuple(filter(None, inexact.split("+"))),
        handed=1,
        components=1,
    )


def _on_inputs(words: str) -> tuple[OnInput, ...]:
    """`early=2` (the same above two maps), `early=no` (not above one), `early=1+no`."""
    count = words.removesuffix("no").removesuffix("+")
    found = tuple(OnInput(digest=f"above {place + 1}") for place in range(int(count or 0)))
    return (*found, OnInput(why_not="its predicate reads what the map makes")) if words.endswith("no") else found


def _with_flag(function: FunctionFacts | None, flag: FunctionFacts, name: str) -> FunctionFacts:
    """`function` with what `flag` says added; `name` renames the variable."""
    old = function if function is not None else _STEADY
    variables = (name,) if name and flag.reads_variables else flag.reads_variables
    return replace(
        old,
        digest=f"{old.digest}-{flag}-{name}",
        random=old.random or flag.random,
        seeded=old.seeded or flag.seeded,
        random_python=old.random_python or flag.random_python,
        python=old.python or flag.python,
        reads_variables=tuple(dict.fromkeys((*old.reads_variables, *variables))),
        writes_variables=old.writes_variables or flag.writes_variables,
        mutable_tables=old.mutable_tables or flag.mutable_tables,
        side_effects=(*old.side_effects, *flag.side_effects),
        reads_files=old.reads_files or flag.reads_files,
        can_raise=old.can_raise or flag.can_raise,
    )


def _value(text: str) -> Value:
    words: dict[str, Value] = {"None": None, "True": True, "False": False, "AUTOTUNE": AUTOTUNE}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _scaled(text: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    if found is None or found[2] not in units:
        raise ValueError(f"not a number with one of the units {sorted(units)}: {text!r}")
    return float(found[1]) * units[found[2]]


def _profile(pipeline: Pipeline, stages: Mapping[str, _Stage]) -> Profile:
    visits: dict[str, float] = {pipeline.output.id: 1.0}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        ratio = float(size) if facts(node.op).batches and isinstance(size, int) else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratio
    operators = tuple(
        OperatorProfile(
            node=node.id,
            stage=Stage.EXTRACT if facts(node.op).source else Stage.TRANSFORM,
            cpu_seconds=stages[node.id].seconds,
            wall_seconds=stages[node.id].seconds + (stages[node.id].waits or 0.0),
            waiting_seconds=stages[node.id].waits,
            visits=visits[node.id],
            bytes_out=stages[node.id].size_bytes,
            cuts=_cut_costs(node, stages[node.id]),
            several_threads=stages[node.id].several_threads,
            padding=stages[node.id].padding,
        )
        for node in pipeline
    )
    return Profile(operators=operators, consumer=ConsumerProfile(kind="none", why="a pipeline from words"))


def _cut_costs(node: Node, stage: _Stage) -> dict[str, CutCosts] | None:
    cuts = node.function.cuts if node.function is not None else None
    if stage.head_share is None or not cuts:
        return None
    return {cut.kind.value: CutCosts(stage.head_share, 0.0, stage.saved_seconds) for cut in cuts}
