"""Why a graph pass of TensorFlow left a pipeline unchanged, derived from the operators and their functions.

The conditions are those of the passes themselves (tensorflow/core/grappler/optimizers/data, TensorFlow 2.21);
whether a pass fired is never inferred here, only from the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from pipetune.core.functions import FunctionFacts
from pipetune.core.operators import DEFAULT_PASSES, OPTION
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.results import PassReason

NEED_AUTOTUNE = frozenset(
    {"batch_parallelization", "filter_parallelization", "inject_prefetch", "map_fusion", "map_parallelization"}
    | {"seq_interleave_prefetch", "autotune_buffer_sizes", "disable_prefetch_legacy_autotune"}
)
"""Passes that do nothing if AUTOTUNE is off."""

_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "GeneratorDataset"})
_TABLES = "LookupTable"
_NO_ITERATOR = frozenset({"with_options", "assert_cardinality"})


def unchanged_reasons(
    name: str, pipeline: Pipeline, *, in_force: bool, stateful: Mapping[str, Collection[str]]
) -> tuple[PassReason, ...]:
    """Returns why the pass `name` did not change `pipeline`, or not all of it; empty if no reason is known.

    Args:
        name: the pass, as TensorFlow calls it.
        pipeline: the original pipeline.
        in_force: whether TensorFlow runs the pass here at all.
        stateful: by node id, the ops in its function that TensorFlow registers as stateful.
    """
    switched = _disabled_reason(name, pipeline)
    if not in_force and switched:
        return (PassReason("", switched),)
    if in_force and name in NEED_AUTOTUNE and pipeline.options.get("autotune.enabled") is False:
        return (PassReason("", "AUTOTUNE is switched off (options.autotune.enabled = False), and this pass needs it"),)
    found = tuple(_REASON_FINDERS[name](pipeline, stateful)) if name in _REASON_FINDERS else ()
    if not in_force:
        return (PassReason("", _off_by_default_reason(name)), *found)
    return found


def _off_by_default_reason(name: str) -> str:
    if name == "make_sloppy":
        return "off unless options.deterministic = False"
    return f"off unless options.{OPTION}{name} = True" if name in SWITCHES else "TensorFlow offers no option for it"


SWITCHES = frozenset(
    {"filter_fusion", "filter_parallelization", "inject_prefetch", "map_and_batch_fusion", "map_and_filter_fusion"}
    | {"map_fusion", "map_parallelization", "noop_elimination", "parallel_batch", "seq_interleave_prefetch"}
    | {"shuffle_and_repeat_fusion"}
)
"""Passes with an option of their own."""


def _disabled_reason(name: str, pipeline: Pipeline) -> str:
    """Describes what in the script turns the pass off; empty if nothing does."""
    if pipeline.options.get(OPTION + name) is False:
        return f"the script switches it off (options.{OPTION}{name} = False)"
    default = pipeline.options.get(OPTION + "apply_default_optimizations")
    if default is False and name in DEFAULT_PASSES:
        return f"the script switches the default passes off (options.{OPTION}apply_default_optimizations = False)"
    return ""


def statefulness_reason(function: FunctionFacts | None, stateful: Collection[str]) -> str:
    """Returns why TensorFlow considers a function stateful; empty if it does not."""
    if function is None:
        return "nothing is known about its function"
    python = sorted(_PYTHON.intersection(stateful))
    if python:
        return f"Python op: its function calls Python ({python[0]}), whose effects are unknown"
    if function.reads_variables:
        return f"captured resource: its function reads the variable {function.reads_variables[0]}"
    if function.writes_variables:
        return "captured resource: its function writes a variable"
    tables = sorted(kind for kind in stateful if kind.startswith(_TABLES))
    if tables:
        return f"captured resource: its function uses a lookup table ({tables[0]})"
    if not stateful:
        return ""
    first = sorted(stateful)[0]
    if function.random:
        return f"stateful function: it draws random numbers ({first})"
    if function.reads_files and first in ("ReadFile", "MatchingFiles"):
        return f"stateful function: it reads files ({first})"
    return f"stateful function: it calls {first}"


def _operators(pipeline: Pipeline, op: str) -> list[Node]:
    return [node for node in pipeline if node.op == op]


def _upstream_operator(pipeline: Pipeline, node: Node) -> Node | None:
    """The operator directly upstream in the graph; options and assertions, which make no iterator, are skipped."""
    while len(node.inputs) == 1:
        node = pipeline[node.inputs[0]]
        if node.op not in _NO_ITERATOR:
            return node
    return None


_ReasonFinder = Callable[[Pipeline, Mapping[str, Collection[str]]], Iterator[PassReason]]


def _parallelization(op: str) -> _ReasonFinder:
    def why(pipeline: Pipeline, stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
        nodes = _operators(pipeline, op)
        if not nodes:
            yield PassReason("", f"there is no {op}")
        for node in nodes:
            if node.argument("num_parallel_calls") is not None:
                yield PassReason(node.id, "num_parallel_calls is set already")
            elif node.argument("synchronous") is True:
                yield PassReason(node.id, "the script asks for a synchronous map")
            elif reason := statefulness_reason(node.function, stateful.get(node.id, ())):
                yield PassReason(node.id, reason)
        for node in pipeline:
            if op in node.inner and node.op in ("interleave", "flat_map"):
                yield PassReason(node.id, f"the {op} inside its function is not part of the outer pipeline")

    return why


def _map_and_batch(pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
    batches = [node for node in pipeline if node.op in ("batch", "padded_batch", "ragged_batch")]
    if not batches:
        yield PassReason("", "there is no batch")
    for node in batches:
        above = _upstream_operator(pipeline, node)
        if node.op != "batch":
            yield PassReason(node.id, f"{node.op} has no fused variant")
        elif node.argument("num_parallel_calls") is not None:
            yield PassReason(node.id, "a parallel batch is never fused")
        elif above is None or above.op != "map":
            yield PassReason(node.id, f"{above.title if above else 'nothing'} is directly upstream of it, not a map")
        elif above.argument("use_unbounded_threadpool") is True:
            yield PassReason(node.id, "the map runs in an unbounded thread pool")


def _pair_fusion(first: str, second: str) -> _ReasonFinder:
    """Reasons for passes that fuse two adjacent operators."""

    def why(pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
        below = _operators(pipeline, second)
        if not below or not _operators(pipeline, first):
            yield PassReason("", f"there is no {first} followed by a {second}")
            return
        for node in below:
            above = _upstream_operator(pipeline, node)
            if above is None or above.op != first:
                between = above.title if above else "nothing"
                yield PassReason(node.id, f"{between} is directly upstream of this {second}, not a {first}")

    return why


def _inject_prefetch(pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
    end = pipeline.output
    last = _upstream_operator(pipeline, end) if end.op in _NO_ITERATOR else end
    if last is None:
        return
    above = _upstream_operator(pipeline, last)
    fusible = last.op == "batch" and above is not None and above.op == "map"
    parallel = last.op in ("batch", "interleave") and last.argument("num_parallel_calls") is not None
    if last.op == "prefetch":
        yield PassReason(last.id, "the pipeline already ends in a prefetch")
    elif last.op == "map" or fusible or parallel:
        yield PassReason(last.id, f"the {last.title} at the end already runs in the background")


def _batch_parallelization(pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
    if not any(node.op in ("batch", "padded_batch") for node in pipeline):
        yield PassReason("", "there is no batch")


def _noop(_pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
    yield PassReason("", "no operator is without effect: there is no take(-1), skip(0), repeat(1), shard(1, 0), or map "
                         "that returns its argument")  # fmt: skip


def _seq_interleave(pipeline: Pipeline, _stateful: Mapping[str, Collection[str]]) -> Iterator[PassReason]:
    if not any(node.argument("num_parallel_calls") is not None for node in _operators(pipeline, "interleave")):
        yield PassReason("", "there is no parallel interleave")


_REASON_FINDERS: Mapping[str, _ReasonFinder] = {
    "map_parallelization": _parallelization("map"),
    "filter_parallelization": _parallelization("filter"),
    "map_and_batch_fusion": _map_and_batch,
    "map_fusion": _pair_fusion("map", "map"),
    "filter_fusion": _pair_fusion("filter", "filter"),
    "map_and_filter_fusion": _pair_fusion("map", "filter"),
    "shuffle_and_repeat_fusion": _pair_fusion("shuffle", "repeat"),
    "inject_prefetch": _inject_prefetch,
    "parallel_batch": _batch_parallelization,
    "batch_parallelization": _batch_parallelization,
    "noop_elimination": _noop,
    "seq_interleave_prefetch": _seq_interleave,
}
