"""Workers that all read the same data."""

from __future__ import annotations

import pytest

from pipetune.lint.dataset_use import JobWorkers
from tests.lint.uses import codes, found

ALONE = JobWorkers(4, "HOROVOD_SIZE")
STRATEGY = JobWorkers(4, "TF_CONFIG", distributed=True)
ASKED = JobWorkers(4, "TF_CONFIG", reads_worker_index=True)
OFF = {"options": {"experimental_distribute.auto_shard_policy": "OFF"}}
DATA = {"options": {"experimental_distribute.auto_shard_policy": "DATA"}}


@pytest.mark.parametrize(
    ("text", "workers", "how", "expected"),
    [
        ("range | batch 8", ALONE, {}, ["unsharded-workers n1"]),
        ("range | shuffle 9 seed=1 | batch 8", ALONE, {}, ["unsharded-workers n2"]),
        ("range | shuffle 9 reshuffle_each_iteration=False", ALONE, {}, ["unsharded-workers n1"]),
        ("range | shuffle 9 | batch 8", STRATEGY, OFF, ["unsharded-workers n2"]),
        ("range | batch 8", None, {}, []),
        ("range | batch 8", None, OFF, []),
        ("range | batch 8", JobWorkers(1, "TF_CONFIG"), {}, []),
        ("range | batch 8", STRATEGY, {}, []),  # the strategy shards
        ("range | batch 8", STRATEGY, DATA, []),
        ("range | shard 4 | batch 8", STRATEGY, OFF, []),
        ("range | shard 4 | batch 8", ALONE, {}, []),
        ("list_files shuffle=False | interleave inner=ShardDataset+MapDataset | batch 8", ALONE, {}, []),
        ("range | shuffle 9 | batch 8", ALONE, {}, []),  # each worker draws its own order
        ("range | batch 8", ASKED, {}, []),
        ("range | batch 8", JobWorkers(4, "TF_CONFIG", distributed=True, reads_worker_index=True), OFF, []),
    ],
)
def test_unsharded_workers_are_reported(text, workers, how, expected):
    assert codes(text, workers=workers, **how) == expected


def test_message_names_source_of_worker_count():
    (finding,) = found("range | batch 8", workers=ALONE)
    assert "HOROVOD_SIZE defines 4 workers" in finding.message and "shard" in finding.hint
