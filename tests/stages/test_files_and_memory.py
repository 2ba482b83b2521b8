"""Measurements of files and of memory growth on real pipelines, and which part of one could be stored."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

from pipetune.core.profile import ConsumerProfile, OperatorProfile, Profile, Stage
from pipetune.core.results import StoredPrefix
from pipetune.core.storage import SweepReader
from pipetune.measure import files, source_reads
from pipetune.stages.files import _kinds, measure_files, stored_prefix, sweep_reads
from pipetune.stages.profiling import watch_memory
from pipetune.stages.study import Study
from tests.stages.studies import DIAGNOSIS, PROFILE, operators_of, study_here

Dataset = tf.data.Dataset


def profile_of(study: Study, **consumer: Any) -> Profile:
    costs = operators_of(study, Stage.EXTRACT, wall_seconds=1e-5, bytes_out=1000.0)
    return Profile(costs, ConsumerProfile("none", **consumer))


def reading(shards: Path, share: float, **consumer: Any) -> tuple[Study, Profile]:
    """The study of a pipeline that reads files, and its profile: that takes a share of the input's time."""
    study = study_here(Dataset.list_files(str(shards / "*.tfrecord")).interleave(tf.data.TFRecordDataset).batch(10))
    node = source_reads.reading_operator(study.subject.source)
    reader = OperatorProfile(node.id, Stage.EXTRACT, wall_seconds=share, visits=1.0, bytes_out=1000.0)
    return study, replace(profile_of(study, **consumer), operators=(reader,), input_wall_seconds=1.0)


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for number in range(4):
        with tf.io.TFRecordWriter(str(tmp_path / f"{number}.tfrecord")) as writer:
            for _ in range(50):
                writer.write(os.urandom(20_000))
        with open(tmp_path / f"{number}.tfrecord", "rb") as stream:
            os.fsync(stream.fileno())
    return tmp_path


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as being in memory: the system may have evicted what was just written."""
    residency = files.residency
    monkeypatch.setattr(files, "residency", lambda *given, **named: replace(residency(*given, **named), share=1.0))


@pytest.mark.usefixtures("patient_sweeps", "resident")
def test_files_of_a_pipeline(shards: Path) -> None:
    study, profile = reading(shards, 0.06, bound_seconds=0.1, input_seconds=0.01)
    profile = measure_files(study, profile)
    # A notable share: read from memory, the files say nothing of storage before the decision.
    assert profile.files is not None and {one.reader for one in profile.files.sweeps} == {SweepReader.SOURCE}
    use = sweep_reads(study, profile).files
    assert use is not None and use == study.journal.result.profile.files  # type: ignore[union-attr]
    assert use.files == 4 and use.bytes_total == sum(path.stat().st_size for path in shards.iterdir())
    assert use.directory == str(shards) and use.kinds == (".tfrecord",) and use.complete and use.opened == 0
    assert {one.reader for one in use.sweeps} == {SweepReader.FILES, SweepReader.SOURCE}
    if source_reads.read_counters() is not None:
        assert use.bytes_per_element == pytest.approx(10 * 20_016, rel=0.5)
        assert use.needed == pytest.approx(10 * (use.bytes_per_element or 0.0))
        assert use.reached == pytest.approx(100 * (use.bytes_per_element or 0.0))
    assert use.residency.left is None, "nothing was dropped"


@pytest.mark.usefixtures("patient_sweeps", "resident")
def test_sweeps_wait_for_the_decision_if_reading_takes_no_notable_time(shards: Path) -> None:
    study, profile = reading(shards, 0.04)
    before = measure_files(study, profile)
    assert before.files is not None and before.files.sweeps == () and before.files.notes == ()
    after = sweep_reads(study, before).files
    assert after is not None and {one.reader for one in after.sweeps} == {SweepReader.FILES, SweepReader.SOURCE}


def test_cold_windows_start_with_dropped_page_cache(shards: Path) -> None:
    names = [str(path) for path in shards.iterdir()]
    if files.filesystem(names[0]) in ("tmpfs", "ramfs"):
        pytest.skip("nothing to drop here")
    for is_cold in (False, True):
        runner = study_here(tf.data.TFRecordDataset(names), cold=is_cold).runner
        for name in names:
            Path(name).read_bytes()
        runner.drop_file_caches()
        assert ((files.count_resident(names).share or 0.0) < 0.5) is is_cold


def test_pipeline_without_files_is_not_run() -> None:
    ran = tf.Variable(0)
    study = study_here(Dataset.range(10).map(lambda x: ran.assign_add(1)))
    before = int(ran)
    use = measure_files(study, profile_of(study)).files
    assert use is not None and use.files == 0 and use.sweeps == () and use.bytes_per_element is None
    assert int(ran) == before and "files" not in study.journal.session.seconds


def test_short_budget_skips_sweeps_with_note(shards: Path) -> None:
    dataset = Dataset.list_files(str(shards / "*")).flat_map(tf.data.TFRecordDataset)
    study = study_here(dataset, trials=True, budget_seconds=3.0)
    use = measure_files(study, profile_of(study)).files
    assert use is not None and use.files == 4 and use.sweeps == ()
    assert use.notes == ("the budget is too short for a sweep of parallel reads",)


def test_failing_pipeline_leaves_note() -> None:
    study = study_here(tf.data.TFRecordDataset(["gs://no-such-bucket-of-pipetune/x"]).map(tf.strings.length))
    use = measure_files(study, profile_of(study)).files
    assert use is not None and use.remote == ("gs",) and use.remote_files == 1
    assert use.sweeps == () and any("raised" in note for note in use.notes)


def test_growing_memory_is_reported_and_steady_memory_is_not() -> None:
    kept: list[Any] = []

    def leak(number: Any) -> Any:
        time.sleep(0.001)
        kept.append(np.ones(20_000))
        return number

    leaking = Dataset.range(100).map(lambda x: tf.py_function(leak, [x], tf.int64))
    study = study_here(leaking)
    found = watch_memory(study, profile_of(study)).growth
    kept.clear()
    assert found is not None and found.steady
    assert found.bytes_per_element.median == pytest.approx(160_000, rel=0.3)
    assert found.epoch_elements == 100
    (finding,) = study.journal.session.findings
    assert finding.code == "memory-grows" and "MiB per epoch" in finding.message and "map" in finding.hint

    steady = study_here(Dataset.range(1000).map(lambda x: tf.zeros([1000]) + tf.cast(x, tf.float32)).shuffle(100))
    found = watch_memory(steady, profile_of(steady)).growth
    assert found is not None and not found.steady
    assert steady.journal.session.findings == ()
    held = steady.journal.result.profile.held  # type: ignore[union-attr]
    (shuffle,) = (one for one in held if one.name.startswith("Shuffle"))
    assert shuffle.elements == pytest.approx(100, abs=1)
    assert shuffle.bytes == pytest.approx(400_000, rel=0.02)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough files to count as many, of different sizes, in two folders."""
    made = tmp_path_factory.mktemp("small")
    for folder in ("0", "1"):
        (made / folder).mkdir()
    for number in range(1030):
        (made / str(number % 2) / f"{number:04}.bin").write_bytes(bytes([number % 251]) * (number % 7))
    return made


def test_many_small_files_are_compared_with_one_file(small: Path, tmp_path: Path) -> None:
    paths = sorted(str(path) for path in small.glob("*/*.bin"))
    study = study_here(Dataset.from_tensor_slices(paths).map(tf.io.read_file).batch(8), out=str(tmp_path), quick=True)
    use = measure_files(study, profile_of(study)).files
    assert use is not None and use.has_many_small_files and use.small is not None
    assert use.small.files == 256 and use.small.apart_seconds > use.small.together_seconds > 0
    assert not list(tmp_path.glob("pipetune-files-*"))
    assert files.compare([*paths, str(tmp_path / "gone")]) is not None  # not in the sample
    assert files.compare([str(tmp_path / "gone")]) is None and files.compare([]) is None


def test_shard_numbers_after_suffix_are_ignored() -> None:
    paths = [f"/data/digits-train.tfrecord-0000{shard}-of-00002" for shard in range(2)]
    assert _kinds([*paths, "/data/names.txt", "/data/README"]) == (".tfrecord", ".txt")


def found(dataset: Any) -> StoredPrefix | None:
    one = study_here(dataset)
    operators = operators_of(one, cpu_seconds=0.01, visits=1.0)
    one.journal.update_dataset(profile=replace(PROFILE, operators=operators), diagnosis=DIAGNOSIS)
    return stored_prefix(one)


def test_no_stored_prefix_for_random_or_unprofiled_pipeline() -> None:
    draws = tf.data.Dataset.range(64).map(lambda x: tf.random.uniform([], maxval=tf.cast(x, tf.float32) + 1))
    assert found(draws.batch(8)) is None
    assert stored_prefix(study_here(tf.data.Dataset.range(64))) is None  # without a profile


def test_stored_prefix_ends_before_random_operator() -> None:
    rows = tf.data.Dataset.range(64).map(lambda x: tf.fill([256], tf.cast(x, tf.float32)))
    draws = rows.map(lambda row: row + tf.random.uniform([256])).batch(8).repeat()
    stored = found(draws)
    assert (stored.node, stored.size_bytes) == ("n1", 64 * 1024)
    assert stored.seconds_to_make is not None and stored.epochs_to_pay is None  # the storage was not measured
    assert "64.0 KiB on storage that every host can reach" in stored.sentence and "Dataset.load" in stored.sentence
