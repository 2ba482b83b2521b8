"""`threads`: one thread per kernel if parallel calls already fill the cores, and a private pool for tf.data."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import NoProposal, Rewrite, Safety, SetOption
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.profile import Cause
from pipetune.rewrites.legality import describe_operator
from pipetune.rewrites.parallel_map import tensorflow_parallelizes
from pipetune.rewrites.pricing import POOL_SIZE, core_limits, format_cores
from pipetune.rewrites.rule import Rule, RuleContext

NAME = "threads"

KERNEL_THREADS = "threading.max_intra_op_parallelism"

_MIN_CORES = 4
"""On two cores, elementwise math and matrix products took the same CPU time in one thread as in two, within 8 %."""

_MIN_LOST_SHARE = 0.05  # minimum share of a step lost to missing overlap that is worth a trial


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields one thread per kernel, and a private thread pool for tf.data, where measurements suggest a gain."""
    yield from _one_thread_per_kernel(context)
    yield from _private_pool(context)


def _one_thread_per_kernel(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Proposes one thread per kernel if kernels were measured to use several and parallel calls leave them no core."""
    spread = [node for node in context.pipeline if _spreads(node, context)]
    filling = [node for node in spread if _fills_the_cores(node, context)]
    if not spread:
        return
    if not filling:
        why = (
            f"The kernels of {describe_operator(spread[0])} use several threads at once. Its calls do not run "
            "in parallel, so one thread per kernel would leave cores idle."
        )
        yield NoProposal(NAME, spread[0].id, why)
        return
    if context.cores < _MIN_CORES:
        why = (
            f"On {format_cores(context)}, running a kernel in one thread instead of several would save almost nothing."
        )
        yield NoProposal(NAME, filling[0].id, why)
        return
    if context.pipeline.options.get(KERNEL_THREADS) is not None:
        yield NoProposal(NAME, filling[0].id, f"The script sets options.{KERNEL_THREADS} itself.")
        return
    alone = SetOption(KERNEL_THREADS, 1)
    names = ", ".join(describe_operator(node) for node in filling)
    summary = f"Run each kernel of {names} in one thread: parallel calls already occupy {format_cores(context)}"
    yield _rewrite(context, (alone,), f"{summary}.")
    pool = _pool(context)
    if pool is not None:
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
        f"training step, and {lost:.0%} of a step is currently lost because input and model do not overlap."
    )
    yield _rewrite(context, (pool,), summary, only_training=True)


def _spreads(node: Node, context: RuleContext) -> bool:
    measured = context.profile.operator(node.id) if context.profile is not None else None
    return measured is not None and measured.several_threads


def _runs_side_by_side(node: Node, context: RuleContext) -> bool:
    return node.op in ("map", "interleave") and (
        node.argument("num_parallel_calls") not in (None, 1)
        or (node.op == "map" and tensorflow_parallelizes(node, context))
    )


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
        rule=NAME,
        node=output.id,
        safety=Safety.EXACT,
        edits=edits,
        summary=summary,
        group=f"{NAME}@{output.id}",
        only_training=only_training,
    )


RULE = Rule(
    name=NAME,
    summary=(
        "Runs each kernel of the input in one thread, and the input in a private thread pool, if measurements "
        "justify it."
    ),
    legality=(
        "One thread per kernel only if prefix differencing measured kernels that use several, and if as many "
        "calls of that function run at once as there are available cores: the original parallel calls, or "
        "TensorFlow's own. A private pool is added to that as a second candidate; alone, it is proposed only "
        "with an accelerator, if at least a twentieth of a step is needed by neither input nor model and is "
        "not explained by a buffer, Python code or a missing prefetch. Never one thread per kernel on fewer "
        "than four cores, where it saves almost no CPU time; never for options that the script sets itself; "
        "and no pool if granted-cores sets one."
    ),
    safety=(
        "EXACT: it changes threads, not values. A kernel that sums in several threads may round differently in "
        "one: the values are compared as for any rewrite."
    ),
    propose=propose,
)
