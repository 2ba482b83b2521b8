"""Uses of pipelines from words, with the cardinalities TensorFlow would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.core.amounts import elements_at_most
from pipetune.core.pipeline import UNKNOWN
from pipetune.core.profile import Finding
from pipetune.mistakes import Use, find
from pipetune.testing import words

_UNKNOWN = ("filter", "unbatch", "interleave", "flat_map", "take_while")


def use(text: str, *, live: int = 0, **more: Any) -> Use:
    """The use of the pipeline that `text` describes.

    Args:
        live: from which number on its live datasets count; pipelines that begin alike then share what is alike.
    """
    pipeline = words.pipeline(text, options=more.pop("options", None))
    nodes = []
    for node in pipeline:
        above = (*pipeline.upstream(node.id), node)
        known = None if any(one.op in _UNKNOWN for one in above) else elements_at_most(pipeline, None, node.id)
        nodes.append(replace(node, cardinality=UNKNOWN if known is None else known))
    objects = {node.id: live + position for position, node in enumerate(nodes)}
    return Use(replace(pipeline, nodes=tuple(nodes)), objects=objects, **more)


def sharing(one: Use, other: Use, count: int) -> Use:
    """`other`, its first `count` datasets the same live ones as those of `one`."""
    objects = {
        node.id: one.objects[node.id] if position < count else 1000 + position
        for position, node in enumerate(other.pipeline)
    }
    return replace(other, objects=objects)


def found(text: str, *others: Use, **more: Any) -> list[Finding]:
    return find(use(text, **more), others)


def codes(text: str, *others: Use, **more: Any) -> list[str]:
    """ "frozen-order n2": what is found, and the operator at whose line (as words number lines)."""
    return [f"{finding.code} n{(finding.line or 0) - 1}" for finding in found(text, *others, **more)]
