"""`prefetch-to-device`: where it is proposed and where not, and which operators precede it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import apply_edits, needs_comparison
from pipetune.core.pipeline import Pipeline
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.rewrites import find_rule, propose_all
from pipetune.rewrites.rule import RuleContext
from pipetune.testing.rules import check_no_proposal, check_proposes, context, proposals
from tests.rewrites.outline import outlines

NAME = "prefetch-to-device"
GPU: dict[str, Any] = {"device": "gpu", "custom_training_loop": True}

SILENT: list[tuple[str, dict[str, Any], str]] = [
    ("range 9 | map | batch 2", {}, ""),
    ("range 9 | map | batch 2 | prefetch 1", {"custom_training_loop": True}, ""),
    ("range 9 | batch 2", {"device": "cpu", "custom_training_loop": True}, ""),
    ("range 9 | batch 2", {"device": "tpu", "custom_training_loop": True}, "distribution strategy"),
    ("range 9 | batch 2", {"device": "gpu"}, "must be the last operator"),
    ("range 9 | batch 2 | copy_to_device", GPU, "the script copies them itself"),
    ("range 9 | batch 2 | copy_to_device | prefetch 1", GPU, "the script copies them itself"),
    ("range 9 | map variable=w | batch 2", GPU, "reads the variable w"),
    ("range 9 | map table | batch 2", GPU, "table"),
    ("range 9 | map file | batch 2", GPU, "side effect"),
    ("range 9 | opaque", GPU, "nothing is known"),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str) -> None:
    silences = check_no_proposal(NAME, words, **fields)
    assert [why in silence.why for silence in silences] == ([True] if why else [])


@pytest.mark.parametrize(
    "spec",
    [
        "TensorSpec(shape=(None,), dtype=tf.string, name=None)",
        "(TensorSpec(shape=(None, 2), dtype=tf.float32, name=None), TensorSpec(shape=(), dtype=tf.string, name=None))",
        "RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)",
        "SparseTensorSpec(TensorShape([None]), tf.float32)",
        "DatasetSpec(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorShape([]))",
    ],
)
def test_host_only_elements_are_not_prefetched_to_the_device(spec: str) -> None:
    described = context("range 9 | batch 2", **GPU)
    nodes = tuple(replace(node, spec=spec) for node in described.pipeline)
    rewrites, silences = proposals(find_rule(NAME), RuleContext(Pipeline(nodes), **GPU))
    assert not rewrites and len(silences) == 1


FIRES: list[tuple[str, list[str]]] = [
    (
        "range 9 | map | batch 2",
        [
            f"EXACT copy_to_device(target_device=/GPU:0)>n2 prefetch(buffer_size={size})>copy_to_device@n2"
            for size in (1, 2)
        ],
    ),
    (
        "range 9 | map random | shuffle 5 | batch 2 | prefetch AUTOTUNE",
        [
            f"EXACT copy_to_device(target_device=/GPU:0)>n4 prefetch(buffer_size={size})>copy_to_device@n4"
            for size in (1, 2)
        ],
    ),
]


@pytest.mark.parametrize(("words", "expected"), FIRES)
def test_proposed_edits(words: str, expected: list[str]) -> None:
    rewrites = check_proposes(NAME, words, **GPU)
    assert outlines(rewrites) == expected
    assert all(rewrite.only_training and rewrite.reproducible and rewrite.notes for rewrite in rewrites)
    assert not any(needs_comparison(rewrite.edits) for rewrite in rewrites)


def test_other_inserted_operators_precede_the_copy_to_the_device() -> None:
    described = context("range 9 elements=9 bytes=1k | map! bytes=1k elements=9 | batch 2", **GPU)
    rewrites, _ = propose_all(described)
    chosen = {rewrite.rule: rewrite for rewrite in reversed(rewrites) if rewrite.rule in (NAME, "prefetch")}
    together = [rewrite for rewrite in rewrites if rewrite in chosen.values()]
    edited = apply_edits(described.pipeline, (edit for rewrite in together for edit in rewrite.edits))
    assert [node.op for node in edited] == ["range", "map", "batch", "prefetch", "copy_to_device", "prefetch"]


def test_saved_iterator_is_never_put_on_a_device() -> None:
    saved = (ResumePoint(ResumeMethod.ITERATOR_STATE, "tf.train.Checkpoint(iterator=...)", "train.py", 9),)
    rewrites, silences = propose_all(context("range 9 | map | batch 2", resuming=saved, **GPU))
    assert not [rewrite for rewrite in rewrites if rewrite.rule == NAME]
    assert [silence for silence in silences if silence.rule == NAME and "cannot be saved" in silence.why]
