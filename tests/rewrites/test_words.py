"""The small language in which tests write pipelines."""

from __future__ import annotations

import pytest

from pipetune.testing.words import parse, pipeline, profile


def test_stages_become_operators_in_order() -> None:
    built = pipeline("list_files | interleave cycle_length=4 | map! random | shuffle 1000 | batch 32 | repeat")
    assert " ".join(node.op for node in built) == "from_tensor_slices shuffle interleave map shuffle batch repeat"
    assert [node.op for node in pipeline("list_files shuffle=False | map")] == ["from_tensor_slices", "map"]
    assert [node.location.method for node in built if node.location][:2] == ["list_files", "list_files"]
    assert built["n2"].argument("cycle_length") == 4 and built["n2"].argument("num_parallel_calls") is None
    assert built["n3"].function is not None and built["n3"].function.random
    assert built["n4"].argument("buffer_size") == 1000
    assert built["n5"].argument("batch_size") == 32 and built["n6"].argument("count") is None


def test_branches_join() -> None:
    built = pipeline("a = range 3 | map; b = range 4; zip a b | batch 2")
    assert built["n3"].inputs == ("n1", "n2") and built.output.op == "batch"
    again = pipeline("a = range 3\nb = a | map\nc = a | filter\nconcatenate b c")
    assert [node.id for node in again.consumers("n0")] == ["n1", "n2"]


def test_costs_bytes_and_counts() -> None:
    words = "range 9 elements=9 static_bytes=8 | map! bytes=2k | map cpu=3ms | batch 4 shared=2"
    built, measured = parse(words).pipeline, profile(words)
    assert built["n0"].cardinality == 9 and built["n0"].element_bytes == 8 and built["n3"].shared == 2
    costs = [measured.operator(f"n{index}") for index in range(4)]
    assert [cost.cpu_seconds for cost in costs if cost] == [10e-6, 10e-3, 3e-3, 10e-6]
    assert [cost.visits for cost in costs if cost] == [4, 4, 4, 1]
    assert [cost.bytes_out for cost in costs if cost] == [None, 2000, None, None]


@pytest.mark.parametrize(
    "words",
    ["range 3 | mop", "range 3 | filter nonsense", "range 3 | map bytes=many", "range 3 | map cpu=3h"],
)
def test_unknown_word_is_an_error(words: str) -> None:
    with pytest.raises(ValueError, match=r"mop|nonsense|many|3h"):
        pipeline(words)
