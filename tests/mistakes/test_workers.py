"""Workers that all read the same data."""

from __future__ import annotations

import pytest

from pipetune.mistakes.use import Workers
from tests.mistakes.uses import codes, found

ALONE = Workers(4, "HOROVOD_SIZE")
STRATEGY = Workers(4, "TF_CONFIG", distributed=True)
ASKED = Workers(4, "TF_CONFIG", asked=True)
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
        ("range | batch 8", Workers(1, "TF_CONFIG"), {}, []),
        ("range | batch 8", STRATEGY, {}, []),  # it shards by itself
        ("range | batch 8", STRATEGY, DATA, []),
        ("range | shard 4 | batch 8", STRATEGY, OFF, []),
        ("range | shard 4 | batch 8", ALONE, {}, []),
        ("list_files shuffle=False | interleave inner=ShardDataset+MapDataset | batch 8", ALONE, {}, []),
        ("range | shuffle 9 | batch 8", ALONE, {}, []),  # each draws an order of its own
        ("range | batch 8", ASKED, {}, []),
        ("range | batch 8", Workers(4, "TF_CONFIG", distributed=True, asked=True), OFF, []),
    ],
)
def test_unsharded(text, workers, how, expected):
    assert codes(text, workers=workers, **how) == expected


def test_the_message_names_who_says_so():
    (finding,) = found("range | batch 8", workers=ALONE)
    assert "HOROVOD_SIZE names 4 workers" in finding.message and "shard" in finding.hint
