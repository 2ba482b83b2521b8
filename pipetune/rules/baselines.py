"""The pipelines every gain is measured against. No rules: they are what others already get for free."""

from __future__ import annotations

from collections.abc import Callable

from pipetune.core.edits import Edit, Insert, Plan, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
from pipetune.rules.base import RuleContext
from pipetune.rules.granted_cores import bounds
from pipetune.rules.legality import last_working
from pipetune.rules.parallel_interleave import block_length_in_force, cycle_length_in_force


def off_plan(pipeline: Pipeline) -> Plan:
    """The graph as written, every optimisation of TensorFlow off.

    Autotune stays on: without it the runtime keeps no model of the run.
    """
    edits = (
        SetOption("experimental_optimization.apply_default_optimizations", False),
        SetOption("experimental_optimization.inject_prefetch", False),
    )
    return Plan("off", (_baseline("off", pipeline, edits, "Switch TensorFlow's own optimisations off."),))


def defaults_plan(pipeline: Pipeline) -> Plan:
    """The pipeline as the user wrote it, as TensorFlow runs it."""
    return Plan("defaults")


def autotune_plan(
    pipeline: Pipeline, cycle_length_in_force: int, *, cores: int = 1, cores_believed: int | None = None
) -> Plan:
    """AUTOTUNE everywhere, as the performance guide says; explicit cycle lengths kept, a final prefetch.

    Where TensorFlow counts on more cores than are granted, AUTOTUNE is kept to those: the rival at its best.

    Args:
        cycle_length_in_force: TensorFlow's default cycle length of a serial interleave on this machine. It is
            written out, because the default changes when parallel calls are added.
        cores: granted to this process.
        cores_believed: what AUTOTUNE takes them to be; None where that is the same.
    """
    context = RuleContext(
        pipeline, cores=cores, cycle_length_in_force=cycle_length_in_force, cores_believed=cores_believed
    )
    edits = (*numbers(context, lambda node: AUTOTUNE, prefetch=AUTOTUNE), *bounds(context))
    return baseline_plan("autotune", pipeline, edits, "Set AUTOTUNE everywhere.")


def numbers(context: RuleContext, calls: Callable[[Node], int], *, prefetch: int) -> tuple[Edit, ...]:
    """Edits that give every map and interleave a number of parallel calls and the end a prefetch.

    Batches stay: a parallel one is not fused with the map above it. A synchronous map refuses calls. The order of an
    interleave is kept: its cycle length in force is written out, and more calls than that are refused by the runtime.

    Args:
        calls: the number for each of these operators, AUTOTUNE among them.
        prefetch: elements ahead of the consumer.
    """
    edits: list[Edit] = []
    for node in context.pipeline:
        if not takes_calls(node):
            continue
        number = calls(node)
        if node.op == "interleave":
            length = cycle_length_in_force(node, context)
            edits.extend(_set(node, "cycle_length", length))
            edits.extend(_set(node, "block_length", block_length_in_force(node)))
            number = min(number, length)
        edits.extend(_set(node, "num_parallel_calls", number))
    last, output = last_working(context.pipeline), context.pipeline.output
    if last.op == "prefetch":
        edits.extend(_set(last, "buffer_size", prefetch))
    else:
        edits.append(Insert(output.id, "prefetch", f"prefetch@{output.id}", {"buffer_size": prefetch}))
    return tuple(edits)


def takes_calls(node: Node) -> bool:
    """Whether a number of parallel calls can be set at `node` in a baseline."""
    return node.op in ("map", "interleave") and node.argument("synchronous") is not True


def baseline_plan(name: str, pipeline: Pipeline, edits: tuple[Edit, ...], summary: str) -> Plan:
    """A plan of these edits under that name; without edits it is the pipeline as written."""
    return Plan(name, (_baseline(name, pipeline, edits, summary),) if edits else ())


def _set(node: Node, name: str, value: int) -> list[Edit]:
    return [] if node.argument(name) == value else [SetArgument(node.id, name, value)]


def _baseline(name: str, pipeline: Pipeline, edits: tuple[Edit, ...], summary: str) -> Rewrite:
    # Measured, never recommended: the class is the most that parallel calls of a random map may change.
    safety = Safety.EXACT if name == "off" else Safety.STATISTICAL
    return Rewrite(
        rule=f"baseline-{name}", node=pipeline.output.id, safety=safety, edits=edits, summary=summary
    )
