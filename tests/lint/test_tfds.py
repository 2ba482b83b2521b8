"""`take` downstream of a read by TensorFlow Datasets, where it returns other examples than the first of the split."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.lint import find_mistakes
from pipetune.lint.dataset_use import JobWorkers
from pipetune.lint.workers import find_division_problems
from tests.core.tfds_pipelines import made_by_tfds
from tests.lint.uses import use

FILES = "from_tensor_slices elements=8"
READ = f"{FILES} | interleave cycle_length=16 block_length=16 | map"
SHUFFLED = f"{FILES} | shuffle 8 | interleave cycle_length=16 block_length=16 | map"
SUBSET = ["tfds-subset"]


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
    one = use(text)
    one = replace(one, pipeline=made_by_tfds(one.pipeline, by_tfds))
    assert [finding.code for finding in find_mistakes(one) if finding.code.startswith("tfds")] == expected


def test_take_of_all_elements_is_not_reported() -> None:
    one = use(f"{READ} | take 100")
    known = replace(one.pipeline, nodes=tuple(replace(node, cardinality=100) for node in one.pipeline))
    assert not find_mistakes(replace(one, pipeline=made_by_tfds(known, 3)))


def test_finding_describes_examples_and_split_to_request() -> None:
    one = use(f"{READ} | take 1000")
    (found,) = find_mistakes(replace(one, pipeline=made_by_tfds(one.pipeline, 3)))
    assert "take(1,000) returns 16 examples of each of 8 files in turn" in found.message
    assert "split='train[:1000]'" in found.hint and found.line == 4
    two = use(f"{SHUFFLED} | take 1000")
    (found,) = find_mistakes(replace(two, pipeline=made_by_tfds(two.pipeline, 4)))
    assert "whichever files tfds.load reads first" in found.message


def test_unsharded_tfds_read_is_reported_with_input_context() -> None:
    one = use(f"{READ} | batch 4", workers=JobWorkers(4, "TF_CONFIG"))
    (own,) = find_mistakes(one)
    assert own.code == "unsharded-workers" and "dataset.shard(workers, index)" in own.hint
    by_tfds = replace(one, pipeline=made_by_tfds(one.pipeline, 3))
    (found,) = find_mistakes(by_tfds)
    assert found.code == "unsharded-workers" and "read_config=tfds.ReadConfig(input_context=context)" in found.hint
    assert list(find_division_problems(by_tfds)) == [found]  # that is asked again once elements are counted
