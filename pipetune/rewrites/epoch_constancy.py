"""Whether the elements at a place are the same, in the same order, in every epoch: the precondition of a cache; and
whether a pipeline yields the same in each run."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from os.path import basename

from pipetune.core.edits import Plan
from pipetune.core.operators import (
    FLATTENING,
    CountEffect,
    EpochEffect,
    OrderEffect,
    operator_facts,
    settled_operators,
    treats_elements_alike,
)
from pipetune.core.pipeline import INFINITE, UNKNOWN, Node, Pipeline, passes_components
from pipetune.core.session import Reproducibility
from pipetune.rewrites.pricing import element_count
from pipetune.rewrites.rule import (
    POSITIONAL,
    RuleContext,
    describe_state,
    draws_random_numbers,
    inner_operator_facts,
    is_order_required,
    is_unknown,
    keeps_order,
    requests_parallelism,
    runs_python,
)


class Constancy(enum.IntEnum):
    """How much of the data repeats in every epoch, from everything to nothing."""

    SAME = 0
    SAME_ELEMENTS = 1  # in a different order each epoch
    DIFFERENT = 2


@dataclass(frozen=True)
class ConstancyResult:
    """The constancy at one place, and the operator that decides it."""

    constancy: Constancy
    node: str = ""
    why: str = ""


def constancy_after(
    context: RuleContext, node_id: str, *, read_to_end: bool = True, is_ended: bool = False
) -> ConstancyResult:
    """Returns how much of the output of `node_id` repeats in every epoch; a cache makes all upstream of it constant.

    Args:
        context: provides the pipeline.
        node_id: the operator whose output is judged.
        read_to_end: whether its output is read to the end in every epoch; if not, a cache upstream is never complete.
        is_ended: whether a `zip` downstream ends what repeats endlessly, always after as many elements.
    """
    node = context.pipeline[node_id]
    own = own_constancy(node, context, is_ended=is_ended)
    if (node.op == "cache" and read_to_end) or own.constancy is Constancy.DIFFERENT:
        return own
    read_to_end = read_to_end and operator_facts(node.op).reads_all
    is_ended = is_ended or (node.op == "zip" and node.cardinality >= 0)
    above = max(
        (constancy_after(context, name, read_to_end=read_to_end, is_ended=is_ended) for name in node.inputs),
        key=lambda finding: finding.constancy,
        default=own,
    )
    if above.constancy is Constancy.SAME_ELEMENTS and (why := _position_dependence(node)):
        return ConstancyResult(Constancy.DIFFERENT, node.id, why)
    return max((own, above), key=lambda finding: finding.constancy)


def stops_early(context: RuleContext, node: Node, reader: Node) -> bool:
    """Whether an operator downstream of `node` may stop before the end of what `node` yields in one pass.

    A cache after `node` may then never be complete. `take`, and a `zip` with other datasets, read all where they read
    more than one pass, which a `repeat` or the buffer of a shuffle upstream of them may offer. So does a `zip` whose
    inputs have the same number of elements: it asks each of them once more even if another one has just ended. What
    chooses among sources goes on with one that repeats endlessly for as long as it is read, and reads all of them to
    their ends if it only ends with the last, as `sample_from_datasets` does unless told otherwise. What several inputs
    read is complete once one of them has read it to its end, as in `rejection_resample`.
    """
    if _reads_all(reader):
        return False
    pipeline = context.pipeline
    path = {node.id, *(below.id for below in pipeline.downstream(node.id))}
    joined = [name for name in reader.inputs if name in path]
    others = [name for name in reader.inputs if name not in path]
    if reader.op == "take":
        count = reader.argument("count")
        limits = [count if isinstance(count, int) else UNKNOWN]
    elif reader.op == "zip":
        if all(_have_as_many(context, name, joined[0]) for name in joined[1:] + others):
            return False
        if len(joined) > 1 and _outlasts(pipeline, node, reader.id):
            return False
        limits = [pipeline[name].cardinality for name in others]
    elif reader.op == "choose":
        selector, skips_ended = reader.inputs[0], not reader.argument("stop_on_empty_dataset")
        if skips_ended and selector in others and pipeline[selector].cardinality == INFINITE:
            return False
        if len(joined) > 1:
            return not _outlasts(pipeline, node, reader.id)
        return not repeats_endlessly(pipeline, node, joined[0], path=path)
    else:
        return True
    if len(joined) != 1 or UNKNOWN in limits:
        return True
    finite = [limit for limit in limits if limit != INFINITE and limit < _NO_LIMIT]
    return bool(finite) and not _reads_a_pass(context, node, joined[0], path=path, elements=min(finite))


def _reads_all(node: Node) -> bool:
    """Whether an operator reads its inputs to their end whenever it is; a `scan` does if its function cannot end it."""
    if node.op != "scan":
        return operator_facts(node.op).reads_all
    return node.function is not None and node.function.stateless and not node.function.can_raise


def _outlasts(pipeline: Pipeline, node: Node, name: str) -> bool:
    """Whether operator `name` ends only once `node` was read to its end, or never."""
    if name == node.id or pipeline[name].cardinality == INFINITE:
        return True
    last = pipeline[name]
    lasting = [_outlasts(pipeline, node, above) for above in last.inputs]
    if last.op == "choose" and not last.argument("stop_on_empty_dataset"):
        return lasting[0] and any(lasting[1:])  # it goes on with the others
    if last.op in ("choose", "zip"):
        return all(lasting)
    return _reads_all(last) and any(lasting)


_NO_LIMIT = 2**62
"""More elements than are ever read: the numbers of `enumerate` go on to 2**63."""


def ends_early(context: RuleContext, node: Node) -> bool:
    """Whether the loop that reads the data may begin anew before it has read what `node` yields in one pass."""
    if context.elements_read is None:
        return False
    path = {node.id, *(below.id for below in context.pipeline.downstream(node.id))}
    output = context.pipeline.output.id
    return not _reads_a_pass(context, node, output, path=path, elements=context.elements_read)


def _reads_a_pass(context: RuleContext, node: Node, name: str, *, path: Collection[str], elements: int) -> bool:
    """Whether who reads that many elements of operator `name` surely reads all that `node` yields in one pass.

    `path` has the ids of `node` and of all that is downstream of it, as `name` is, if it is not `node` itself.
    """
    pipeline = context.pipeline

    def has_fewer(name: str) -> bool:
        one_pass = element_count(context, name)
        return one_pass is not None and 0 <= one_pass < elements

    while name != node.id:
        above, facts = pipeline[name], operator_facts(pipeline[name].op)
        read = _input_on(path, above)  # a zip reads as many of each of its inputs
        if read is None:
            return False
        if above.op == "repeat":
            if has_fewer(read):
                return True
            name = read  # all that is read may be of its first pass
            continue
        size = above.argument("buffer_size" if above.op == "shuffle" else "batch_size")
        if above.op == "choose":
            elements = int(_CHOSEN * elements * _share_of(context, read, of=name))
        elif above.op != "zip" and facts.count not in (CountEffect.ONE_TO_ONE, CountEffect.FEWER):
            return False
        if above.op == "shuffle" and isinstance(size, int):
            elements += size - 1  # it fills its buffer in front of the first
        elif facts.batches:
            elements *= size if isinstance(size, int) else 0
        name = read
    return has_fewer(node.id)


_CHOSEN = 0.5
"""By judgement: a source that is chosen at random is chosen at least half as often as when it was measured."""


def _share_of(context: RuleContext, name: str, *, of: str) -> float:
    """Returns how many elements of operator `name` are read for one of the operator `of`; 0 if that is not known."""
    here, there = context.measured(name), context.measured(of)
    return (here.visits or 0.0) / there.visits if here is not None and there is not None and there.visits else 0.0


def repeats_endlessly(pipeline: Pipeline, node: Node, name: str, *, path: Collection[str]) -> bool:
    """Whether operator `name`, downstream of `node`, repeats endlessly what `node` yields in one pass."""
    while name != node.id:
        above = pipeline[name]
        if above.op == "repeat" and above.argument("count") in (None, INFINITE):
            return True
        read = _input_on(path, above)
        if read is None or not operator_facts(above.op).reads_all:
            return False
        name = read
    return False


def _input_on(path: Collection[str], node: Node) -> str | None:
    """Returns the one input of an operator that is on a path; None if several are, or none."""
    found = [name for name in node.inputs if name in path]
    return found[0] if len(found) == 1 else None


def _have_as_many(context: RuleContext, name: str, other: str) -> bool:
    """Whether two operators surely yield the same finite number of elements, whether or not TensorFlow knows it."""
    pipeline, counted = context.pipeline, (context.profile.cardinality or {}) if context.profile is not None else {}
    if INFINITE in (pipeline[name].cardinality, pipeline[other].cardinality):
        return False
    one, two = _counted_at(pipeline, name), _counted_at(pipeline, other)
    elements = counted.get(one.id, one.cardinality)
    return one.id == two.id or elements == counted.get(two.id, two.cardinality) >= 0


def _counted_at(pipeline: Pipeline, name: str) -> Node:
    """Returns the operator furthest upstream that surely yields as many elements as operator `name`."""
    while len(pipeline[name].inputs) == 1 and operator_facts(pipeline[name].op).count is CountEffect.ONE_TO_ONE:
        (name,) = pipeline[name].inputs
    return pipeline[name]


def own_constancy(node: Node, context: RuleContext, *, is_ended: bool = False) -> ConstancyResult:
    """Returns the constancy of `node` alone, without its inputs; `is_ended` as in `constancy_after`."""
    unread = operator_facts(node.op).takes_function and node.function is None
    endless = node.op == "repeat" and node.argument("count") in (None, INFINITE)
    draws = node.op != "shuffle" and draws_random_numbers(node, python_repeats=context.python_repeats)
    for differs, why in (
        (is_unknown(node), "it is unknown what this operator does"),
        (unread, "nothing is known about its function"),
        (
            bool(context.rewritten_file) and not node.inputs,
            f"the script writes the file {basename(context.rewritten_file)} again while it trains",
        ),
        (runs_python(node) and not context.python_repeats, "it runs Python, which may return something else each time"),
        (draws, "it draws random numbers"),
        (bool(describe_state(node)), f"its function {describe_state(node)}"),
        (endless and not is_ended, "it repeats endlessly: the cache would never be complete"),
        (
            node.op == "repeat" and not endless and not passes_components(node),
            "it repeats: the cache would hold every epoch again",
        ),
        (node.op == "snapshot", "it already stores its elements"),
        (
            may_batch_unequal_batches(node, context),
            "it rejects a shorter last batch, and from the second epoch on would not",
        ),
    ):
        if differs:
            return ConstancyResult(Constancy.DIFFERENT, node.id, why)
    if reshuffles_each_epoch(node):
        return ConstancyResult(Constancy.SAME_ELEMENTS, node.id, "it reshuffles in each epoch")
    if _unordered(node, context):
        why = "`deterministic=False` lets elements overtake each other"
        return ConstancyResult(Constancy.SAME_ELEMENTS, node.id, why)
    return ConstancyResult(Constancy.SAME, node.id)


def may_batch_unequal_batches(node: Node, context: RuleContext) -> bool:
    """Whether `node` may batch batches of which the last one is shorter, which TensorFlow refuses."""
    if node.op != "batch" or context.pipeline[node.inputs[0]].element_spec.has_fixed_shapes:
        return False
    for above in reversed(context.pipeline.upstream(node.id)):
        if above.op in FLATTENING:
            return above.element_spec.has_unknown_sizes and any("Batch" in kernel for kernel in above.inner)
        if above.op == "unbatch":
            return False
        if operator_facts(above.op).batches:
            size, rows = above.argument("batch_size"), context.pipeline[above.inputs[0]].cardinality
            whole = rows >= 0 and isinstance(size, int) and size > 0 and rows % size == 0
            return not above.argument("drop_remainder") and not whole
    return False


def _position_dependence(node: Node) -> str:
    """Returns why `node` outputs other elements if the order of its input changes; "" if it does not."""
    if node.op in POSITIONAL or node.op == "group_by_window":  # which may drop what does not fill a window
        return "its output depends on the order of its input, which differs in each epoch"
    if operator_facts(node.op).batches and node.argument("drop_remainder"):
        return "in another order, it drops different elements at the end of each epoch"
    return ""


def variation_lost_in_fixed_order(node: Node) -> str:
    """Returns what `node` varies between epochs and would repeat if its input had a fixed order; "" if nothing."""
    if operator_facts(node.op).batches and node.argument("drop_remainder"):
        return "each epoch leaves other elements out of its last batch; in the order of the first, always the same ones"
    if _position_dependence(node):
        return "it selects or joins others in each epoch, by position; in the order of the first, always the same ones"
    if draws_random_numbers(node) and node.op != "shuffle" and node.function is not None and node.function.seeded:
        return "its draws repeat in each epoch, and would meet the same elements with the order of the first epoch"
    return ""


def losing_variation(context: RuleContext, node: Node) -> Iterator[tuple[Node, str]]:
    """Yields the operators downstream that would vary less between epochs if `node` had a fixed order, and why."""
    pipeline, unchanged = context.pipeline, set[str]()
    below = pipeline.downstream(node.id)
    path = {node.id, *(reader.id for reader in below)}
    for reader in below:
        if shuffles_all(context, reader) or unchanged.issuperset(path.intersection(reader.inputs)):
            unchanged.add(reader.id)  # it varies as before
        elif reader.op in ("batch", "padded_batch") and repeats_endlessly(pipeline, node, reader.id, path=path):
            continue  # nothing is dropped where no epoch ends
        elif why := variation_lost_in_fixed_order(reader):
            yield reader, why


def shuffles_all(context: RuleContext, node: Node) -> bool:
    """Whether a shuffle gives each epoch an order that does not depend on the order of its input.

    Its buffer holds all elements, and has to be filled before the first of them leaves it.
    """
    if node.op != "shuffle" or not reshuffles_each_epoch(node):
        return False
    size, elements = node.argument("buffer_size"), element_count(context, node.inputs[0])
    return isinstance(size, int) and elements is not None and 0 <= elements <= size


def is_order_settled(context: RuleContext, node_id: str) -> bool:
    """Whether it is of no account in which order the operators upstream of a place, and at it, output their elements.

    A shuffle of all elements downstream draws every order anew. Where elements only overtake each other, any shuffle
    suffices: the runtime may choose the same order in every epoch.
    """
    settled = settled_operators(context.pipeline)
    works = (*context.pipeline.upstream(node_id), context.pipeline[node_id])
    return all(
        node.id in settled or (not reshuffles_each_epoch(node) and _is_shuffled(context.pipeline, node))
        for node in works
        if reshuffles_each_epoch(node) or _unordered(node, context)
    )


def _is_shuffled(pipeline: Pipeline, node: Node) -> bool:
    """Whether a shuffle downstream reorders the elements of `node` in each epoch, before any is put beside another."""
    while len(consumers := pipeline.consumers(node.id)) == 1:
        (node,) = consumers
        if node.op == "shuffle" and reshuffles_each_epoch(node):
            return True
        if node.op not in ("filter", "repeat") and not treats_elements_alike(node):
            return False
    return False


def _unordered(node: Node, context: RuleContext) -> bool:
    if node.argument("deterministic") is False or (node.function is not None and node.function.unordered):
        return True
    if node.op == "map" and not is_order_required(context):
        return True  # TensorFlow may run it in parallel by itself
    overlaps = requests_parallelism(node) or node.op in FLATTENING - {"flat_map"}
    overlaps = overlaps or any(kernel.startswith("Parallel") for kernel in node.inner)
    return overlaps and not keeps_order(node, context)


def reshuffles_each_epoch(node: Node) -> bool:
    """Whether the operator reshuffles its elements in each epoch."""
    known = operator_facts(node.op)
    shuffles = known.order is OrderEffect.SHUFFLES and known.epochs is EpochEffect.DIFFERENT
    shuffles = shuffles or any(inner.order is OrderEffect.SHUFFLES for inner in inner_operator_facts(node))
    return shuffles and node.argument("reshuffle_each_iteration") is not False


def order_of(pipeline: Pipeline, plan: Plan) -> Reproducibility:
    """Returns whether element order and random draws repeat from run to run, before and under the plan."""
    reasons = [reason for node in pipeline if (reason := _differs_between_runs(node))]
    before = not reasons
    why = reasons[0] if reasons else ""
    changing = next((rewrite for rewrite in plan.rewrites if not rewrite.reproducible), None)
    if before and changing is not None:
        why = f"{changing.rule} changes which random draw is used for which element"
    return Reproducibility(
        reproducible_before=before,
        reproducible_after=before and changing is None,
        epochs_kept=all(rewrite.epochs_kept for rewrite in plan.rewrites),
        why=why,
    )


def _differs_between_runs(node: Node) -> str:
    """Returns why this operator may yield other elements, draws or order in another run; '' if it does not."""
    function = node.function
    if node.argument("deterministic") is False:
        return f"{node.title} may yield elements out of order (deterministic=False)"
    if node.op == "opaque":
        return f"{node.title} is not known to pipetune"
    if node.runs_python:
        return f"{node.title} runs Python code, which may return something else each time"
    if node.op in ("random", "shuffle") and node.argument("seed") is None:
        return f"{node.op} draws without a seed"
    if function is None or not (function.random or function.random_python):
        return ""
    if function.random_python:
        return f"the function of {node.title} draws from a random generator whose state outlives the pipeline"
    if not function.seeded:
        return f"the function of {node.title} draws without a seed"
    if node.argument("num_parallel_calls") not in (None, 1):
        return f"the random function of {node.title} runs in parallel"
    return ""
