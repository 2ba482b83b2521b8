"""`prefetch`: add or resize buffers that are filled in the background, at the end and between stages."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import Edit, Insert, Move, Rewrite, Safety, SetArgument, Silence
from pipetune.core.operators import facts
from pipetune.core.pipeline import AUTOTUNE, Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import last_working, runs_python, trained_state
from pipetune.rules.pricing import buffer_bytes, seconds_per_output

NAME = "prefetch"

_SIZES = (AUTOTUNE, 1, 2, 4)
_STAGE_SIZES = (AUTOTUNE, 2)

_HARMLESS_EFFECTS = frozenset({"Print", "PrintV2", "StringFormat", "Timestamp"})
"""Side effects that may happen a few elements early without changing the data that anyone reads."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    output = context.pipeline.output
    why = forbidden_ahead((*context.pipeline.upstream(output.id), output), context)
    if why:
        yield Silence(NAME, output.id, f"No prefetch: {why}.")
        return
    last = last_working(context.pipeline)
    if last.op == "prefetch":
        yield from _resize(last, context)
    else:
        yield from _at_the_end(context)
    yield from _between_stages(context)


def forbidden_ahead(nodes: tuple[Node, ...], context: RuleContext) -> str:
    """Returns why `nodes` must not run ahead of training; "" if they may."""
    for node in nodes:
        state = trained_state(node, context)
        if state:
            return f"the function of {node.title} {state}; running ahead would give other data"
        effects = node.function.side_effects if node.function else ()
        outside = [effect for effect in effects if effect not in _HARMLESS_EFFECTS]
        if outside:
            return f"the function of {node.title} has a side effect ({outside[0]}) that would happen early"
    return ""


def _resize(node: Node, context: RuleContext) -> Iterator[Rewrite]:
    for size in _SIZES:
        if size != node.argument("buffer_size"):
            yield _rewrite(
                context,
                node.id,
                (SetArgument(node.id, "buffer_size", size),),
                summary=f"Let the last prefetch hold {_elements(size)}.",
                size=size,
                measured_at=node.inputs[0],
            )


def _at_the_end(context: RuleContext) -> Iterator[Rewrite]:
    output = context.pipeline.output
    for size in _SIZES:
        edit = Insert(output.id, "prefetch", f"prefetch@{output.id}", {"buffer_size": size})
        yield _rewrite(
            context,
            output.id,
            (edit,),
            summary=f"Prepare {_elements(size)} ahead while training works on the last one.",
            size=size,
            measured_at=output.id,
        )
    inside = [node for node in context.pipeline if node.op == "prefetch" and _on_main_path(node, context)]
    if inside:
        yield from _move_last(inside[-1], context)


def _on_main_path(node: Node, context: RuleContext) -> bool:
    """Whether everything downstream of `node` is one chain to the output."""
    below = context.pipeline.downstream(node.id)
    return all(len(other.inputs) == 1 for other in below) and len(context.pipeline.consumers(node.id)) == 1


def _move_last(node: Node, context: RuleContext) -> Iterator[Rewrite]:
    output = context.pipeline.output
    counts_batches = any(facts(other.op).batches for other in context.pipeline.downstream(node.id))
    written = node.argument("buffer_size")
    sizes = (AUTOTUNE, 2) if counts_batches or not isinstance(written, int) else (written,)
    for size in sizes:
        edits: list[Edit] = [Move(node.id, output.id)]
        if size != written:
            edits.append(SetArgument(node.id, "buffer_size", size))
        yield _rewrite(
            context,
            output.id,
            tuple(edits),
            summary=f"Move the prefetch to the end, where it holds {_elements(size)} of what training reads.",
            size=size,
            measured_at=output.id,
        )


def _between_stages(context: RuleContext) -> Iterator[Rewrite]:
    diagnosis = context.diagnosis
    if diagnosis is None or not diagnosis.sequential_segments:
        return
    slowest = diagnosis.sequential_segments[0]
    if diagnosis.bottleneck not in slowest:
        return
    anchor = _even_cut(slowest, context)
    if anchor is None:
        return
    for size in _STAGE_SIZES:
        edit = Insert(anchor.id, "prefetch", f"prefetch@{anchor.id}", {"buffer_size": size})
        yield _rewrite(
            context,
            anchor.id,
            (edit,),
            summary=f"Let everything up to {anchor.title} run beside the rest, {_elements(size)} ahead.",
            size=size,
            measured_at=anchor.id,
        )


def _even_cut(segment: tuple[str, ...], context: RuleContext) -> Node | None:
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
        if _chained(node, nodes[index + 1])
    ]
    if not cuts or total <= 0:
        return None
    longest, node = min(cuts, key=lambda cut: cut[0])
    return node if longest < 0.9 * total else None  # a prefetch has a cost: it must gain a tenth


def _cost(node: Node, context: RuleContext) -> float | None:
    """Returns the seconds of `node` per output element; 0 for an unmeasured operator that passes elements through."""
    seconds = seconds_per_output(context, node.id)
    return 0.0 if seconds is None and facts(node.op).same_elements else seconds


def _chained(above: Node, below: Node) -> bool:
    return below.inputs == (above.id,)


def _rewrite(
    context: RuleContext, node_id: str, edits: tuple[Edit, ...], *, summary: str, size: int, measured_at: str
) -> Rewrite:
    python = any(
        runs_python(node) for node in (*context.pipeline.upstream(node_id), context.pipeline[node_id])
    )
    note = "Python code of the pipeline runs ahead of training: it must not read what training changes."
    return Rewrite(
        rule=NAME,
        node=node_id,
        safety=Safety.EXACT,
        edits=edits,
        summary=summary,
        group=f"{NAME}@{node_id}",
        notes=(note,) if python else (),
        predicted_bytes=buffer_bytes(context, measured_at, size),
    )


def _elements(size: int) -> str:
    if size == AUTOTUNE:
        return "as many elements as AUTOTUNE finds useful"
    return "1 element" if size == 1 else f"{size} elements"


RULE = Rule(
    name=NAME,
    summary="Puts a prefetch at the end, sizes it, moves it there, or splits a slow stage in two.",
    legality=(
        "Allowed unless a function above it reads a variable that training may change, writes a variable, "
        "uses a table that training may write, writes outside (files, summaries), or nothing is known about "
        "it: elements made ahead would then differ. Between stages only where the model finds that a "
        "sequential segment binds the rate, at the place that splits its time most evenly."
    ),
    safety="EXACT: the same elements in the same order, made earlier. It costs the memory of its buffer.",
    propose=propose,
    turn=-1,  # "at the end" means after what later rules insert there (a cache) or move away (a repeat)
)
