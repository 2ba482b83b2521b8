"""`threads`: one thread per kernel if parallel calls already fill the cores, and a private pool for tf.data."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Rewrite, Safety, SetOption, Silence
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.core.profile import Cause
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.granted_cores import POOL_SIZE, bounds, in_cores
from pipetune.rules.legality import described
from pipetune.rules.parallel_map import tensorflow_does_it

NAME = "threads"

KERNEL_THREADS = "threading.max_intra_op_parallelism"

_FEWEST_CORES = 4
"""On two cores, elementwise math and matrix products took the same CPU time in one thread as in two, within 8 %."""

_LOST = 0.05  # minimum share of a step lost to missing overlap that is worth a trial


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    yield from _one_thread_a_kernel(context)
    yield from _own_pool(context)


def _one_thread_a_kernel(context: RuleContext) -> Iterator[Rewrite | Silence]:
    """Proposes one thread per kernel if kernels were measured to use several and parallel calls leave them no core."""
    spread = [node for node in context.pipeline if _spreads(node, context)]
    filling = [node for node in spread if _fills_the_cores(node, context)]
    if not spread:
        return
    if not filling:
        why = (
            f"The kernels of {described(spread[0])} use several threads at once. Its calls do not run side by side, so "
            "one thread each would leave cores idle."
        )
        yield Silence(NAME, spread[0].id, why)
        return
    if context.cores < _FEWEST_CORES:
        why = f"On {in_cores(context)} the threads of a kernel cost next to nothing that one alone would save."
        yield Silence(NAME, filling[0].id, why)
        return
    if context.pipeline.options.get(KERNEL_THREADS) is not None:
        yield Silence(NAME, filling[0].id, f"The script sets options.{KERNEL_THREADS} itself.")
        return
    alone = SetOption(KERNEL_THREADS, 1)
    names = ", ".join(described(node) for node in filling)
    summary = f"Let a kernel of {names} run in one thread: the calls side by side fill {in_cores(context)}"
    yield _rewrite(context, (alone,), f"{summary}.")
    pool = _pool(context)
    if pool is not None:
        yield _rewrite(context, (alone, pool), f"{summary}, in threads of tf.data's own.")


def _own_pool(context: RuleContext) -> Iterator[Rewrite | Silence]:
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
        f"Give tf.data {context.cores} threads of its own: its functions then never wait behind the step's, and "
        f"{lost:.0%} of a step is lost where input and model could run at once."
    )
    yield _rewrite(context, (pool,), summary, only_training=True)


def _spreads(node: Node, context: RuleContext) -> bool:
    measured = context.profile.operator(node.id) if context.profile is not None else None
    return measured is not None and measured.several_threads


def _runs_side_by_side(node: Node, context: RuleContext) -> bool:
    return node.op in ("map", "interleave") and (
        node.argument("num_parallel_calls") not in (None, 1)
        or (node.op == "map" and tensorflow_does_it(node, context))
    )


def _fills_the_cores(node: Node, context: RuleContext) -> bool:
    """Whether enough calls of its function run at once to occupy every core."""
    calls = node.argument("num_parallel_calls")
    if isinstance(calls, int) and calls != AUTOTUNE and calls < context.cores:
        return False
    return _runs_side_by_side(node, context)


def _pool(context: RuleContext) -> SetOption | None:
    """Returns the option for the pool size; None if the script sets it, or `granted-cores` does in every rewrite."""
    if context.pipeline.options.get(POOL_SIZE) is not None or bounds(context):
        return None
    return SetOption(POOL_SIZE, context.cores)


def _overlap_lost(context: RuleContext) -> float | None:
    """Returns the share of a step lost to missing overlap; None if it is small, not measured, or has another cause."""
    consumer = context.profile.consumer if context.profile is not None else None
    cause = context.diagnosis.cause if context.diagnosis is not None else None
    if consumer is None or not consumer.real_seconds or consumer.overlap_lost_seconds is None:
        return None
    share = consumer.overlap_lost_seconds / consumer.real_seconds
    return share if share >= _LOST and cause not in (Cause.BUFFER, Cause.TURNS, Cause.PYTHON) else None


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
    summary="Runs each kernel of the input in one thread, and the input in threads of its own, where that is measured.",
    legality=(
        "One thread per kernel only where prefix differencing measured kernels that use several, and where as many "
        "calls of that function run at once as cores are granted: parallel calls as written, or TensorFlow's own. A "
        "private pool goes with it, as a second candidate; alone it is proposed on an accelerator only, where input "
        "and model lose a twentieth of a step that neither needs and no buffer, Python code or missing prefetch "
        "explains. Never one thread per kernel on fewer than four cores, where it saves next to no processor time, "
        "never what the script sets itself, and no pool where granted-cores gives one."
    ),
    safety=(
        "EXACT: threads, no values. A kernel that adds up in several threads may round otherwise in one: the values "
        "are compared like those of any rewrite."
    ),
    propose=propose,
)
