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
  makes them differ in the last bits, `rows=parts` that it does when it is cut in two, `rows=no` that it does not.
  `gathers` says that rows of arrays in memory can be gathered by their numbers, `gathers=windows` that windows of 3
  of them can, `gathers=no` that they cannot;
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
- `bytes=600k` is the measured size of an element (k, M, G: powers of 1000), `static_bytes=4` the size
  that the spec fixes, `elements=2000` how many there are, `cpu=2ms` the measured cost per element (s, ms, us;
  10us if not said), `waits=2ms` that it waits so long beside, as measured, `!` behind the operator a cost of
  10ms. `shared=2` says the call site made two datasets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipetune.core.functions import FunctionFacts, Gathering
from pipetune.core.location import SourceLocation
from pipetune.core.operators import OPERATORS, facts
from pipetune.core.padding import Padding
from pipetune.core.pipeline import AUTOTUNE, UNKNOWN, Node, Pipeline, Value
from pipetune.core.profile import ConsumerProfile, CutCosts, OperatorProfile, Profile, Stage
from pipetune.testing.answers import (
    ANSWERS,
    FLAGS,
    STEADY,
    gathering,
    padding,
    seconds,
    size,
    value,
    with_flag,
)

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
    function = replace(STEADY, digest=f"{kind}") if facts(kind).takes_function and kind != "opaque" else None
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
    elif name in FLAGS:
        stage.function = with_flag(stage.function, FLAGS[name], text)
    elif name in ANSWERS and stage.function is not None:
        stage.function = ANSWERS[name](stage.function, text)
    elif name in _OF_OPERATORS and (equals or name in _BARE):
        _OF_OPERATORS[name](stage, text)
    elif equals:
        stage.arguments[name] = value(text)
    elif stage.op in _MAIN_ARGUMENT:
        stage.arguments[_MAIN_ARGUMENT[stage.op]] = value(word)
    else:
        raise ValueError(f"{stage.op} does not know the word {word!r}")


def _sets(name: str, read: Callable[[str], object]) -> Callable[[_Stage, str], None]:
    return lambda stage, text: setattr(stage, name, read(text))


_OF_OPERATORS: Mapping[str, Callable[[_Stage, str], None]] = {
    "bytes": _sets("size_bytes", size),
    "cpu": _sets("seconds", seconds),
    "elements": _sets("elements", int),
    "gathers": _sets("gathering", gathering),
    "head": _sets("head_share", lambda text: float(text.removesuffix("%")) / 100),
    "inner": _sets("inner", lambda text: tuple(text.split("+"))),
    "padding": _sets("padding", padding),
    "saves": _sets("saved_seconds", seconds),
    "shared": _sets("shared", int),
    "spec": _sets("spec", str),
    "spread": _sets("several_threads", lambda text: True),
    "static_bytes": _sets("static_bytes", size),
    "waits": _sets("waits", seconds),
}
"""What is said of an operator, beside its arguments and its function."""

_BARE = frozenset({"gathers", "spread"})
"""Those of them that need no value."""


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
