"""Which distributed form a script gets unasked: none where it makes its input for each worker itself."""

from __future__ import annotations

import pytest

from pipetune.core.handover import COORDINATOR, DATASET, FIT, FUNCTION, OWN_PIPELINES, Handover
from pipetune.model.distributed_kind import Choice, choose
from pipetune.source import standalone_kinds
from pipetune.testing.words import read

WHOLE = read("range 10 | map | batch 2").pipeline
PART = read("range 10 | shard 2 index=0 | map | batch 2").pipeline


@pytest.mark.parametrize(
    ("handover", "said"),
    [
        (None, ""),
        (Handover("OneDeviceStrategy", 1, DATASET), ""),
        (Handover("CentralStorageStrategy", 2, FIT), ""),
        (Handover("MirroredStrategy", 2, FUNCTION), "own function"),
        (Handover("MultiWorkerMirroredStrategy", 2, FUNCTION, 2), "own function"),
    ],
)
def test_none_where_there_is_no_strategy_or_the_script_has_a_function_of_its_own(
    handover: Handover | None, said: str
) -> None:
    found = choose(None, WHOLE, handover)
    assert not found.kind and said in found.why and bool(found.why) is bool(said)


def test_none_where_the_script_divides_its_data_or_only_a_profile_was_asked_for() -> None:
    horovod = Handover("Horovod", 2, OWN_PIPELINES, 2)
    assert not choose(None, PART, horovod).kind and "divides its data" in choose(None, PART, horovod).why
    assert choose(None, WHOLE, Handover("MirroredStrategy", 2, DATASET), trials=False) == Choice()
    assert choose("none", WHOLE, horovod) == Choice()


@pytest.mark.parametrize(
    ("strategy", "how", "kind"),
    [
        ("MirroredStrategy", DATASET, "mirrored"),
        ("MirroredStrategy", FIT, "mirrored"),
        ("MultiWorkerMirroredStrategy", DATASET, "multiworker"),
        ("TPUStrategy", FIT, "tpu"),
        ("ParameterServerStrategy", COORDINATOR, "parameter-server"),
        ("Horovod", OWN_PIPELINES, "horovod"),
    ],
)
def test_the_strategy_of_a_script_says_which(strategy: str, how: str, kind: str) -> None:
    found = choose(None, WHOLE, Handover(strategy, 2, how, 2))
    assert found.kind == kind and kind in standalone_kinds.names()
    assert found.why.startswith("Written because the script trains ") and strategy in found.why


def test_what_is_named_is_written_with_what_has_to_be_known_of_it() -> None:
    assert choose("tpu", WHOLE, Handover("MirroredStrategy", 2, DATASET)) == Choice("tpu")
    assert choose("service", WHOLE, None, trials=False) == Choice("service")
    assert "multiply GLOBAL_BATCH_SIZE" in choose("mirrored", WHOLE, Handover("MirroredStrategy", 4, FUNCTION)).why
    assert "as a single worker" in choose("multiworker", PART, Handover("MirroredStrategy", 4, FUNCTION)).why
