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
  `raises`, `asserts` (raises in an Assert op), `unordered` (a dataset in it is, by `deterministic=False`), `unknown`
  (nothing is known about it). Without such a word it is stateless.
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
    with_effects_of,
)
from pipetune.core.operators import OPERATORS, operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, SourceLocation, Value
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
    "unordered": replace(STATELESS, unordered=True),
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
    if name and flag.reads_variables:
        flag = replace(flag, reads_variables=(name,))
    # `random seeded` is seeded, too: both words are about the same draws.
    return replace(with_effects_of(old, [flag]), digest=f"{old.digest}-{flag}-{name}", seeded=old.seeded or flag.seeded)


def cropping(words: str) -> CropDecoding:
    """Returns what `crop=yes` or `crop=no` stands for."""
    return CropDecoding(digest="cropped", seen="9 elements: all") if words == "yes" else CropDecoding("it uses it all")


def probed(words: str, *, digest: str, why_not: str) -> ProbeResult:
    """Returns what `yes` or `no` stands for."""
    return ProbeResult(digest=digest) if words == "yes" else ProbeResult(why_not)


def pads(words: str) -> Padding:
    """Returns what `pads=256` (elements become that long) or `pads=no` stands for."""
    return Padding("its function does more than pad") if words == "no" else Padding(shapes=f"[{words}]")


def fused(words: str, *, why_not: str = "") -> MapFusion:
    """Returns what `fused=n1+n2` or `unfused=n1` stands for."""
    return MapFusion(first=tuple(words.split("+")), why_not=why_not, digest="fused")


_NOT_FUSIBLE = "called in one, their functions do something else"

PROBE_SETTERS: Mapping[str, Callable[[FunctionFacts, str], FunctionFacts]] = {
    "arrays": lambda function, words: replace(
        function, arrays=probed(words, digest="arrays", why_not="its Python code needs x as a tensor")
    ),
    "branch": lambda function, words: replace(
        function, branching=probed(words, digest="branched", why_not="their shapes may differ")
    ),
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
    """One stage while it is parsed: its operator, without id and inputs, and what was measured of it."""

    node: Node
    measured: OperatorProfile


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
    measured: dict[str, OperatorProfile] = {}
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
                line, last = len(nodes) + 1, f"n{len(nodes)}"
                location = SourceLocation("train.py", line, 0, line, 40, words[0].rstrip("!"))
                nodes.append(replace(made.node, id=last, inputs=inputs, location=location))
                measured[last] = made.measured
                inputs = (last,)
        if branch:
            branches[branch] = last
    built = Pipeline(tuple(nodes), name="dataset", options=dict(options or {}))
    return DescribedPipeline(built, _profile(built, measured))


def _expand(stage: _ParsedStage, word: str) -> tuple[_ParsedStage, ...]:
    if word.rstrip("!") != "list_files":
        return (stage,)
    arguments = dict(stage.node.arguments)
    shuffles, seed = arguments.pop("shuffle", True) is not False, arguments.pop("seed", None)
    stage.node = replace(stage.node, arguments=arguments)
    order = _new_stage("shuffle")
    given = {**order.node.arguments, "seed": seed}
    order.node = replace(order.node, arguments=given, cardinality=stage.node.cardinality)
    return (stage, order) if shuffles else (stage,)


def _read_stage(words: list[str]) -> _ParsedStage:
    op = words[0].rstrip("!")
    kind = "from_tensor_slices" if op == "list_files" else op
    if kind not in OPERATORS:
        raise ValueError(f"no operator is called {op!r}")
    stage = _new_stage(kind, seconds=_HEAVY_SECONDS if words[0].endswith("!") else _DEFAULT_SECONDS)
    for word in words[1:]:
        _read_word(stage, word)
    return stage


def _new_stage(op: str, *, seconds: float = _DEFAULT_SECONDS) -> _ParsedStage:
    facts = operator_facts(op)
    function = replace(STATELESS, digest=op) if facts.takes_function and op != "opaque" else None
    inner = ("TFRecordDatasetV2",) if op in ("interleave", "flat_map") else ()
    node = Node("", op, arguments=dict(_DEFAULTS.get(op, {})), function=function, inner=inner)
    return _ParsedStage(
        node, OperatorProfile("", Stage.EXTRACT if facts.source else Stage.TRANSFORM, cpu_seconds=seconds)
    )


def _read_word(stage: _ParsedStage, word: str) -> None:
    name, equals, text = word.partition("=")
    node = stage.node
    if name == "unknown" and not equals:
        stage.node = replace(node, function=None)
    elif name in FLAGS:
        stage.node = replace(node, function=with_flag(node.function, FLAGS[name], text))
    elif name in PROBE_SETTERS and node.function is not None:
        stage.node = replace(node, function=PROBE_SETTERS[name](node.function, text))
    elif name in _OF_NODE and (equals or name == "gathers"):
        field, read = _OF_NODE[name]
        stage.node = replace(node, **{field: read(text)})
    elif name in _MEASURED and (equals or name == "spread"):
        field, read = _MEASURED[name]
        stage.measured = replace(stage.measured, **{field: read(text)})
    elif equals:
        stage.node = replace(node, arguments={**node.arguments, name: value(text)})
    elif node.op in _MAIN_ARGUMENT:
        stage.node = replace(node, arguments={**node.arguments, _MAIN_ARGUMENT[node.op]: value(word)})
    else:
        raise ValueError(f"{node.op} does not know the word {word!r}")


_OF_NODE: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "elements": ("cardinality", int),
    "gathers": ("gathering", gathering),
    "inner": ("inner", lambda text: tuple(filter(None, text.split("+")))),
    "shared": ("shared", int),
    "spec": ("spec", str),
    "static_bytes": ("element_bytes", size),
}
"""Words about an operator other than its arguments and its function: the field of `Node`, and what it gets."""

_MEASURED: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "bytes": ("bytes_out", size),
    "cpu": ("cpu_seconds", seconds),
    "head": ("head_share", lambda text: float(text.removesuffix("%")) / 100),
    "padding": ("padding", padding),
    "profiled": ("elements", int),
    "spread": ("several_threads", lambda text: True),
    "waits": ("waiting_seconds", seconds),
}
"""Words about what was measured of an operator: the field of `OperatorProfile`, and what it gets."""


def _profile(pipeline: Pipeline, measured: Mapping[str, OperatorProfile]) -> Profile:
    visits: dict[str, float] = {pipeline.output.id: 1.0}
    ratios: dict[str, float] = {}
    for node in reversed(pipeline.nodes):
        size = node.argument("batch_size")
        if node.inputs:
            ratios[node.id] = float(size) if operator_facts(node.op).batches and isinstance(size, int) else 1.0
        for above in node.inputs:
            visits[above] = visits.get(above, 0.0) + visits.get(node.id, 0.0) * ratios[node.id]
    operators = tuple(
        replace(
            one,
            node=name,
            wall_seconds=(one.cpu_seconds or 0.0) + (one.waiting_seconds or 0.0),
            visits=visits[name],
            ratio=ratios.get(name),
        )
        for name, one in measured.items()
    )
    return Profile(operators=operators, consumer=ConsumerProfile(kind="none", why="a pipeline from words"))
