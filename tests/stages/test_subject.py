"""What counts as a script that fixes its randomness."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.stages.study import Subject
from pipetune.tf.pipelines import live
from pipetune.tf.script.consumers import NoConsumer
from pipetune.tf.script.consumption import Consumption

Dataset = tf.data.Dataset


def _fixed(dataset: Any) -> bool:
    use = Consumption(dataset=dataset, variable="train", role="training", how="test")
    return Subject(live.read(dataset, name="train"), NoConsumer("nobody trains"), use).randomness_fixed


@pytest.mark.parametrize(("asked", "fixed"), [(None, False), (True, True), (False, False)])
def test_only_asking_for_one_order_fixes_it(asked: bool | None, fixed: bool) -> None:
    options = tf.data.Options()
    if asked is not None:
        options.deterministic = asked
    assert _fixed(Dataset.range(9).with_options(options)) is fixed


def test_seeds_fix_it() -> None:
    assert _fixed(Dataset.range(9).shuffle(3, seed=1))
    assert not _fixed(Dataset.range(9).shuffle(3))
