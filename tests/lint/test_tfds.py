"""`take` downstream of a read by TensorFlow Datasets, where it returns other examples than the first of the split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.lint import find_mistakes
from pipetune.lint.dataset_use import DatasetUse, JobWorkers
from pipetune.lint.workers import find_division_problems
from tests.core.tfds_pipelines import made_by_tfds
from tests.lint.uses import use

FILES = "from_tensor_slices elements=8"
READ = f"{FILES} | interleave cycle_length=16 block_length=16 | map"
SHUFFLED = f"{FILES} | shuffle 8 | interleave cycle_length=16 block_length=16 | map"
SUBSET = ["tfds-subset"]


def read_by_tfds(text: str, count: int, **more: Any) -> DatasetUse:
    """The use of a pipeline of which TensorFlow Datasets made the first operators."""
    one = use(text, **more)
    return replace(one, pipeline=made_by_tfds(one.pipeline, count))


@pytest.mark.parametrize(
    ("text", "by_tfds", "expected"),
    [
        (f"{READ} | batch 4", 3, []),
        (f"{READ} | take 100", 0, []),  # the script's own interleave: no split is involved
        (f"{READ} | take 16", 3, []),  # all from the first file, in order
        (f"{READ} | take -1", 3, []),
        (f"{READ} | take 100", 4, []),  # take of the library, for a sub-split
        (f"{READ} | batch 4 | take 100", 3, []),  # a preview of some batches
        (f"{READ} | repeat | take 100", 3, []),
        (f"{READ} | filter | take 100", 3, []),
        (f"{READ} | shuffle 50 | take 100", 3, []),
        (f"{READ} | skip 100 | batch 4", 3, []),  # a resumed job
        ("from_tensor_slices elements=1 | interleave cycle_length=16 block_length=16 | map | take 100", 3, []),
        (f"{FILES} | interleave cycle_length=1 block_length=16 | map | take 100", 3, []),
        (f"{READ} | take 100", 3, SUBSET),
        (f"{READ} | map | prefetch 2 | take 17 | batch 4", 3, SUBSET),
        (f"{SHUFFLED} | take 4 | batch 2", 4, SUBSET),
    ],
)
def test_take_of_other_examples_than_first_of_split(text: str, by_tfds: int, expected: list[str]) -> None:
    found = find_mistakes(read_by_tfds(text, by_tfds))
    assert [finding.code for finding in found if finding.code.startswith("tfds")] == expected


def test_take_of_all_elements_is_not_reported() -> None:
    one = use(f"{READ} | take 100")
    known = replace(one.pipeline, nodes=tuple(replace(node, cardinality=100) for node in one.pipeline))
    assert not find_mistakes(replace(one, pipeline=made_by_tfds(known, 3)))


def test_finding_describes_examples_and_split_to_request() -> None:
    (found,) = find_mistakes(read_by_tfds(f"{READ} | take 1000", 3))
    assert "take(1,000) returns 16 examples of each of 8 files in turn" in found.message
    assert "split='train[:1000]'" in found.hint and found.line == 4
    (found,) = find_mistakes(read_by_tfds(f"{SHUFFLED} | take 1000", 4))
    assert "whichever files tfds.load reads first" in found.message


def test_unsharded_tfds_read_is_reported_with_input_context() -> None:
    (own,) = find_mistakes(use(f"{READ} | batch 4", workers=JobWorkers(4, "TF_CONFIG")))
    assert own.code == "unsharded-workers" and "dataset.shard(workers, index)" in own.hint
    by_tfds = read_by_tfds(f"{READ} | batch 4", 3, workers=JobWorkers(4, "TF_CONFIG"))
    (found,) = find_mistakes(by_tfds)
    assert found.code == "unsharded-workers" and "read_config=tfds.ReadConfig(input_context=context)" in found.hint
    assert list(find_division_problems(by_tfds)) == [found]  # that is asked again once elements are counted
