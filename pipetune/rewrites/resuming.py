"""The effect of a rewrite on a resumed job; applied to every candidate, whatever rule proposes it.

A run stops, and another continues in its place: with the same pipeline or, once a patch is applied, with another.
The safety class then depends on what the script stores of its position in the data:

Iterator state (`Checkpoint(iterator=...)`):
- another operator, order or option, or a map or interleave made parallel that TensorFlow runs serially: STATISTICAL. A
  checkpoint names every operator whose state it holds; restored into other operators it raises NotFoundError or, with
  another shuffle buffer, InternalError some elements later. Values alone (parallel calls, the buffer of a prefetch),
  limits of cores and memory, and parallel calls where TensorFlow parallelizes the map anyway: as proposed, because
  the state fits.
- a copy to the device: refused. Its state cannot be saved (`GeneratorDataset` is Unimplemented).
A skip of the completed steps:
- the same elements in the same order upstream of the skip: as proposed.
- operators upstream of the skip that change count or order: REORDERS. It skips other elements than those seen.
- other random draws, or another order elsewhere: as proposed, with a warning.
- a file cache downstream of the skip: refused. A resumed job would read what the earlier run wrote with its own skip.
Ids of examples (`tfds_id`): as proposed. Elements keep their ids, and any order is fine.
The epoch (BackupAndRestore): as proposed. The data starts from the beginning, with any pipeline.
Any of these with a file cache: STATISTICAL. A run that is killed while it fills the file leaves it locked.

Every rewrite whose line above is not just "as proposed" carries a warning. `tests/facts/test_resuming.py` verifies
the lines that depend on TensorFlow (2.21).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import (
    Edit,
    Insert,
    NoProposal,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    apply_edits,
    inserted_caches,
)
from pipetune.core.operators import CountEffect, OrderEffect, operator_facts
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.rewrites.rule import RuleContext, tensorflow_parallelizes
from pipetune.rewrites.threads import CPU_BUDGET, MEMORY_BUDGET, POOL_SIZE


def adapt_to_resuming(rewrite: Rewrite, context: RuleContext) -> Rewrite | NoProposal:
    """Returns the rewrite with the safety class and warnings for a script that resumes, or why it is refused."""
    for one in context.resuming:
        if why := _forbidden(rewrite, one, context):
            return NoProposal(rewrite.rule, rewrite.node, why)
    adapted = rewrite
    for one in context.resuming:
        for safety, warning in _resume_effects(rewrite, one, context):
            if warning not in adapted.notes:
                adapted = replace(adapted, safety=max(adapted.safety, safety), notes=(*adapted.notes, warning))
    return adapted


def _forbidden(rewrite: Rewrite, resuming: ResumePoint, context: RuleContext) -> str:
    inserted = {edit.op for edit in rewrite.edits if isinstance(edit, Insert)}
    if resuming.way is ResumeMethod.ITERATOR_STATE and "copy_to_device" in inserted:
        unsaved = "the state of a copy to the device cannot be saved"
        return f"The script saves the state of its iterator ({resuming.what}); {unsaved}."
    if resuming.way is not ResumeMethod.SKIP or not _writes_a_file(rewrite):
        return ""
    edited = apply_edits(context.pipeline, rewrite.edits)
    below = edited.downstream(resuming.node) if resuming.node in edited else ()
    if any(node.op == "cache" and node.id not in context.pipeline for node in below):
        return (
            f"The script resumes by {resuming.what}: a cache file downstream of it holds the elements that "
            "remained for an earlier run, and a resumed job would read these."
        )
    return ""


def _resume_effects(rewrite: Rewrite, one: ResumePoint, context: RuleContext) -> Iterator[tuple[Safety, str]]:
    """Yields minimum safety classes and warnings; none if a resumed job sees what it saw before."""
    if _writes_a_file(rewrite):
        yield (
            Safety.STATISTICAL,
            f"The script resumes ({one.what}): a run that is stopped before the cache is complete leaves a "
            "locked file, which must be deleted before the next run.",
        )
    match one.way:
        case ResumeMethod.ITERATOR_STATE if not all(_sets_a_number(edit, context) for edit in rewrite.edits):
            yield (
                Safety.STATISTICAL,
                f"The script saves the state of its iterator ({one.what}): a checkpoint saved before this change "
                "cannot be restored after it. Finish runs that are already in progress with the original pipeline.",
            )
        case ResumeMethod.SKIP if _skips_other_elements(rewrite, one, context.pipeline):
            yield (
                Safety.REORDERS,
                f"The script resumes by {one.what}: after this change, the elements skipped differ from those that an "
                "earlier run has seen. Finish runs that are already in progress with the original pipeline.",
            )
        case ResumeMethod.SKIP if rewrite.safety is not Safety.EXACT:
            yield (
                rewrite.safety,
                f"The script resumes by {one.what}: a run that started before this change and is resumed after "
                "it sees different random draws or a different order.",
            )


def _sets_a_number(edit: Edit, context: RuleContext) -> bool:
    """Whether an edit changes only a value, and not which operators keep state."""
    if isinstance(edit, SetOption):
        return edit.name in (CPU_BUDGET, MEMORY_BUDGET, POOL_SIZE)
    if not isinstance(edit, SetArgument) or edit.node not in context.pipeline:
        return False
    node = context.pipeline[edit.node]
    match edit.name:
        case "num_parallel_calls" if node.argument(edit.name) is None:
            return edit.value is not None and tensorflow_parallelizes(node, context)
        case "num_parallel_calls":
            return edit.value is not None
        case "buffer_size":
            return node.op == "prefetch"
    return False


def _writes_a_file(rewrite: Rewrite) -> bool:
    return any(cache.arguments.get("filename") for cache in inserted_caches(rewrite.edits))


def _skips_other_elements(rewrite: Rewrite, one: ResumePoint, pipeline: Pipeline) -> bool:
    if one.node not in pipeline:
        return False
    edited = apply_edits(pipeline, rewrite.edits)
    return one.node not in edited or _skip_dependencies(edited, one.node) != _skip_dependencies(pipeline, one.node)


def _skip_dependencies(pipeline: Pipeline, skip: str) -> tuple[str, ...]:
    """Returns what decides which elements a skip drops: the operators upstream that change count or order."""
    return tuple(
        node.id
        for node in pipeline.upstream(skip)
        if (known := operator_facts(node.op)).count is not CountEffect.ONE_TO_ONE
        or known.order is not OrderEffect.KEEPS
        or known.batches
        or known.random
    )
