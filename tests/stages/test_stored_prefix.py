"""What could be stored in place of a service, on real datasets: nothing where nothing repeats, else with its price."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.service import StoredPrefix
from pipetune.stages.stored_prefix import stored_prefix
from tests.stages.test_own_work import DIAGNOSIS, study


def found(dataset: Any) -> StoredPrefix | None:
    one = study(dataset)
    operators = tuple(
        OperatorProfile(node.id, Stage.TRANSFORM, cpu_seconds=0.01, visits=1.0)
        for node in one.subject.source.pipeline
    )
    one.journal.dataset(profile=Profile(operators, ConsumerProfile("none")), diagnosis=DIAGNOSIS)
    return stored_prefix(one)


def test_nothing_is_offered_where_nothing_repeats() -> None:
    draws = tf.data.Dataset.range(64).map(lambda x: tf.random.uniform([], maxval=tf.cast(x, tf.float32) + 1))
    assert found(draws.batch(8)) is None
    assert stored_prefix(study(tf.data.Dataset.range(64))) is None  # nothing was measured


def test_what_repeats_is_priced_and_what_draws_is_made_anew() -> None:
    rows = tf.data.Dataset.range(64).map(lambda x: tf.fill([256], tf.cast(x, tf.float32)))
    draws = rows.map(lambda row: row + tf.random.uniform([256])).batch(8).repeat()
    stored = found(draws)
    assert stored is not None
    assert (stored.node, stored.size_bytes) == ("n1", 64 * 1024)
    assert stored.seconds_to_make is not None and stored.epochs_to_pay is None  # nobody measured the storage
    assert "64.0 KiB on storage that every host reaches" in stored.sentence and "Dataset.load" in stored.sentence
