"""Rewrites of what TensorFlow Datasets reads name the `ReadConfig` that sets them."""

from __future__ import annotations

from dataclasses import replace

from pipetune.rewrites import propose_all
from pipetune.testing.rules import context
from tests.core.tfds_pipelines import DECODED, made_by_tfds

WORDS = DECODED.replace("elements=8", "elements=64") + " cpu=1ms | map cpu=1ms | batch 4"


def notes(*, by_tfds: int) -> dict[str, str]:
    """The note about a `ReadConfig` by the key of each rewrite."""
    found = context(WORDS)
    rewrites, _ = propose_all(replace(found, pipeline=made_by_tfds(found.pipeline, by_tfds)))
    return {one.key: note for one in rewrites for note in one.notes if "ReadConfig" in note}


def test_scripts_own_reading_has_no_read_config_note() -> None:
    assert not notes(by_tfds=0)


def test_read_config_note_names_the_changed_fields() -> None:
    found = notes(by_tfds=5)
    assert found, "the rules have something to say of it"
    assert all(key.split("@")[1][:2] in ("n1", "n4") for key in found), "of the interleave and the decoding alone"
    (longer,) = (note for key, note in found.items() if "interleave_cycle_length=32" in note)
    assert longer == "For tfds.load, this is read_config=tfds.ReadConfig(interleave_cycle_length=32)."
