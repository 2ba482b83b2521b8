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
- `inner=TFRecordDataset+map` names the operators that an interleave or flat_map function makes, and `inner=` says that
  there are none (default: TFRecordDatasetV2), `calls=ReadFile+Cast` the ops in a function and in those it calls.
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
  that the spec fixes, `elements=2000` the number of elements, `profiled=30` how many of them the profile saw, `cpu=2ms`
  the measured cost per element (s, ms, us; default 10us), `waits=2ms` the measured waiting in addition to it. `!` after
  the operator means a cost of 10ms. `shared=2`: the call site made two datasets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pipetune.core.functions import (
    BatchedCall,
    CropDecoding,
    FunctionFacts,
    FunctionSplit,
    FunctionVariant,
    MapFusion,
    Padding,
    PredicatePushdown,
    ProbeResult,
    RowGathering,
    RowWindows,
    ScaledDecoding,
    SplitPosition,
)
from pipetune.core.operators import OPERATORS, operator_facts
from pipetune.core.pipeline import AUTOTUNE, UNKNOWN, Node, Pipeline, SourceLocation, Value
from pipetune.core.profile import ConsumerProfile, OperatorProfile, PaddingShares, Profile, Stage

STATELESS = FunctionFacts(name="f", digest="")
FLAGS: Mapping[str, FunctionFacts] = {
    "stateless": STATELESS,
    "random": replace(STATELESS, random=True),
    "seeded": replace(STATELESS, random=True, seeded=True),
    "python": replace(STATELESS, python=True),
    "python_random": replace(STATELESS, random=True, random_python=True),
    "variable": replace(STATELESS, reads_variables=("w",)),
    "writes": replace(STATELESS, reads_variables=("w",), writes_variables=True),
    "table": replace(STATELESS, mutable_tables=True),
    "print": replace(STATELESS, side_effects=("PrintV2",)),
    "file": replace(STATELESS, side_effects=("WriteFile",)),
    "reads_file": replace(STATELESS, reads_files=True),
    "raises": replace(STATELESS, can_raise=True),
    "asserts": replace(STATELESS, can_raise=True, operations=("Assert",)),
}
"""One word for each property of a function."""

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def padding(words: str) -> PaddingShares:
    """Returns what `padding=0.4:9+17:0.1` or `padding=0.4:no` stands for."""
    share, boundaries, *rest = words.split(":")
    if boundaries == "no":
        return PaddingShares(float(share), 9, "it pads with values of its own")
    lengths = tuple(map(int, boundaries.split("+")))
    return PaddingShares(float(share), 9, "", (0,), True, lengths, float(rest[0]))


def gathering(words: str) -> RowGathering:
    """Returns what `gathers`, `gathers=windows`, `gathers=series` or `gathers=no` stands for."""
    if words == "no":
        return RowGathering(why_not="they are sparse or ragged")
    return RowGathering(
        digest="gather", windows=RowWindows(3, 1, 1) if words == "windows" else None, singly=words == "series"
    )


def shrinking(words: str) -> ScaledDecoding:
    """Returns what `shrink=4` (at a quarter of the scale) or `shrink=no` stands for."""
    if words == "no":
        return ScaledDecoding(why_not="it uses the size of the image")
    return ScaledDecoding(ratio=int(words), seen="9 elements: all", most_apart=0.2, mean_apart=0.01)


def on_batches(words: str) -> BatchedCall:
    """Returns what `rows=` stands for: `exact`, `Exp+Log` (not bit-equal), `vectorized`, `parts` (if split) or `no`."""
    if words == "no":
        return BatchedCall(why_not="its op MatMul mixes rows")
    if words == "parts":
        parts = FunctionSplit(SplitPosition.AFTER_PARSING, position=1, head="head", tail="tail", handed=1, components=1)
        return BatchedCall(form=FunctionVariant.VECTORIZED, digest="tail", cut=parts)
    if words == "vectorized":
        return BatchedCall(form=FunctionVariant.VECTORIZED, digest="vectorized")
    return BatchedCall(digest="on batches", inexact=() if words == "exact" else tuple(words.split("+")))


def before_draws(words: str) -> FunctionSplit:
    """Returns what `draws=2k` or `draws=no` stands for."""
    if words == "no":
        return FunctionSplit(SplitPosition.BEFORE_DRAWS, why_not="what its first part gives has no fixed shape")
    return FunctionSplit(
        SplitPosition.BEFORE_DRAWS,
        position=3,
        element_bytes=size(words),
        head="head",
        tail="tail",
        handed=1,
        components=1,
    )


def on_inputs(words: str) -> tuple[PredicatePushdown, ...]:
    """Returns what `early=2` (the same upstream of two maps), `early=no` (not of one) or `early=1+no` stands for."""
    count = words.removesuffix("no").removesuffix("+")
    found = tuple(PredicatePushdown(digest=f"above {place + 1}") for place in range(int(count or 0)))
    return (
        (*found, PredicatePushdown(why_not="its predicate reads what the map makes")) if words.endswith("no") else found
    )


def with_flag(function: FunctionFacts | None, flag: FunctionFacts, name: str) -> FunctionFacts:
    """Returns `function` with the properties of `flag` added; `name` replaces the name of the variable."""
    old = function if function is not None else STATELESS
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
        operations=tuple(sorted({*old.operations, *flag.operations})),
    )


def cropping(words: str) -> CropDecoding:
    """Returns what `crop=yes` or `crop=no` stands for."""
    return CropDecoding(digest="cropped", seen="9 elements: all") if words == "yes" else CropDecoding("it uses it all")


def branching(words: str) -> ProbeResult:
    """Returns what `branch=yes` or `branch=no` stands for."""
    return ProbeResult(digest="branched") if words == "yes" else ProbeResult("their shapes may differ")


def arrays(words: str) -> ProbeResult:
    """Returns what `arrays=yes` or `arrays=no` stands for."""
    return ProbeResult(digest="arrays") if words == "yes" else ProbeResult("its Python code needs x as a tensor")


def pads(words: str) -> Padding:
    """Returns what `pads=256` (elements become that long) or `pads=no` stands for."""
    return Padding("its function does more than pad") if words == "no" else Padding(shapes=f"[{words}]")


def fused(words: str, *, why_not: str = "") -> MapFusion:
    """Returns what `fused=n1+n2` or `unfused=n1` stands for."""
    return MapFusion(first=tuple(words.split("+")), why_not=why_not, digest="fused")


_NOT_FUSIBLE = "called in one, their functions do something else"

PROBE_SETTERS: Mapping[str, Callable[[FunctionFacts, str], FunctionFacts]] = {
    "arrays": lambda function, words: replace(function, arrays=arrays(words)),
    "branch": lambda function, words: replace(function, branching=branching(words)),
    "calls": lambda function, words: replace(function, operations=tuple(words.split("+"))),
    "crop": lambda function, words: replace(function, cropping=cropping(words)),
    "draws": lambda function, words: replace(function, before_draws=before_draws(words)),
    "early": lambda function, words: replace(function, on_inputs=on_inputs(words)),
    "fused": lambda function, words: replace(function, fused=fused(words)),
    "pads": lambda function, words: replace(function, padding=pads(words)),
    "passes": lambda function, words: replace(function, hands_on=tuple(map(int, words.split("+")))),
    "rows": lambda function, words: replace(function, on_batches=on_batches(words)),
    "shrink": lambda function, words: replace(function, shrinking=shrinking(words)),
    "unfused": lambda function, words: replace(function, fused=fused(words, why_not=_NOT_FUSIBLE)),
}
"""Setters for the results of probing a function, by the word before the equals sign."""


def value(text: str) -> Value:
    """Returns the integer, True, False, None or AUTOTUNE that the text names, else the text itself."""
    words: dict[str, Value] = {"None": None, "True": True, "False": False, "AUTOTUNE": AUTOTUNE}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def size(text: str) -> float:
    """Returns the number of bytes in a text such as "600k"."""
    return _scaled(text, _SIZES)


def seconds(text: str) -> float:
    """Returns the number of seconds in a text such as "2ms"."""
    return _scaled(text, _TIMES)


def _scaled(text: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    if found is None or found[2] not in units:
        raise ValueError(f"not a number with one of the units {sorted(units)}: {text!r}")
    return float(found[1]) * units[found[2]]


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
    profiled: int | None = None
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
    "inner": _setter("inner", lambda text: tuple(filter(None, text.split("+")))),
    "padding": _setter("padding", padding),
    "profiled": _setter("profiled", int),
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
    ratios: dict[str, float] = {}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        if node.inputs:
            ratios[node.id] = float(size) if operator_facts(node.op).batches and isinstance(size, int) else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratios[node.id]
    operators = tuple(
        OperatorProfile(
            node=node.id,
            stage=Stage.EXTRACT if operator_facts(node.op).source else Stage.TRANSFORM,
            cpu_seconds=stages[node.id].seconds,
            wall_seconds=stages[node.id].seconds + (stages[node.id].waits or 0.0),
            waiting_seconds=stages[node.id].waits,
            elements=stages[node.id].profiled,
            visits=visits[node.id],
            ratio=ratios.get(node.id),
            bytes_out=stages[node.id].size_bytes,
            head_share=stages[node.id].head_share,
            several_threads=stages[node.id].several_threads,
            padding=stages[node.id].padding,
        )
        for node in pipeline
    )
    return Profile(operators=operators, consumer=ConsumerProfile(kind="none", why="a pipeline from words"))
