"""`take` behind what TensorFlow Datasets reads, where it gives other examples than the first of the split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.mistakes import find
from pipetune.mistakes.use import Workers
from tests.core.tfds_words import made_by_tfds
from tests.mistakes.uses import use

FILES = "from_tensor_slices elements=8"
READ = f"{FILES} | interleave cycle_length=16 block_length=16 | map"
SHUFFLED = f"{FILES} | shuffle 8 | interleave cycle_length=16 block_length=16 | map"
SUBSET = ["tfds-subset"]


@pytest.mark.parametrize(
    ("text", "by_tfds", "expected"),
    [
        (f"{READ} | batch 4", 3, []),
        (f"{READ} | take 100", 0, []),  # the script's own interleave: nobody expects the first of a split
        (f"{READ} | take 16", 3, []),  # of the first file, in order
        (f"{READ} | take -1", 3, []),
        (f"{READ} | take 100", 4, []),  # the library's own, of a sub-split
        (f"{READ} | batch 4 | take 100", 3, []),  # a look at some batches
        (f"{READ} | repeat | take 100", 3, []),
        (f"{READ} | filter | take 100", 3, []),
        (f"{READ} | shuffle 50 | take 100", 3, []),
        (f"{READ} | skip 100 | batch 4", 3, []),  # a job that goes on
        ("from_tensor_slices elements=1 | interleave cycle_length=16 block_length=16 | map | take 100", 3, []),
        (f"{FILES} | interleave cycle_length=1 block_length=16 | map | take 100", 3, []),
        (f"{READ} | take 100", 3, SUBSET),
        (f"{READ} | map | prefetch 2 | take 17 | batch 4", 3, SUBSET),
        (f"{SHUFFLED} | take 4 | batch 2", 4, SUBSET),
    ],
)
def test_subsets(text: str, by_tfds: int, expected: list[str]) -> None:
    one = use(text)
    one = replace(one, pipeline=made_by_tfds(one.pipeline, by_tfds))
    assert [finding.code for finding in find(one) if finding.code.startswith("tfds")] == expected


def test_all_that_there_is_is_no_subset() -> None:
    one = use(f"{READ} | take 100")
    known = replace(one.pipeline, nodes=tuple(replace(node, cardinality=100) for node in one.pipeline))
    assert not find(replace(one, pipeline=made_by_tfds(known, 3)))


def test_the_finding_says_which_examples_come_and_how_to_ask_for_others() -> None:
    one = use(f"{READ} | take 1000")
    (found,) = find(replace(one, pipeline=made_by_tfds(one.pipeline, 3)))
    assert "take(1,000) gives 16 examples of each of 8 files in turn" in found.message
    assert "split='train[:1000]'" in found.hint and found.line == 4
    two = use(f"{SHUFFLED} | take 1000")
    (found,) = find(replace(two, pipeline=made_by_tfds(two.pipeline, 4)))
    assert "whatever files tfds.load reads first" in found.message


def test_workers_that_all_read_the_same_are_told_of_the_input_context() -> None:
    one = use(f"{READ} | batch 4", workers=Workers(4, "TF_CONFIG"))
    (own,) = find(one)
    assert own.code == "unsharded-workers" and "dataset.shard(workers, index)" in own.hint
    (found,) = find(replace(one, pipeline=made_by_tfds(one.pipeline, 3)))
    assert found.code == "unsharded-workers" and "read_config=tfds.ReadConfig(input_context=context)" in found.hint
