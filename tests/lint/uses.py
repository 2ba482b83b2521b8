"""Dataset uses from the text of pipelines, with the cardinalities that TensorFlow would compute."""

from __future__ import annotations

from collections.abc import Sequence
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


def rows(fires: Sequence[tuple[Any, ...]], silent: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Cases for `check`: those that fire end with the expected codes, or with these and a part of a message."""
    shortest = min(map(len, fires))
    return [*((*row, "")[: shortest + 1] for row in fires), *((*row, [], "") for row in silent)]


def check(text: str, expected: list[str], words: str, **how: Any) -> None:
    """The expected findings, each with a hint, and some words of their messages."""
    assert codes(text, **how) == expected
    findings = found(text, **how)
    assert words in " ".join(finding.message for finding in findings) and all(finding.hint for finding in findings)
