"""How a tf.data service may divide a pipeline, and which of its operators the workers run.

After `tf.data.experimental.service.ShardingPolicy`. Static sharding (FILE, DATA, HINT) is left out: it makes every
client read from a worker in its own process, so nothing would leave the machine that trains. What remains is DYNAMIC,
where the dispatcher hands each file or element of the source to one worker, and OFF, where each worker gives
everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipetune.core.distribution import StandaloneParts
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.emit.remote import is_endless
from pipetune.distributed.emit.sharding import sharding

_AT_CLIENT = frozenset({"repeat", "prefetch", "with_options"})


@dataclass(frozen=True)
class Mode:
    """How the service divides the data, and how often each element comes."""

    policy: str
    visits: str  # of an element in an epoch, in words
    note: str = ""


def mode_of(parts: StandaloneParts) -> Mode:
    """How the service may divide the pipeline.

    Raises:
        CannotExpress: in no way that gives an epoch; the message says why.
    """
    pipeline = parts.pipeline
    try:
        where = sharding(cut(pipeline)[0], parts.sources, most_workers=1)
        reason = "it takes elements by their position" if not where.any_part else ""
        if any(pipeline[name].inputs for name in where.after):
            reason = f"only what stands behind {pipeline[where.after[0]].title} can be divided"
    except CannotExpress as error:
        reason = error.message.rstrip(".")
    if not reason:
        return Mode(
            "DYNAMIC",
            "once in an epoch, whichever worker is free first; a worker that is lost takes the part it was working on "
            "with it, and nothing comes twice (at most once)",
        )
    if is_endless(pipeline) and any(node.op == "shuffle" for node in pipeline):
        return Mode(
            "OFF",
            "once from each worker, in an order of its own; with n workers an element may come n times before "
            "another has come at all, and a worker that is lost starts again",
            f"the dispatcher cannot divide the data ({reason}), so every worker gives all of it",
        )
    raise CannotExpress(
        f"The dispatcher cannot divide the data: {reason}.",
        hint="Every worker would give all of it, which only an endless, shuffled pipeline can stand.",
    )


def cut(pipeline: Pipeline) -> tuple[Pipeline, tuple[Node, ...]]:
    """What the workers run, and the operators behind it that stay in the training process."""
    stays: list[Node] = []
    node = pipeline.output
    while node.op in _AT_CLIENT and len(node.inputs) == 1:
        stays.append(node)
        node = pipeline[node.inputs[0]]
    gone = {one.id for one in stays}
    kept = Pipeline(tuple(one for one in pipeline if one.id not in gone), pipeline.name, pipeline.options)
    return kept, tuple(reversed(stays))


def between_names_and_readers(parts: StandaloneParts, pipeline: Pipeline) -> list[Node]:
    """The operators between names of files and what opens them."""
    found: list[Node] = []
    for name, source in parts.sources.items():
        node = pipeline[name]
        while (
            source.yields_file_names
            and len(below := pipeline.consumers(node.id)) == 1
            and below[0].op in ("shuffle", "repeat")
        ):
            node = below[0]
            found.append(node)
    return found
