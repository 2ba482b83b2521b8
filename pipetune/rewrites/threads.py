"""`granted-cores` and `threads`: how many cores and threads tf.data and its kernels use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import NoProposal, ReplaceOperator, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.measurement import percent
from pipetune.core.pipeline import AUTOTUNE, Node, Value
from pipetune.core.profile import Cause
from pipetune.rewrites.rule import Rule, RuleContext, describe_operator, tensorflow_parallelizes

GRANTED_CORES = "granted-cores"

CPU_BUDGET = "autotune.cpu_budget"
MEMORY_BUDGET = "autotune.ram_budget"
POOL_SIZE = "threading.private_threadpool_size"

_UNPROVABLE = (
    "AUTOTUNE assumes more memory for its buffers than is available: {budget} limits them to half of the available "
    "memory. This makes nothing faster, so no trial can prove it."
)


def propose_granted_cores(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the options that limit tf.data to the available cores and memory, or why they are not set."""
    output = context.pipeline.output
    edits, memory = core_limits(context), list[SetOption]()
    if context.buffer_budget_bytes is not None and context.pipeline.options.get(MEMORY_BUDGET) is None:
        memory.append(SetOption(MEMORY_BUDGET, context.buffer_budget_bytes))  # rewrites of other rules do not need it
    if not edits:
        if _overestimates_cores(context):
            why = "The script itself sets the cores of AUTOTUNE and of tf.data's thread pool."
            yield NoProposal(GRANTED_CORES, output.id, why)
        for budget in memory:
            why = _UNPROVABLE.format(budget=f"options.{budget.name} = {budget.value}")
            yield NoProposal(GRANTED_CORES, output.id, why)
        return
    limit = f"Limit tf.data to {_format_cores(context)}"
    yield Rewrite(
        rule=GRANTED_CORES,
        node=output.id,
        safety=Safety.EXACT,
        edits=(*edits, *memory),
        summary=f"{limit}, as available to the container; TensorFlow detects {context.detected_cores}.",
        group=f"{GRANTED_CORES}@{output.id}",
    )


def core_limits(context: RuleContext) -> tuple[SetOption, ...]:
    """Returns options that limit tf.data to the available cores; none if TensorFlow or the script does so already.

    The budget alone only guides AUTOTUNE's calculation; the pool size also limits each operator's parallel calls from
    the first element on, before AUTOTUNE has run.
    """
    if not _overestimates_cores(context):
        return ()
    limits: dict[str, Value] = {CPU_BUDGET: context.cores, POOL_SIZE: context.cores}
    return tuple(SetOption(name, value) for name, value in limits.items() if context.pipeline.options.get(name) is None)


def limit_to_cores(rewrite: Rewrite, context: RuleContext) -> Rewrite:
    """Returns `rewrite` with the limits added if it leaves a value to AUTOTUNE: trials use only the available cores."""
    edits = core_limits(context)
    if not edits or not _leaves_to_autotune(rewrite) or rewrite.rule == GRANTED_CORES:
        return rewrite
    note = f"AUTOTUNE is limited to {_format_cores(context)}, as available to the container."
    return replace(rewrite, edits=(*rewrite.edits, *edits), notes=(*rewrite.notes, note))


def _overestimates_cores(context: RuleContext) -> bool:
    return context.detected_cores is not None and context.detected_cores > context.cores


def _leaves_to_autotune(rewrite: Rewrite) -> bool:
    given = [(edit.name, edit.value) for edit in rewrite.edits if isinstance(edit, SetArgument)]
    given += [item for edit in rewrite.edits if isinstance(edit, ReplaceOperator) for item in edit.arguments.items()]
    return not {("num_parallel_calls", AUTOTUNE), ("num_parallel_reads", AUTOTUNE)}.isdisjoint(given)


def _format_cores(context: RuleContext) -> str:
    """Returns the number of available cores in words: "2 cores"."""
    return "1 core" if context.cores == 1 else f"{context.cores} cores"


GRANTED_CORES_RULE = Rule(
    name=GRANTED_CORES,
    summary="Limits AUTOTUNE and tf.data's threads to the cores that are available to the container.",
    legality=(
        "Only if TensorFlow detects more cores than are available: it reads the affinity mask but no CFS quota. Never "
        "if the script itself sets `options.autotune.cpu_budget` and `options.threading.private_threadpool_size`. The "
        "same options are added to every rewrite that leaves a number of parallel calls to AUTOTUNE. If TensorFlow "
        "also assumes more memory than is available, `options.autotune.ram_budget` is added to the rule's own rewrite."
    ),
    safety="EXACT: it changes threads and budgets, not values; the order is that of the original pipeline.",
    propose=propose_granted_cores,
)


THREADS = "threads"

KERNEL_THREADS = "threading.max_intra_op_parallelism"

_MIN_CORES = 4
"""On two cores, elementwise math and matrix products took the same CPU time in one thread as in two, within 8 %."""

_MIN_LOST_SHARE = 0.05  # minimum share of a step lost to missing overlap that is worth a trial


def propose_threads(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields one thread per kernel, and a private thread pool for tf.data, where measurements suggest a gain."""
    yield from _one_thread_per_kernel(context)
    yield from _private_pool(context)


def _one_thread_per_kernel(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Proposes one thread per kernel if kernels were measured to use several and parallel calls leave them no core."""
    measured = ((node, context.measured(node.id)) for node in context.pipeline)
    spread = [node for node, one in measured if one is not None and one.several_threads]
    filling = [node for node in spread if _fills_the_cores(node, context)]
    if not spread:
        return
    why = ""
    if not filling:
        why = (
            f"The kernels of {describe_operator(spread[0])} use several threads at once. Its calls do not run "
            "in parallel, so one thread per kernel would leave cores idle."
        )
    elif context.cores < _MIN_CORES:
        many = _format_cores(context)
        why = f"On {many}, running a kernel in one thread instead of several would save almost nothing."
    elif context.pipeline.options.get(KERNEL_THREADS) is not None:
        why = f"The script sets options.{KERNEL_THREADS} itself."
    if why:
        yield NoProposal(THREADS, (filling or spread)[0].id, why)
        return
    alone = SetOption(KERNEL_THREADS, 1)
    names = ", ".join(describe_operator(node) for node in filling)
    summary = f"Run each kernel of {names} in one thread: parallel calls already occupy {_format_cores(context)}"
    yield _rewrite(context, (alone,), f"{summary}.")
    if (pool := _pool(context)) is not None:
        yield _rewrite(context, (alone, pool), f"{summary}; use a private thread pool for tf.data.")


def _private_pool(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Proposes a private pool if a step on an accelerator is longer than input and model need, without another cause.

    On a CPU target, the model's kernels run on the same cores: a private pool gives the input no additional core.
    """
    lost = _overlap_lost(context)
    pool = _pool(context)
    if context.device == "cpu" or context.cores < 2 or lost is None or pool is None:
        return
    if not any(_runs_side_by_side(node, context) for node in context.pipeline):
        return
    summary = (
        f"Give tf.data a private pool of {context.cores} threads: its functions then never wait for the "
        f"training step, and {percent(lost)} of a step is currently lost because input and model do not overlap."
    )
    yield _rewrite(context, (pool,), summary, only_training=True)


def _runs_side_by_side(node: Node, context: RuleContext) -> bool:
    requested = node.op in ("map", "interleave") and node.argument("num_parallel_calls") not in (None, 1)
    return requested or tensorflow_parallelizes(node, context)


def _fills_the_cores(node: Node, context: RuleContext) -> bool:
    """Whether enough calls of its function run at once to occupy every core."""
    calls = node.argument("num_parallel_calls")
    if isinstance(calls, int) and calls != AUTOTUNE and calls < context.cores:
        return False
    return _runs_side_by_side(node, context)


def _pool(context: RuleContext) -> SetOption | None:
    """Returns the option for the pool size; None if the script sets it, or `granted-cores` does in every rewrite."""
    if context.pipeline.options.get(POOL_SIZE) is not None or core_limits(context):
        return None
    return SetOption(POOL_SIZE, context.cores)


def _overlap_lost(context: RuleContext) -> float | None:
    """Returns the share of a step lost to missing overlap; None if it is small, not measured, or has another cause."""
    consumer = context.profile.consumer if context.profile is not None else None
    cause = context.diagnosis.cause if context.diagnosis is not None else None
    if consumer is None or not consumer.real_seconds or consumer.overlap_lost_seconds is None:
        return None
    share = consumer.overlap_lost_seconds / consumer.real_seconds
    return share if share >= _MIN_LOST_SHARE and cause not in (Cause.BUFFER, Cause.NO_PREFETCH, Cause.PYTHON) else None


def _rewrite(
    context: RuleContext, edits: tuple[SetOption, ...], summary: str, *, only_training: bool = False
) -> Rewrite:
    output = context.pipeline.output
    return Rewrite(
        rule=THREADS,
        node=output.id,
        safety=Safety.EXACT,
        edits=edits,
        summary=summary,
        group=f"{THREADS}@{output.id}",
        only_training=only_training,
    )


THREADS_RULE = Rule(
    name=THREADS,
    summary=(
        "Runs each kernel of the input in one thread, and the input in a private thread pool, if measurements "
        "justify it."
    ),
    legality=(
        "One thread per kernel only if prefix differencing measured kernels that use several, and if as many calls of "
        "that function run at once as there are available cores: the original parallel calls, or TensorFlow's own. A "
        "private pool is added to that as a second candidate; alone, it is proposed only with an accelerator, if at "
        "least a twentieth of a step is needed by neither input nor model and is not explained by a buffer, Python "
        "code or a missing prefetch. Never one thread per kernel on fewer than four cores, where it saves almost no "
        "CPU time; never for options that the script sets itself; and no pool if granted-cores sets one."
    ),
    safety=(
        "EXACT: it changes threads, not values. A kernel that sums in several threads may round differently in "
        "one: the values are compared as for any rewrite."
    ),
    propose=propose_threads,
)
