"""Looks for what a device that compiles cannot be given: unknown dimensions, ragged and sparse values, texts."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import OUTPUT, replay_nodes


def check_static(source: live.LivePipeline, tuned: Pipeline) -> None:
    """Checks that every element of `tuned`, an edited form of `source`, has one known shape.

    Raises:
        CannotExpress: it has not; the message names the operator where that begins and its line.
    """
    built = replay_nodes(source, tuned)
    wrong = _wrong(built[OUTPUT].element_spec)
    if not wrong:
        return
    culprit = tuned.output
    # Up from the output, to the operator that can be told to give something else.
    while len(culprit.inputs) == 1 and culprit.function is None and culprit.op != "padded_batch":
        above = tuned[culprit.inputs[0]]
        if not _wrong(built[above.id].element_spec):
            break
        culprit = above
    place = f"{culprit.title} at {culprit.location}" if culprit.location else culprit.title
    raise CannotExpress(
        f"{place} gives {wrong}, and a TPU needs one shape, known before it runs.",
        hint="Set it: tf.ensure_shape, padded_shapes in padded_batch, a size for each image, numbers for texts.",
    )


def _wrong(spec: Any) -> str:
    """All that cannot be given to the device, in words; '' where all can."""
    found = list(dict.fromkeys(filter(None, map(_wrong_part, tf.nest.flatten(spec)))))
    return " and ".join(filter(None, (", ".join(found[:-1]), *found[-1:])))


def _wrong_part(part: Any) -> str:
    if not isinstance(part, tf.TensorSpec):
        return f"a {type(part).__name__.removesuffix('Spec')}"
    if part.dtype == tf.string:
        return "texts"
    sizes = part.shape.as_list() if part.shape.rank is not None else None
    return f"the shape {part.shape}" if sizes is None or None in sizes else ""
