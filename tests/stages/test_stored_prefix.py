"""The prefix that could be stored instead of using a service, on real datasets, and its cost."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.results import StoredPrefix
from pipetune.stages.files import stored_prefix
from tests.stages.test_graph_passes import DIAGNOSIS, study


def found(dataset: Any) -> StoredPrefix | None:
    one = study(dataset)
    operators = tuple(
        OperatorProfile(node.id, Stage.TRANSFORM, cpu_seconds=0.01, visits=1.0) for node in one.subject.source.pipeline
    )
    one.journal.update_dataset(profile=Profile(operators, ConsumerProfile("none")), diagnosis=DIAGNOSIS)
    return stored_prefix(one)


def test_no_stored_prefix_for_random_or_unprofiled_pipeline() -> None:
    draws = tf.data.Dataset.range(64).map(lambda x: tf.random.uniform([], maxval=tf.cast(x, tf.float32) + 1))
    assert found(draws.batch(8)) is None
    assert stored_prefix(study(tf.data.Dataset.range(64))) is None  # without a profile


def test_stored_prefix_ends_before_random_operator() -> None:
    rows = tf.data.Dataset.range(64).map(lambda x: tf.fill([256], tf.cast(x, tf.float32)))
    draws = rows.map(lambda row: row + tf.random.uniform([256])).batch(8).repeat()
    stored = found(draws)
    assert stored is not None
    assert (stored.node, stored.size_bytes) == ("n1", 64 * 1024)
    assert stored.seconds_to_make is not None and stored.epochs_to_pay is None  # the storage was not measured
    assert "64.0 KiB on storage that every host can reach" in stored.sentence and "Dataset.load" in stored.sentence
