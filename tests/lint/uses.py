"""Dataset uses from the text of pipelines, with the cardinalities that TensorFlow would compute."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pipetune.core.element_counts import max_elements
from pipetune.core.pipeline import UNKNOWN
from pipetune.core.profile import Finding
from pipetune.lint import DatasetUse, find_mistakes
from tests import words

_UNKNOWN = ("filter", "unbatch", "interleave", "flat_map", "take_while")


def use(text: str, **more: Any) -> DatasetUse:
    """The use of the pipeline that `text` describes."""
    pipeline = words.pipeline(text, options=more.pop("options", None))
    nodes = []
    for node in pipeline:
        above = (*pipeline.upstream(node.id), node)
        known = None if any(one.op in _UNKNOWN for one in above) else max_elements(pipeline, None, node.id)
        nodes.append(replace(node, cardinality=UNKNOWN if known is None else known))
    objects = {node.id: position for position, node in enumerate(nodes)}
    return DatasetUse(replace(pipeline, nodes=tuple(nodes)), dataset_ids=objects, **more)


def sharing(one: DatasetUse, other: DatasetUse, count: int) -> DatasetUse:
    """Returns `other` with the first `count` live datasets of `one`."""
    objects = {
        node.id: one.dataset_ids[node.id] if position < count else 1000 + position
        for position, node in enumerate(other.pipeline)
    }
    return replace(other, dataset_ids=objects)


def found(text: str, *others: DatasetUse, **more: Any) -> list[Finding]:
    return find_mistakes(use(text, **more), others)


def codes(text: str, *others: DatasetUse, **more: Any) -> list[str]:
    """Returns the codes of findings with the operator at their line, such as "frozen-order n2"."""
    return [f"{finding.code} n{(finding.line or 0) - 1}" for finding in found(text, *others, **more)]
