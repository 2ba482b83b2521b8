"""`granted-cores`: limit AUTOTUNE and tf.data's threads to the cores available to the container."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Insert, Rewrite, Safety, SetArgument, SetOption, Silence
from pipetune.core.pipeline import AUTOTUNE, Value
from pipetune.rules.base import Rule, RuleContext

NAME = "granted-cores"

CPU_BUDGET = "autotune.cpu_budget"
MEMORY_BUDGET = "autotune.ram_budget"
POOL_SIZE = "threading.private_threadpool_size"

_UNPROVABLE = (
    "AUTOTUNE counts on more memory for its buffers than is granted: {budget} keeps them within half of it. That makes "
    "nothing faster, so no trial can prove it."
)


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    output = context.pipeline.output
    edits, memory = bounds(context), _memory(context)
    if not edits:
        if _differ(context):
            why = "The script sets the cores of AUTOTUNE and of tf.data's threads itself."
            yield Silence(NAME, output.id, why)
        for budget in memory:
            yield Silence(NAME, output.id, _UNPROVABLE.format(budget=f"options.{budget.name} = {budget.value}"))
        return
    yield Rewrite(
        rule=NAME,
        node=output.id,
        safety=Safety.EXACT,
        edits=(*edits, *memory),
        summary=(
            f"Let tf.data use {in_cores(context)}, what the container grants; TensorFlow counts on "
            f"{context.cores_believed}."
        ),
        group=f"{NAME}@{output.id}",
    )


def bounds(context: RuleContext) -> tuple[SetOption, ...]:
    """Returns options that limit tf.data to the available cores; none if TensorFlow or the script does so already.

    The budget alone only guides AUTOTUNE's calculation; the pool size also limits each operator's parallel calls from
    the first element on, before AUTOTUNE has run.
    """
    if not _differ(context):
        return ()
    wanted: dict[str, Value] = {CPU_BUDGET: context.cores, POOL_SIZE: context.cores}
    return tuple(SetOption(name, value) for name, value in wanted.items() if context.pipeline.options.get(name) is None)


def _memory(context: RuleContext) -> tuple[SetOption, ...]:
    """Returns the buffer budget that is added to this rule's own rewrite; rewrites of other rules do not need it."""
    if context.buffers_granted is None or context.pipeline.options.get(MEMORY_BUDGET) is not None:
        return ()
    return (SetOption(MEMORY_BUDGET, context.buffers_granted),)


def bounded(rewrite: Rewrite, context: RuleContext) -> Rewrite:
    """Adds the limits to `rewrite` if it leaves a value to AUTOTUNE, so that trials use only the available cores."""
    edits = bounds(context)
    if not edits or not _leaves_to_autotune(rewrite) or rewrite.rule == NAME:
        return rewrite
    note = f"AUTOTUNE is kept to {in_cores(context)}, what the container grants."
    return replace(rewrite, edits=(*rewrite.edits, *edits), notes=(*rewrite.notes, note))


def _differ(context: RuleContext) -> bool:
    return context.cores_believed is not None and context.cores_believed > context.cores


def _leaves_to_autotune(rewrite: Rewrite) -> bool:
    for edit in rewrite.edits:
        match edit:
            case SetArgument(name="num_parallel_calls" | "num_parallel_reads", value=value) if value == AUTOTUNE:
                return True
            case Insert(arguments=arguments) if arguments.get("num_parallel_calls") == AUTOTUNE:
                return True
    return False


def in_cores(context: RuleContext) -> str:
    """Returns the number of available cores in words: "2 cores"."""
    return "1 core" if context.cores == 1 else f"{context.cores} cores"


RULE = Rule(
    name=NAME,
    summary="Keeps AUTOTUNE and tf.data's threads within the cores that the container grants.",
    legality=(
        "Only where TensorFlow counts on more cores than are granted: it reads the affinity mask and no CFS quota. "
        "Never where the script sets `options.autotune.cpu_budget` and `options.threading.private_threadpool_size` "
        "itself. The same options go with every rewrite that leaves a number of parallel calls to AUTOTUNE. Where it "
        "counts on more memory than is granted too, `options.autotune.ram_budget` goes with the rule's own rewrite."
    ),
    safety="EXACT: threads and budgets, no values; the order is that of the pipeline as written.",
    propose=propose,
)
