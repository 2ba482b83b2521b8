"""The module for strategies that keep replicas in step: every input pipeline reads a part, in batches of a replica."""

from __future__ import annotations

from pipetune.core.standalone import StandaloneParts
from pipetune.source import standalone_header as header
from pipetune.source.standalone_body import Body
from pipetune.source.standalone_kind import Known, Standalone
from pipetune.source.standalone_module import (
    check_references,
    function_of,
    has_parameter,
    module_text,
    with_file_sources,
)
from pipetune.source.standalone_sharding import sharding
from pipetune.source.standalone_wording import Wording


def emit_for_replicas(
    parts: StandaloneParts, known: Known, *, strategy: str, told: str, notes: tuple[str, ...] = ()
) -> Standalone:
    """The module.

    Args:
        strategy: how the strategy is made, as code.
        told: a sentence on where else the function serves, or what it needs.
        notes: what differs from the pipeline on one machine, besides what the division changes.

    Raises:
        CannotExpress: the pipeline has no faithful form; the message says why.
    """
    parameter = has_parameter(parts)
    parts = with_file_sources(parts)
    check_references(parts)
    where = sharding(parts.pipeline, parts.sources)
    body = Body(parts, where, Wording())
    notes = (*header.notes(parts, where), *body.notes, *notes)
    function = "functools.partial(dataset_fn, source=...)" if parameter else "dataset_fn"
    text = module_text(
        parts,
        docstring=header.docstring(
            f"The tuned input pipeline of {known.script}, for training on several workers or devices.",
            usage=(
                f"strategy = {strategy}",
                f"dataset = strategy.distribute_datasets_from_function({function})",
            ),
            told=(
                f"{told} Every worker calls dataset_fn with its own InputContext and reads its own part of the data. "
                "The folder of the training script has to be on the path where an import below needs it.",
                *header.what_source_is(parameter),
            ),
            notes=notes,
            checked=known.checked,
        ),
        constants=body.constants,
        own=[
            function_of(
                f"dataset_fn(input_context{', *, source' if parameter else ''})",
                told="The part of the data that one input pipeline reads, in batches for one replica.",
                body=body.lines,
            )
        ],
    )
    return Standalone(text, notes, where.by, body.batch_size)
