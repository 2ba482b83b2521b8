"""Compares what two pipelines declare, without drawing an element: spec, cardinality, batches, options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipetune.core.comparison import Check
from pipetune.core.edits import Safety
from pipetune.core.pipeline import UNKNOWN, Pipeline, Value
from pipetune.tf.pipelines import live


def declared_checks(
    original: Any,
    candidate: Any,
    safety: Safety,
    *,
    edited_options: Mapping[str, Value],
    cardinality_told: bool = False,
) -> list[Check]:
    """Compares element spec with static shapes, cardinality, and options.

    Args:
        edited_options: options that the edits set; these may differ.
        cardinality_told: whether the rewrite makes a cardinality known that TensorFlow did not know.
    """
    return [
        _spec(original, candidate),
        _cardinality(original, candidate, safety, told=cardinality_told),
        _options(original, candidate, safety, edited_options),
    ]


def batches_check(original: Pipeline, candidate: Pipeline) -> Check:
    """Compares batch sizes and `drop_remainder`, for pipelines whose order may differ."""
    one, other = (_batches(pipeline) for pipeline in (original, candidate))
    return Check("batches", one == other, "" if one == other else f"{_words(one)} became {_words(other)}")


def _spec(original: Any, candidate: Any) -> Check:
    one, other = original.element_spec, candidate.element_spec
    return Check("spec", one == other, "" if one == other else f"{one} became {other}")


def _cardinality(original: Any, candidate: Any, safety: Safety, *, told: bool) -> Check:
    one, other = int(original.cardinality()), int(candidate.cardinality())
    detail = "" if one == other else f"{_count(one)} became {_count(other)}"
    if told and one == UNKNOWN and other >= 0:  # the number itself is verified by the epochs check
        return Check("cardinality", True, f"{detail}: TensorFlow can tell it now")
    if one != other and safety >= Safety.REORDERS and (one < 0) == (other < 0):
        return Check("cardinality", None, f"{detail}: the borders between epochs moved")
    return Check("cardinality", one == other, detail)


def _options(original: Any, candidate: Any, safety: Safety, edited: Mapping[str, Value]) -> Check:
    before, after = live.set_options(original), live.set_options(candidate)
    differences = [
        f"{name}: {before.get(name)} became {after.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    unwanted = [text for text in differences if text.split(":")[0] not in edited]
    if safety < Safety.REORDERS and after.get("deterministic") is False is not before.get("deterministic"):
        return Check("options", False, "the order is no longer kept (deterministic: False)")
    return Check("options", not unwanted, "; ".join(differences))


def _batches(pipeline: Pipeline) -> list[tuple[str, Value, Value]]:
    return [
        (node.op, node.argument("batch_size"), bool(node.argument("drop_remainder")))
        for node in pipeline.nodes
        if node.op in ("batch", "padded_batch")
    ]


def _words(batches: list[tuple[str, Value, Value]]) -> str:
    words = [f"{op}({size}, drop_remainder={drop})" for op, size, drop in batches]
    return ", ".join(words) or "no batches"


def _count(cardinality: int) -> str:
    return {-1: "infinite", -2: "unknown"}.get(cardinality, str(cardinality))
