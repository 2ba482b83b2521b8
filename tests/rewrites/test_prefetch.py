"""`prefetch` and `prefetch-to-device`: where they are proposed and where not, and which operators precede them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.edits import SetArgument, apply_edits, needs_comparison
from pipetune.core.measurement import Pause
from pipetune.core.pipeline import AUTOTUNE, Pipeline
from pipetune.core.profile import ConsumerProfile, Diagnosis, Verdict
from pipetune.rewrites import propose_all
from pipetune.rewrites.rule import RuleContext
from tests.rewrites.tables import Row, first, outlines, proposal_test, silent_test, with_profile
from tests.rules import check_proposes, context, proposals
from tests.words import pipeline

SILENT: list[Row] = [
    ("range 9 | [map or filter] variable=w | batch 2", "reads the variable w"),
    ("range 9 | map variable=w | [shuffle 5 | batch 2 | repeat or prefetch 1 | batch 2 or prefetch 1]", "variable w"),
    ("a = range 9; b = range 9 | map variable=w; zip a b | batch 2", "variable w"),
    ("range 9 | map writes[=seen or  python_random] | batch 2", "reads the variable"),
    ("range 9 | map table | batch 2", "table"),
    ("range 9 | map file | batch 2", "side effect (WriteFile)"),
    ("range 9 | [map unknown or opaque] | batch 2", "is unknown"),
]  # fmt: skip


def _end(node: str) -> list[str]:
    return [f"EXACT prefetch(buffer_size={size})>{node}" for size in (-1, 1, 2, 4)]


FIRES: list[Row] = [
    ("range 9 | map[ or  print or  python] | batch 2", _end("n2")),
    ("from_generator | batch 2", _end("n1")),
    ("range 9 | batch 2 | with_options", _end("n2")),
    ("range 9 | batch 2 | prefetch 2[ or  | with_options]", [f"EXACT n2.buffer_size={size}" for size in (-1, 1, 4)]),
    ("range 9 | batch 2 | prefetch 3 | map", [*_end("n3"), "EXACT n2>n3"]),
    ("range 9 | prefetch 1000 | batch 2",
     [*_end("n2"), "EXACT n1>n2 n1.buffer_size=-1", "EXACT n1>n2 n1.buffer_size=2"]),
    ("a = range 9 | prefetch 2; b = range 9; zip a b", _end("n3")),
]  # fmt: skip

test_no_prefetch = silent_test("prefetch", SILENT)
test_prefetches = proposal_test("prefetch", FIRES)


def test_buffer_is_priced_by_its_elements() -> None:
    rewrites = check_proposes("prefetch", "range 9 | map bytes=1k | batch 10")
    assert [rewrite.predicted_bytes for rewrite in rewrites] == [80_000, 10_000, 20_000, 40_000]
    assert all(rewrite.reproducible and rewrite.epochs_kept for rewrite in rewrites)


_STAGES = "list_files | interleave cpu=4ms | map random cpu=5ms | filter cpu=1us | shuffle 9 | batch 2 | prefetch 1"
_SEGMENT = ("n0", "n1", "n2", "n3", "n4", "n5", "n6")


def _between(words: str, segment: tuple[str, ...], bottleneck: str, **fields: Any) -> list[str]:
    """The prefetches that are proposed elsewhere than at the end."""
    diagnosis = Diagnosis(Verdict.INPUT_BOUND, "", bottleneck=bottleneck, sequential_segments=(segment,))
    rewrites = check_proposes("prefetch", words, **{"diagnosis": diagnosis, **fields})
    last = pipeline(words).output.id
    return outlines([rewrite for rewrite in rewrites if rewrite.node != last])


@pytest.mark.mission("A2.inserted")
def test_limiting_segment_is_split_in_half() -> None:
    places = _between(_STAGES, _SEGMENT, "n3")
    assert places == ["EXACT prefetch(buffer_size=-1)>n2", "EXACT prefetch(buffer_size=2)>n2"]


def test_buffer_that_bridges_the_pauses_of_the_input_comes_first() -> None:
    consumer = ConsumerProfile("loop", real_seconds=0.02, bound_seconds=0.01)
    made = context("range 9 | batch 2 | prefetch 2")
    for seconds, size in [(2.0, 256), (0.01, 1), (30.0, AUTOTUNE)]:  # the last would hold 3,000 elements
        rewrites, _ = proposals("prefetch", with_profile(made, consumer=consumer, pause=Pause(300, seconds)))
        assert rewrites[0].edits == (SetArgument("n2", "buffer_size", size),)


@pytest.mark.parametrize(("words", "segment", "bottleneck", "fields"), [
    (_STAGES, _SEGMENT, "n7", {}),  # another operator limits
    (_STAGES, ("n3",), "n3", {}),  # a single operator cannot be split
    (_STAGES, _SEGMENT, "n3", {"profiled": False}),  # no place is known without costs
    (_STAGES, _SEGMENT, "n3", {"diagnosis": None}),
    ("range 9 | map! | map cpu=1us | prefetch 1", ("n1", "n2"), "n1", {}),  # one operator takes all the time
])  # fmt: skip
def test_segment_is_not_split(words: str, segment: tuple[str, ...], bottleneck: str, fields: dict[str, Any]) -> None:
    assert _between(words, segment, bottleneck, **fields) == []


DEVICE = "prefetch-to-device"
GPU: dict[str, Any] = {"device": "gpu", "custom_training_loop": True}

DEVICE_SILENT: list[Row] = [
    ("range 9 | map | batch 2", ""),
    ("range 9 | map | batch 2 | prefetch 1", {"custom_training_loop": True}, ""),
    ("range 9 | batch 2", {"device": "tpu", "custom_training_loop": True}, "distribution strategy"),
    ("range 9 | batch 2", {"device": "gpu"}, "must be the last operator"),
    ("range 9 | batch 2 | copy_to_device[ or  | prefetch 1]", GPU, "the script copies them itself"),
    ("range 9 | map variable=w | batch 2", GPU, "reads the variable w"),
    ("range 9 | map table | batch 2", GPU, "table"),
    ("range 9 | map file | batch 2", GPU, "side effect"),
]


_COPY = "EXACT copy_to_device(target_device=/GPU:0)>n2"

DEVICE_FIRES: list[Row] = [
    ("range 9 | map | batch 2", GPU, [f"{_COPY} prefetch(buffer_size={size})>copy_to_device@n2" for size in (1, 2)])
]

test_no_copy_to_device = silent_test(DEVICE, DEVICE_SILENT)
test_copies_to_device = proposal_test(DEVICE, DEVICE_FIRES)


@pytest.mark.parametrize("spec", [
    "TensorSpec(shape=(None,), dtype=tf.string, name=None)",
    "(TensorSpec(shape=(None, 2), dtype=tf.float32, name=None), TensorSpec(shape=(), dtype=tf.string, name=None))",
    "RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)",
    "SparseTensorSpec(TensorShape([None]), tf.float32)",
    "DatasetSpec(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorShape([]))",
])  # fmt: skip
def test_host_only_elements_are_not_prefetched_to_the_device(spec: str) -> None:
    described = context("range 9 | batch 2", **GPU)
    nodes = tuple(replace(node, spec=spec) for node in described.pipeline)
    rewrites, silences = proposals(DEVICE, RuleContext(Pipeline(nodes), **GPU))
    assert not rewrites and len(silences) == 1


def test_other_inserted_operators_precede_the_copy_to_the_device() -> None:
    described = context("range 9 elements=9 bytes=1k | map! bytes=1k elements=9 | batch 2", **GPU)
    rewrites, _ = propose_all(described)
    copies = [rewrite for rewrite in rewrites if rewrite.rule == DEVICE]
    assert all(one.only_training and one.reproducible and not needs_comparison(one.edits) for one in copies)
    together = sorted((first(rewrites, rule) for rule in (DEVICE, "prefetch")), key=rewrites.index)
    edited = apply_edits(described.pipeline, (edit for rewrite in together for edit in rewrite.edits))
    assert [node.op for node in edited] == ["range", "map", "batch", "prefetch", "copy_to_device", "prefetch"]
