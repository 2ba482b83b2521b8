"""Weighs what one element of a pipeline takes on its way from one process to another, packed and not."""

from __future__ import annotations

import zlib

import tensorflow as tf

from pipetune.core.errors import CannotReplay
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import BatchBytes
from pipetune.tf.pipelines import live
from pipetune.tf.pipelines.replay import replay
from pipetune.tf.standalone import probe
from pipetune.tf.standalone.counting import running

_MOST_PACKED = 16 * 2**20
_MOST_SHUFFLED = 64


def weigh(source: live.LivePipeline, tuned: Pipeline) -> BatchBytes | None:
    """The bytes of the first element of `tuned`, an edited form of `source`; None where there is none to weigh.

    Packed is what zlib makes of them at its fastest. The service packs with snappy, which is faster and packs a
    little less.

    Raises:
        CannotExpress: the pipeline does not run.
    """
    try:
        dataset = replay(source, probe.of_batches(tuned, most=_MOST_SHUFFLED))
    except CannotReplay:
        return None
    with running():
        for element in dataset.take(1):
            parts = tf.nest.flatten(element, expand_composites=True)
            if not all(isinstance(part, tf.Tensor) and part.dtype != tf.variant for part in parts):
                return None
            texts = [tf.io.serialize_tensor(part).numpy() for part in parts]
            raw = sum(map(len, texts))
            looked_at = b"".join(texts)[:_MOST_PACKED]
            share = len(zlib.compress(looked_at, level=1)) / max(1, len(looked_at))
            return BatchBytes(raw, round(raw * share))
    return None
