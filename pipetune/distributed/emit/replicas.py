"""The module for strategies that keep replicas in step: every input pipeline reads a part, in batches of a replica."""

from __future__ import annotations

from pipetune.core.distribution import Definition, StandaloneParts
from pipetune.distributed.emit import fill, header
from pipetune.distributed.emit.body import Body
from pipetune.distributed.emit.index import IndexedForm, indexed_form
from pipetune.distributed.emit.kind import Known, Standalone
from pipetune.distributed.emit.module import (
    check_references,
    function_of,
    has_parameter,
    module_text,
    with_file_sources,
)
from pipetune.distributed.emit.sharding import BATCHES, sharding
from pipetune.distributed.emit.wording import Wording


def emit_for_replicas(
    parts: StandaloneParts,
    known: Known,
    *,
    strategy: str,
    remark: str,
    notes: tuple[str, ...] = (),
    offered: tuple[Definition, ...] = (),
    fixed_shapes: bool = False,
) -> Standalone:
    """The module.

    Args:
        strategy: how the strategy is made, as code.
        remark: a sentence on where else the function serves, or what it needs.
        notes: what differs from the pipeline on one machine, besides what the division changes.
        offered: functions that nothing in the module calls.
        fixed_shapes: no batch may have fewer rows than others.

    Raises:
        CannotExpress: the pipeline has no faithful form; the message says why.
    """
    parameter = has_parameter(parts)
    parts = with_file_sources(parts)
    check_references(parts)
    where = sharding(parts.pipeline, parts.sources)
    fills = not known.no_fill and fill.can_fill(parts, where)
    wording = Wording(fills=True, closing=fill.CLOSING) if fills else Wording()
    body = Body(parts, where, wording)
    indexed = _indexed(parts, known, fills=fills, fixed_shapes=fixed_shapes)
    notes = (*header.notes(parts, where), *body.notes, *notes, *indexed.notes)
    if known.no_fill:
        notes += (f"last batches have no form that fills them: {known.no_fill}",)
    given = f"{', source' if parameter else ''}{', fill=False' if fills else ''}"
    function = "functools.partial(dataset_fn, source=...)" if parameter else "dataset_fn"
    text = module_text(
        parts,
        docstring=header.docstring(
            f"The tuned input pipeline of {known.script}, for training on several workers or devices.",
            usage=(
                f"strategy = {strategy}",
                f"dataset = strategy.distribute_datasets_from_function({function})",
            ),
            paragraphs=(
                f"{remark} Every worker calls dataset_fn with its own InputContext and reads its own part of the "
                "data. The folder of the training script has to be on the path where an import below needs it.",
                *(fill.PARAGRAPHS if fills else ()),
                *indexed.paragraphs,
                *header.what_source_is(parameter),
            ),
            notes=notes,
            checked=known.checked,
        ),
        constants=body.constants,
        own=[
            function_of(
                f"dataset_fn(input_context{', *' if given else ''}{given})",
                docstring="The part of the data that one input pipeline reads, in batches for one replica.",
                body=body.lines,
            ),
            *([fill.DEFINITION] if fills else []),
            *offered,
            *indexed.functions(
                f"indexed_dataset_fn(input_context{', *, source' if parameter else ''})",
                docstring="One pass over the same part, each element behind its index.",
            ),
        ],
    )
    return Standalone(text, notes, where.by, body.batch_size, indexed=bool(indexed.lines), fills=fills)


def _indexed(parts: StandaloneParts, known: Known, *, fills: bool, fixed_shapes: bool) -> IndexedForm:
    why_not = known.no_index
    if fixed_shapes and not fills and any(node.op in BATCHES for node in parts.pipeline):
        why_not = why_not or "its last batch would be partial"
    closing = fill.INDEXED_CLOSING if fixed_shapes and fills else ()
    return indexed_form(parts, Wording(), why_not=why_not, closing=closing)
