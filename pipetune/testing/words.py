"""Builds pipelines from a short text notation, for tests of rules and models. No TensorFlow.

The notation::

    list_files | interleave cycle_length=4 | map! random | shuffle 1000 | batch 32 | repeat

- `|` joins stages; `;` or a new line separates statements; the last statement is the pipeline's output.
- `name = ...` names a branch; a statement that begins with the name continues it, and `zip a b`,
  `concatenate a b`, `choose a b` join branches.
- A stage is an operator (`Node.op`) followed by words. `list_files` becomes the two operators that TensorFlow makes of
  it, `from_tensor_slices` and `shuffle`; with `shuffle=False` only the first.
- A bare number or AUTOTUNE is the operator's main argument (`shuffle 1000`, `batch 32`, `take 5`).
- `argument=value` sets an argument: an integer, True, False, None, AUTOTUNE, or text.
- Properties of the function: `random`, `seeded` (random with seeds), `python`, `python_random`, `variable` or
  `variable=name` (reads it), `writes` or `writes=name`, `table`, `print`, `file` (writes one), `reads_file`,
  `raises`, `asserts` (raises in an Assert op), `unknown` (nothing is known about it). Without such a word it is
  stateless.
- `inner=TFRecordDataset+map` names the operators that an interleave or flat_map function makes (default:
  TFRecordDatasetV2), `calls=ReadFile+Cast` the ops in a function and in those it calls.
- `rows=exact`: the function gives the same rows when called on a batch; `rows=Exp`: the op Exp makes them differ in the
  last bits; `rows=parts`: they are the same if the function is split in two; `rows=no`: they are not.
- `gathers`: rows of arrays in memory can be gathered by index; `gathers=windows`: windows of 3 rows can;
  `gathers=series`: the operator outputs windows that functions upstream of it gather one by one; `gathers=no`: the rows
  cannot be gathered.
- `early=2`: a predicate gives the same result upstream of the two maps nearest to it; `early=no`: not upstream of one.
- `fused=n1`: the function computes the same if it calls the function of the map n1 (`n1+n2`: of both) itself, as one
  function; `unfused=n1`: it does not.
- `passes=0+1`: a function passes these components of its input through unchanged (-1: a component that it computes);
  `spec=x`: the element_spec after an operator (by default the same for all operators).
- `arrays=yes`: the Python code that the function calls could get arrays; `arrays=no`: it needs eager tensors.
- `pads=256`: the function only fills elements up to that length; `pads=no`: it also does something else.
- `crop=yes`: the function could decode only what it crops; `crop=no`: it needs the whole image.
- `branch=yes`: the function could compute only the arrays that it selects; `branch=no`: it needs both.
- `draws=2k`: the function can be split before its random draws, where 2k bytes are passed on; `draws=no`: it cannot.
  `head=80%` is the measured share of the first part in the cost.
- `spread`: the kernels of an operator were measured to use several threads at once. `padding=0.4:9+17:0.1`: 40 % of its
  batches is padding, and 10 % would be with buckets that begin at the lengths 9 and 17; `padding=0.4:no`: its batches
  cannot be built by length.
- `shrink=2`: the function could decode at half the scale; `shrink=no`: it needs the image at full scale.
- `bytes=600k` is the measured size of an element (k, M, G: powers of 1000), `static_bytes=4` the size
  that the spec fixes, `elements=2000` the number of elements, `cpu=2ms` the measured cost per element (s, ms, us;
  default 10us), `waits=2ms` the measured waiting in addition to it. `!` after the operator means a cost of 10ms.
  `shared=2`: the call site made two datasets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipetune.core.functions import FunctionFacts, RowGathering
from pipetune.core.operators import OPERATORS, operator_facts
from pipetune.core.pipeline import AUTOTUNE, UNKNOWN, Node, Pipeline, SourceLocation, Value
from pipetune.core.profile import ConsumerProfile, OperatorProfile, PaddingShares, Profile, Stage
from pipetune.testing.answers import (
    FLAGS,
    PROBE_SETTERS,
    STATELESS,
    gathering,
    padding,
    seconds,
    size,
    value,
    with_flag,
)

_MAIN_ARGUMENT = {
    **{
        op: plain[0]
        for op, facts in OPERATORS.items()
        if facts.method and (plain := [one.name for one in facts.parameters if one.plain])
    },
    "range": "stop",
    "interleave": "num_parallel_calls",
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

_DEFAULT_SECONDS = 10e-6  # per element, of an operator without a cost: negligible compared with `_HEAVY_SECONDS`
_HEAVY_SECONDS = 10e-3  # per element, of an operator marked with "!"


@dataclass(frozen=True)
class DescribedPipeline:
    """A pipeline and its profile, as described by the text."""

    pipeline: Pipeline
    profile: Profile


@dataclass
class _ParsedStage:
    """One stage while it is parsed."""

    op: str
    arguments: dict[str, Value]
    function: FunctionFacts | None
    inner: tuple[str, ...] = ()
    size_bytes: float | None = None
    static_bytes: float | None = None
    elements: int = UNKNOWN
    seconds: float = _DEFAULT_SECONDS
    waits: float | None = None
    shared: int = 1
    gathering: RowGathering | None = None
    spec: str = ""
    head_share: float | None = None
    several_threads: bool = False
    padding: PaddingShares | None = None


def pipeline(text: str, *, options: Mapping[str, Value] | None = None) -> Pipeline:
    """Returns the pipeline that `text` describes.

    Raises:
        ValueError: a word is unknown.
    """
    return parse(text, options=options).pipeline


def profile(text: str) -> Profile:
    """Returns the profile that `text` describes: costs, visits per element of the output, bytes, counts."""
    return parse(text).profile


def parse(text: str, *, options: Mapping[str, Value] | None = None) -> DescribedPipeline:
    """Returns both the pipeline and the profile of `text`."""
    nodes: list[Node] = []
    stages: dict[str, _ParsedStage] = {}
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
    built = Pipeline(tuple(nodes), name="dataset", options=dict(options or {}))
    return DescribedPipeline(built, _profile(built, stages))


def _expand(stage: _ParsedStage, word: str) -> tuple[_ParsedStage, ...]:
    if word.rstrip("!") != "list_files":
        return (stage,)
    shuffles = stage.arguments.pop("shuffle", True) is not False
    seed = stage.arguments.pop("seed", None)
    order = _ParsedStage("shuffle", {**_DEFAULTS["shuffle"], "seed": seed}, None, elements=stage.elements)
    return (stage, order) if shuffles else (stage,)


def _node(stage: _ParsedStage, index: int, inputs: tuple[str, ...], *, method: str) -> Node:
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


def _read_stage(words: list[str]) -> _ParsedStage:
    op = words[0].rstrip("!")
    kind = "from_tensor_slices" if op == "list_files" else op
    if kind not in OPERATORS:
        raise ValueError(f"no operator is called {op!r}")
    function = (
        replace(STATELESS, digest=f"{kind}") if operator_facts(kind).takes_function and kind != "opaque" else None
    )
    stage = _ParsedStage(kind, dict(_DEFAULTS.get(kind, {})), function)
    if kind in ("interleave", "flat_map"):
        stage.inner = ("TFRecordDatasetV2",)
    if words[0].endswith("!"):
        stage.seconds = _HEAVY_SECONDS
    for word in words[1:]:
        _read_word(stage, word)
    return stage


def _read_word(stage: _ParsedStage, word: str) -> None:
    name, equals, text = word.partition("=")
    if name == "unknown" and not equals:
        stage.function = None
    elif name in FLAGS:
        stage.function = with_flag(stage.function, FLAGS[name], text)
    elif name in PROBE_SETTERS and stage.function is not None:
        stage.function = PROBE_SETTERS[name](stage.function, text)
    elif name in _OPERATOR_SETTERS and (equals or name in _VALUELESS):
        _OPERATOR_SETTERS[name](stage, text)
    elif equals:
        stage.arguments[name] = value(text)
    elif stage.op in _MAIN_ARGUMENT:
        stage.arguments[_MAIN_ARGUMENT[stage.op]] = value(word)
    else:
        raise ValueError(f"{stage.op} does not know the word {word!r}")


def _setter(name: str, read: Callable[[str], object]) -> Callable[[_ParsedStage, str], None]:
    return lambda stage, text: setattr(stage, name, read(text))


_OPERATOR_SETTERS: Mapping[str, Callable[[_ParsedStage, str], None]] = {
    "bytes": _setter("size_bytes", size),
    "cpu": _setter("seconds", seconds),
    "elements": _setter("elements", int),
    "gathers": _setter("gathering", gathering),
    "head": _setter("head_share", lambda text: float(text.removesuffix("%")) / 100),
    "inner": _setter("inner", lambda text: tuple(text.split("+"))),
    "padding": _setter("padding", padding),
    "shared": _setter("shared", int),
    "spec": _setter("spec", str),
    "spread": _setter("several_threads", lambda text: True),
    "static_bytes": _setter("static_bytes", size),
    "waits": _setter("waits", seconds),
}
"""Setters for words about an operator other than its arguments and its function."""

_VALUELESS = frozenset({"gathers", "spread"})
"""The words of `_OPERATOR_SETTERS` that need no value."""


def _profile(pipeline: Pipeline, stages: Mapping[str, _ParsedStage]) -> Profile:
    visits: dict[str, float] = {pipeline.output.id: 1.0}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        ratio = float(size) if operator_facts(node.op).batches and isinstance(size, int) else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratio
    operators = tuple(
        OperatorProfile(
            node=node.id,
            stage=Stage.EXTRACT if operator_facts(node.op).source else Stage.TRANSFORM,
            cpu_seconds=stages[node.id].seconds,
            wall_seconds=stages[node.id].seconds + (stages[node.id].waits or 0.0),
            waiting_seconds=stages[node.id].waits,
            visits=visits[node.id],
            bytes_out=stages[node.id].size_bytes,
            head_share=stages[node.id].head_share,
            several_threads=stages[node.id].several_threads,
            padding=stages[node.id].padding,
        )
        for node in pipeline
    )
    return Profile(operators=operators, consumer=ConsumerProfile(kind="none", why="a pipeline from words"))
