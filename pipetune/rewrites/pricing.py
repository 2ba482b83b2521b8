"""Figures to price rewrites: elements per epoch, bytes, and the cost of operators.

A figure comes from the profile if it was measured, else from the static facts, else it is None: nothing is
guessed, and a rule that needs a missing figure proposes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Insert, NoProposal, Rewrite, Safety, SetArgument, SetOption
from pipetune.core.element_counts import element_bytes, max_elements
from pipetune.core.functions import FunctionVariant
from pipetune.core.pipeline import AUTOTUNE, Node, Value
from pipetune.rewrites.legality import describe_operator
from pipetune.rewrites.rule import Rule, RuleContext

ASSUMED_AUTOTUNE_ELEMENTS = 8
"""Assumed number of elements in an autotuned buffer: the actual number is known only at run time."""


def format_bytes(size_bytes: float) -> str:
    """Returns a number of bytes as text: "812 B", "1.2 GiB"."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    value, unit = float(size_bytes), 0
    while abs(value) >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {units[unit]}" if unit == 0 or abs(value) >= 100 else f"{value:.1f} {units[unit]}"


def format_seconds(seconds: float) -> str:
    """Returns a duration as text: "0.2 us", "14 ms", "1,234 s"."""
    unit, scale = next(((name, one) for name, one in (("s", 1.0), ("ms", 1e-3)) if seconds >= one), ("us", 1e-6))
    value = seconds / scale
    return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def element_count(context: RuleContext, node_id: str) -> int | None:
    """Returns the maximum number of elements that `node_id` outputs per epoch, or `INFINITE`; None if not known."""
    return max_elements(context.pipeline, context.profile, node_id)


def bytes_per_element(context: RuleContext, node_id: str) -> float | None:
    """Returns the bytes of one element that `node_id` outputs; None if not known."""
    return element_bytes(context.pipeline, context.profile, node_id)


def buffer_bytes(context: RuleContext, node_id: str, elements: int) -> float:
    """Returns the bytes of `elements` (AUTOTUNE is allowed) elements of `node_id`; 0 if their size is not known."""
    size = bytes_per_element(context, node_id)
    if size is None:
        return 0.0
    return size * (ASSUMED_AUTOTUNE_ELEMENTS if elements == AUTOTUNE else elements)


def seconds_per_output(context: RuleContext, node_id: str) -> float | None:
    """Returns CPU seconds (else wall seconds) of `node_id` itself per output element of the pipeline, if measured."""
    measured = context.profile.operator(node_id) if context.profile else None
    if measured is None or measured.visits is None:
        return None
    cost = measured.cpu_seconds if measured.cpu_seconds is not None else measured.wall_seconds
    return None if cost is None else cost * measured.visits


def blocked_seconds_per_output(context: RuleContext, node_id: str) -> float:
    """Returns blocked seconds of `node_id` itself per output element of the pipeline; 0 if not measured separately."""
    measured = context.profile.operator(node_id) if context.profile else None
    if measured is None or measured.visits is None or measured.cpu_seconds is None:
        return 0.0
    return (measured.waiting_seconds or 0.0) * measured.visits


def variant_share(context: RuleContext, node_id: str, form: FunctionVariant) -> float | None:
    """Returns the measured share of its cost that a function keeps in a variant; None if not measured."""
    measured = context.profile.operator(node_id) if context.profile is not None else None
    shares = measured.variant_shares if measured is not None else None
    return shares.get(form) if shares is not None else None


def small_saving(context: RuleContext, node: Node, form: FunctionVariant, *, least: float) -> str:
    """Returns what a variant of the function of `node` saves, in words, if that is below the share `least`; else ""."""
    share = variant_share(context, node.id, form)
    if share is None or share <= 1 - least:
        return ""
    return f"{1 - share:.0%} of the cost of {describe_operator(node)}" if share < 1 else "nothing"


def shuffle_buffer_elements(context: RuleContext, shuffle: Node) -> int:
    """Returns how many elements the buffer of `shuffle` holds: its size, or the whole data if that is less."""
    size = shuffle.argument("buffer_size")
    elements = element_count(context, shuffle.inputs[0])
    buffer = size if isinstance(size, int) and size > 0 else elements or 0
    return min(buffer, elements) if elements is not None and elements > 0 else max(buffer, 0)


NAME = "granted-cores"

CPU_BUDGET = "autotune.cpu_budget"
MEMORY_BUDGET = "autotune.ram_budget"
POOL_SIZE = "threading.private_threadpool_size"

_UNPROVABLE = (
    "AUTOTUNE assumes more memory for its buffers than is available: {budget} limits them to half of the available "
    "memory. This makes nothing faster, so no trial can prove it."
)


def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the options that limit tf.data to the available cores and memory, or why they are not set."""
    output = context.pipeline.output
    edits, memory = core_limits(context), _memory_budget(context)
    if not edits:
        if _overestimates_cores(context):
            why = "The script itself sets the cores of AUTOTUNE and of tf.data's thread pool."
            yield NoProposal(NAME, output.id, why)
        for budget in memory:
            yield NoProposal(NAME, output.id, _UNPROVABLE.format(budget=f"options.{budget.name} = {budget.value}"))
        return
    yield Rewrite(
        rule=NAME,
        node=output.id,
        safety=Safety.EXACT,
        edits=(*edits, *memory),
        summary=(
            f"Limit tf.data to {format_cores(context)}, as available to the container; TensorFlow detects "
            f"{context.detected_cores}."
        ),
        group=f"{NAME}@{output.id}",
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


def _memory_budget(context: RuleContext) -> tuple[SetOption, ...]:
    """Returns the buffer budget that is added to this rule's own rewrite; rewrites of other rules do not need it."""
    if context.buffer_budget_bytes is None or context.pipeline.options.get(MEMORY_BUDGET) is not None:
        return ()
    return (SetOption(MEMORY_BUDGET, context.buffer_budget_bytes),)


def limit_to_cores(rewrite: Rewrite, context: RuleContext) -> Rewrite:
    """Returns `rewrite` with the limits added if it leaves a value to AUTOTUNE: trials use only the available cores."""
    edits = core_limits(context)
    if not edits or not _leaves_to_autotune(rewrite) or rewrite.rule == NAME:
        return rewrite
    note = f"AUTOTUNE is limited to {format_cores(context)}, as available to the container."
    return replace(rewrite, edits=(*rewrite.edits, *edits), notes=(*rewrite.notes, note))


def _overestimates_cores(context: RuleContext) -> bool:
    return context.detected_cores is not None and context.detected_cores > context.cores


def _leaves_to_autotune(rewrite: Rewrite) -> bool:
    for edit in rewrite.edits:
        match edit:
            case SetArgument(name="num_parallel_calls" | "num_parallel_reads", value=value) if value == AUTOTUNE:
                return True
            case Insert(arguments=arguments) if arguments.get("num_parallel_calls") == AUTOTUNE:
                return True
    return False


def format_cores(context: RuleContext) -> str:
    """Returns the number of available cores in words: "2 cores"."""
    return "1 core" if context.cores == 1 else f"{context.cores} cores"


RULE = Rule(
    name=NAME,
    summary="Limits AUTOTUNE and tf.data's threads to the cores that are available to the container.",
    legality=(
        "Only if TensorFlow detects more cores than are available: it reads the affinity mask but no CFS "
        "quota. Never if the script itself sets `options.autotune.cpu_budget` and "
        "`options.threading.private_threadpool_size`. The same options are added to every rewrite that leaves "
        "a number of parallel calls to AUTOTUNE. If TensorFlow also assumes more memory than is available, "
        "`options.autotune.ram_budget` is added to the rule's own rewrite."
    ),
    safety="EXACT: it changes threads and budgets, not values; the order is that of the original pipeline.",
    propose=propose,
)
