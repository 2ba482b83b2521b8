"""`prefetch` and `prefetch-to-device`: buffers that are filled in the background, on the host or on the accelerator."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Edit, Insert, Move, NoProposal, Rewrite, Safety, SetArgument
from pipetune.core.operators import operator_facts
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rewrites.pricing import buffer_bytes, seconds_per_output
from pipetune.rewrites.rule import Rule, RuleContext, describe_training_state, last_active_operator, runs_python

PREFETCH = "prefetch"

_SIZES = (AUTOTUNE, 1, 2, 4)
_STAGE_SIZES = (AUTOTUNE, 2)

_HARMLESS_EFFECTS = frozenset({"Print", "PrintV2", "StringFormat", "Timestamp"})
"""Side effects that may happen a few elements early without changing the data that anyone reads."""


def propose_prefetch(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields buffer sizes for a prefetch at the end, and places for one within a slow segment."""
    output = context.pipeline.output
    if why := read_ahead_obstacle((*context.pipeline.upstream(output.id), output)):
        yield NoProposal(PREFETCH, output.id, f"No prefetch: {why}.")
        return
    last = last_active_operator(context.pipeline)
    for size in _sizes(context):
        held = _elements(size)
        if last.op != "prefetch":
            yield _insertion(context, output, size, f"Prefetch {held} while training works on the current one.")
        elif size != last.argument("buffer_size"):
            edit, size_bytes = SetArgument(last.id, "buffer_size", size), buffer_bytes(context, last.inputs[0], size)
            summary = f"Let the last prefetch hold {held}."
            yield _rewrite(context, last.id, (edit,), summary=summary, held=size_bytes)
    inside = [node for node in context.pipeline if node.op == "prefetch" and _on_main_path(node, context)]
    if inside and last.op != "prefetch":
        yield from _move_last(inside[-1], context)
    yield from _between_stages(context)


def read_ahead_obstacle(nodes: tuple[Node, ...]) -> str:
    """Returns why `nodes` must not run ahead of training; "" if they may."""
    for node in nodes:
        if state := describe_training_state(node):
            return f"the function of {node.title} {state}; prefetching would change the data"
        effects = node.function.side_effects if node.function else ()
        if outside := [effect for effect in effects if effect not in _HARMLESS_EFFECTS]:
            return f"the function of {node.title} has a side effect ({outside[0]}) that would happen early"
    return ""


def _sizes(context: RuleContext) -> tuple[int, ...]:
    """Returns buffer sizes for the end of the pipeline; for an input in bursts one that bridges a pause.

    AUTOTUNE bridges it, too, but only after more pauses than windows have.
    """
    bridging = context.profile.bridging_buffer if context.profile is not None else None
    return _SIZES if bridging is None else (bridging, *(size for size in _SIZES if size not in (AUTOTUNE, bridging)))


def _on_main_path(node: Node, context: RuleContext) -> bool:
    """Whether everything downstream of `node` is one chain to the output."""
    below = context.pipeline.downstream(node.id)
    return all(len(other.inputs) == 1 for other in below) and len(context.pipeline.consumers(node.id)) == 1


def _move_last(node: Node, context: RuleContext) -> Iterator[Rewrite]:
    output = context.pipeline.output
    counts_batches = any(operator_facts(other.op).batches for other in context.pipeline.downstream(node.id))
    written = node.argument("buffer_size")
    sizes = (AUTOTUNE, 2) if counts_batches or not isinstance(written, int) else (written,)
    for size in sizes:
        edits: list[Edit] = [Move(node.id, output.id)]
        edits += [SetArgument(node.id, "buffer_size", size)] if size != written else []
        summary = f"Move the prefetch to the end, where it holds {_elements(size)} ready for training."
        held = buffer_bytes(context, output.id, size)
        yield _rewrite(context, output.id, tuple(edits), summary=summary, held=held)


def _between_stages(context: RuleContext) -> Iterator[Rewrite]:
    diagnosis = context.diagnosis
    slowest = next(iter(diagnosis.sequential_segments), ()) if diagnosis is not None else ()
    if diagnosis is None or diagnosis.bottleneck not in slowest:
        return
    anchor = _balanced_split(slowest, context)
    if anchor is None:
        return
    for size in _STAGE_SIZES:
        summary = f"Run everything up to {anchor.title} in parallel with the rest, {_elements(size)} ahead."
        yield _insertion(context, anchor, size, summary)


def _balanced_split(segment: tuple[str, ...], context: RuleContext) -> Node | None:
    """Returns the operator after which a prefetch splits the segment's time most evenly; None if none would help."""
    nodes = [node for node in context.pipeline if node.id in segment]
    costs = [_cost(node, context) for node in nodes]
    known = [cost for cost in costs if cost is not None]
    if len(nodes) < 2 or len(known) < len(nodes):
        return None
    total = sum(known)
    cuts = [
        (max(sum(known[: index + 1]), total - sum(known[: index + 1])), node)
        for index, node in enumerate(nodes[:-1])
        if nodes[index + 1].inputs == (node.id,)
    ]
    if not cuts or total <= 0:
        return None
    longest, node = min(cuts, key=lambda cut: cut[0])
    return node if longest < 0.9 * total else None  # a prefetch has a cost: it must gain a tenth


def _cost(node: Node, context: RuleContext) -> float | None:
    """Returns the seconds of `node` per output element; 0 for an unmeasured operator that passes elements through."""
    seconds = seconds_per_output(context, node.id)
    return 0.0 if seconds is None and operator_facts(node.op).same_elements else seconds


def _insertion(context: RuleContext, node: Node, size: int, summary: str) -> Rewrite:
    edit = Insert(node.id, "prefetch", f"prefetch@{node.id}", {"buffer_size": size})
    return _rewrite(context, node.id, (edit,), summary=summary, held=buffer_bytes(context, node.id, size))


def _rewrite(context: RuleContext, node_id: str, edits: tuple[Edit, ...], *, summary: str, held: float) -> Rewrite:
    python = any(runs_python(node) for node in (*context.pipeline.upstream(node_id), context.pipeline[node_id]))
    note = "Python code of the pipeline runs ahead of training: it must not read state that training changes."
    return Rewrite(
        rule=PREFETCH,
        node=node_id,
        safety=Safety.EXACT,
        edits=edits,
        summary=summary,
        group=f"{PREFETCH}@{node_id}",
        notes=(note,) if python else (),
        predicted_bytes=held,
    )


def _elements(size: int) -> str:
    if size == AUTOTUNE:
        return "as many elements as AUTOTUNE finds useful"
    return "1 element" if size == 1 else f"{size} elements"


PREFETCH_RULE = Rule(
    name=PREFETCH,
    summary="Adds a prefetch at the end, resizes it, moves it there, or splits a slow stage in two.",
    legality=(
        "Allowed unless an upstream function reads a variable that training may change, writes a variable, uses a "
        "table that training may write, has outside effects (files, summaries), or nothing is known about it: elements "
        "computed ahead of time would then differ. Between stages only if, according to the model, a sequential "
        "segment limits the rate; the prefetch goes where it splits the time of the segment most evenly."
    ),
    safety=(
        "EXACT: the same elements in the same order, computed earlier. It costs the memory of its buffer. STATISTICAL, "
        "with --allow python-parallel, where Python code on both sides of it would then run at the same time."
    ),
    propose=propose_prefetch,
    order=-1,  # "at the end" means after what later rules insert there (a cache) or move away (a repeat)
)


PREFETCH_TO_DEVICE = "prefetch-to-device"

COPY = "copy_to_device"

_BUFFERS = (1, 2)  # elements held on the device: its memory is scarce, and one is enough to hide the copy


def propose_prefetch_to_device(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields buffer sizes for a copy to the accelerator ahead of the step, or why it must not be made."""
    if context.device == "cpu":
        return  # there is nowhere to copy to
    output = context.pipeline.output
    if why := _forbidden(context):
        yield NoProposal(PREFETCH_TO_DEVICE, output.id, f"Elements are not copied to the device ahead of time: {why}.")
        return
    copy = Insert(output.id, COPY, f"{COPY}@{output.id}", {"target_device": f"/{context.device.upper()}:0"})
    for size in _BUFFERS:
        buffer = Insert(copy.id, "prefetch", f"prefetch@{copy.id}", {"buffer_size": size})
        held = _elements(size)
        yield Rewrite(
            rule=PREFETCH_TO_DEVICE,
            node=output.id,
            safety=Safety.EXACT,
            edits=(copy, buffer),
            summary=f"Copy elements to the device while it computes, {held} ahead.",
            group=f"{PREFETCH_TO_DEVICE}@{output.id}",
            notes=(f"Takes device memory for {held}.",),
            only_training=True,
        )


def _forbidden(context: RuleContext) -> str:
    pipeline, output = context.pipeline, context.pipeline.output
    if context.device != "gpu":
        return f"a {context.device.upper()} receives its input through its distribution strategy"
    if any(node.op == COPY for node in pipeline):
        return "the script copies them itself"
    if not context.custom_training_loop:
        return "the copy must be the last operator, and Keras or a strategy appends operators of its own to the dataset"
    if output.element_spec.has_dtype("tf.string"):
        return "strings stay in host memory"
    if not output.element_spec.is_dense:
        return "elements are not plain tensors"
    return read_ahead_obstacle((*pipeline.upstream(output.id), output))


PREFETCH_TO_DEVICE_RULE = Rule(
    name=PREFETCH_TO_DEVICE,
    summary="Copies elements to the accelerator ahead of training: copy_to_device, then a small prefetch there.",
    legality=(
        "Only if the target is a GPU and the script iterates over the dataset itself: the copy must be the "
        "last operator, and `fit` or a distribution strategy appends operators of its own. Not for strings, "
        "ragged or sparse elements, not if the script already does it, and not if prefetching would change the "
        "data (see prefetch). The gain shows only in the training step and is measured there."
    ),
    safety="EXACT: the same bytes on the device. It costs device memory for the elements it holds.",
    propose=propose_prefetch_to_device,
    order=-2,  # what later rules append, mainly a prefetch on the host, is then placed before the copy
)
