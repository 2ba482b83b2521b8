"""Lookup tables of a pipeline that runs on the workers of parameter servers: made there, or found by none of them.

A table made outside of `strategy.scope()` is on the coordinator alone, and a function on a worker that looks into it
fails ("unknown device"). Inside the scope TensorFlow makes one on every worker, and each looks into its own
(`DistributedTable` in `ps_values.py`, TensorFlow 2.21).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pipetune.core.distribution import Definition
from pipetune.core.pipeline import Node, Pipeline
from pipetune.distributed.emit.remote import place

_IN_SCOPE = Definition(
    "IN_SCOPE", "IN_SCOPE = tf.distribute.has_strategy()  # whether this was imported inside strategy.scope()"
)
_CHECK = Definition(
    "check_scope",
    '''def check_scope():
    """Tables made outside of strategy.scope() are on the coordinator alone, and no worker finds them."""
    if not IN_SCOPE:
        raise RuntimeError("tables have to be on every worker: import this module inside strategy.scope()")''',
)


@dataclass(frozen=True)
class Tables:
    """The operators whose functions look into tables, and what a module for parameter servers has for them."""

    where: tuple[str, ...]

    @property
    def constants(self) -> tuple[Definition, ...]:
        return (_IN_SCOPE,) if self.where else ()

    @property
    def functions(self) -> tuple[Definition, ...]:
        return (_CHECK,) if self.where else ()

    @property
    def notes(self) -> Iterator[str]:
        if self.where:
            yield (
                f"{' and '.join(self.where)} {'looks' if len(self.where) == 1 else 'look'} into tables, which have to "
                "be on every worker: import this module, and what makes them, inside strategy.scope() and not before"
            )

    @property
    def usage(self) -> Iterator[str]:
        if self.where:
            yield "with strategy.scope():  # which makes the tables on every worker"
            yield "    from distributed import dataset_creator, per_worker_dataset"

    def requested_in(self, function: Definition) -> Definition:
        """The function, which asks first whether the tables are where they have to be."""
        if not self.where:
            return function
        head, docstring, rest = function.text.split("\n", 2)
        return replace(function, text="\n".join((head, docstring, "    check_scope()", rest.lstrip("\n"))))


def find(pipeline: Pipeline) -> Tables:
    """The tables that functions of the pipeline look into."""
    return Tables(tuple(place(node, short=True) for node in pipeline if _looks_up(node)))


def _looks_up(node: Node) -> bool:
    return node.function is not None and any(kind.startswith("LookupTable") for kind in node.function.operations)
