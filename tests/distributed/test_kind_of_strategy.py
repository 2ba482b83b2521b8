"""The default kind of distributed input for a script: none if the script creates the input of each worker itself."""

from __future__ import annotations

import pytest

from pipetune.core.distribution import COORDINATOR, DATASET, FIT, FUNCTION, PIPELINE_PER_PROCESS, InputDistribution
from pipetune.distributed.emit import kinds
from pipetune.distributed.emit.kind import choose_kind
from tests.words import parse

WHOLE = parse("range 10 | map | batch 2").pipeline
PART = parse("range 10 | shard 2 index=0 | map | batch 2").pipeline
MIRRORED = InputDistribution("MirroredStrategy", 2, DATASET)
OWN_FUNCTION = InputDistribution("MirroredStrategy", 2, FUNCTION)
HOROVOD = InputDistribution("Horovod", 2, PIPELINE_PER_PROCESS, 2)


@pytest.mark.parametrize(
    ("handover", "said"),
    [
        (None, ""),
        (InputDistribution("OneDeviceStrategy", 1, DATASET), ""),
        (InputDistribution("CentralStorageStrategy", 2, FIT), ""),
        (OWN_FUNCTION, "A function"),
        (InputDistribution("MultiWorkerMirroredStrategy", 2, FUNCTION, 2), "A function"),
    ],
)
def test_no_kind_without_strategy_or_with_own_input_function(handover: InputDistribution | None, said: str) -> None:
    kind, why = choose_kind(None, WHOLE, handover)
    assert not kind and said in why and bool(why) is bool(said)


def test_no_kind_for_sharded_data_without_trials_or_if_disabled() -> None:
    kind, why = choose_kind(None, PART, HOROVOD)
    assert not kind and "already shards its data" in why
    assert choose_kind(None, WHOLE, MIRRORED, trials=False) == choose_kind("none", WHOLE, HOROVOD) == ("", "")


@pytest.mark.parametrize(
    ("strategy", "how", "kind"),
    [
        ("MirroredStrategy", DATASET, "mirrored"),
        ("MirroredStrategy", FIT, "mirrored"),
        ("MultiWorkerMirroredStrategy", DATASET, "multiworker"),
        ("TPUStrategy", FIT, "tpu"),
        ("ParameterServerStrategy", COORDINATOR, "parameter-server"),
        ("Horovod", PIPELINE_PER_PROCESS, "horovod"),
    ],
)
def test_kind_follows_from_strategy(strategy: str, how: str, kind: str) -> None:
    found, why = choose_kind(None, WHOLE, InputDistribution(strategy, 2, how, 2))
    assert found == kind and kind in kinds.names()
    assert why.startswith("Written because the script trains ") and strategy in why


def test_requested_kind_is_chosen_with_caveats() -> None:
    assert choose_kind("tpu", WHOLE, MIRRORED) == ("tpu", "")
    assert choose_kind("service", WHOLE, None, trials=False) == ("service", "")
    assert "multiply GLOBAL_BATCH_SIZE" in choose_kind("mirrored", WHOLE, OWN_FUNCTION)[1]
    assert "as a single worker" in choose_kind("multiworker", PART, OWN_FUNCTION)[1]
