"""Rewrites of what TensorFlow Datasets reads carry the `ReadConfig` that says them."""

from __future__ import annotations

from dataclasses import replace

from pipetune.rules import propose_all
from pipetune.testing.rules import context
from tests.core.tfds_words import DECODED, made_by_tfds

WORDS = DECODED.replace("elements=8", "elements=64") + " cpu=1ms | map cpu=1ms | batch 4"


def notes(*, by_tfds: int) -> dict[str, str]:
    """By the key of each rewrite: its note of a ReadConfig."""
    found = context(WORDS)
    rewrites, _ = propose_all(replace(found, pipeline=made_by_tfds(found.pipeline, by_tfds)))
    return {one.key: note for one in rewrites for note in one.notes if "ReadConfig" in note}


def test_the_scripts_own_reading_has_no_such_note() -> None:
    assert not notes(by_tfds=0)


def test_numbers_of_the_reading_are_said_as_its_fields() -> None:
    found = notes(by_tfds=5)
    assert found, "the rules have something to say of it"
    assert all(key.split("@")[1][:2] in ("n1", "n4") for key in found), "of the interleave and the decoding alone"
    (longer,) = (note for key, note in found.items() if "interleave_cycle_length=32" in note)
    assert longer == "tfds.load takes it as read_config=tfds.ReadConfig(interleave_cycle_length=32)."
