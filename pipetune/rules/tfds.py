"""Expresses rewrites of what TensorFlow Datasets reads as the `tfds.ReadConfig` that its call takes."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.edits import Rewrite
from pipetune.core.tfds_reading import fields_for, read_config_text, reading_of
from pipetune.rules.base import RuleContext


def as_read_config(rewrite: Rewrite, context: RuleContext) -> Rewrite:
    """Adds a note with the equivalent `tfds.ReadConfig`; returns the rewrite unchanged if there is none."""
    reading = reading_of(context.pipeline, rewrite.node)
    fields = fields_for(context.pipeline, rewrite.edits)
    if reading is None or not fields:
        return rewrite
    note = f"{reading.call} takes it as read_config={read_config_text(fields)}."
    return replace(rewrite, notes=(*rewrite.notes, note))
