"""One small workload beside all its rivals, for real; the processes around it with commands that do nothing."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

import tensorflow as tf

from pipetune.bench.examples import training_dataset
from pipetune.bench.rivals import measuring, peaks
from pipetune.bench.rivals.exchange import Measured, hand_over, take
from pipetune.bench.rivals.one_workload import run
from pipetune.bench.rivals.rounds import Length
from pipetune.core.benchmarks import EXPERT, FOLDER, PIPETUNE, RIVALS, Workload, find_workloads
from pipetune.core.edits import Insert, Plan, Rewrite, Safety, SetOption, apply_edits
from pipetune.core.errors import PipetuneError, PlanMismatch
from pipetune.core.messages import Job, Mode, WorkloadJob
from pipetune.core.plan_file import PlanFile, save_plan
from pipetune.core.results import RunFailed
from pipetune.core.settings import Settings
from pipetune.pipelines import live, replay

SCRIPT = """
import numpy as np
import tensorflow as tf


def heavy(row):
    return tf.reduce_sum(tf.linalg.matmul(row, row, transpose_b=True), axis=1)


def training_dataset(rows=32):
    values = np.ones([rows, 64, 64], "float32")
    dataset = tf.data.Dataset.from_tensor_slices(values).map(heavy)
    return dataset.shuffle(8).batch(4)
"""
EXPERT_SCRIPT = """
import tensorflow as tf
import train


def training_dataset(rows=32):
    values = tf.ones([rows, 64, 64])
    dataset = tf.data.Dataset.from_tensor_slices(values).map(train.heavy, num_parallel_calls=2).cache()
    return dataset.shuffle(8).batch(4)


train.training_dataset = training_dataset
"""
CACHE = Rewrite(
    "cache", "n1", Safety.EXACT, (Insert("n1", "cache", "cache@n1", {"filename": ""}),), "", predicted_bytes=8192.0
)


def workload(tmp_path: Path) -> Workload:
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "workload.toml").write_text('title = "Small"')
    (folder / "train.py").write_text(SCRIPT)
    (folder / "expert.py").write_text(EXPERT_SCRIPT)
    return find_workloads(tmp_path)["small"]


def job_for(tmp_path: Path, plan: Plan) -> Job:
    pipeline = live.read(training_dataset(tmp_path / "small")).pipeline
    save_plan(PlanFile(pipeline.fingerprint, pipeline.identities(), plan.edits, plan.rewrites), tmp_path / "plan.json")
    return Job(Mode.BENCH, -1, Settings(quick=True), plan=str(tmp_path / "plan.json"), out=str(tmp_path))


@pytest.mark.exhaustive
def test_all_rivals_are_measured_on_the_same_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "QUICK", Length(2, 0.05))
    small = workload(tmp_path)
    said: list[str] = []
    ahead = Rewrite("prefetch", "n3", Safety.EXACT, (Insert("n3", "prefetch", "ahead", {"buffer_size": 2}),), "")
    bare = job_for(tmp_path, Plan("dataset", (ahead,))).plan
    Path(bare).rename(tmp_path / "bare.json")
    job = replace(
        job_for(tmp_path, Plan("dataset", (CACHE,))),
        workload=WorkloadJob(plan_without_cache=str(tmp_path / "bare.json")),
    )
    found = measuring.measure_workload(small, job, said.append)
    assert found.failed == {}
    assert list(found.rivals) == list(RIVALS)
    assert all(rate.examples_per_second and rate.cpu_us_per_example for rate in found.rivals.values())
    assert set(found.ratio_over) == set(RIVALS) - {PIPETUNE} == set(found.without_cache)
    assert found.caches[PIPETUNE].counts and found.caches[PIPETUNE].bytes_ratio == pytest.approx(
        8192 / (32 * 64 * 64 * 4)
    )
    assert "cache()" in found.sets["plumber"] and found.sets[PIPETUNE] == "cache"
    assert found.caches[EXPERT].counts and found.caches[EXPERT].held_bytes == 32 * 64 * 4
    assert found.sets[EXPERT] == "expert.py"
    assert found.rivals[EXPERT].examples_per_second != found.rivals["defaults"].examples_per_second
    assert said[-1] == "round 2 of 2, 10 pipelines in turn"
    hand_over(found, tmp_path / "measured.json")
    assert take(Measured, tmp_path / "measured.json").plans == found.plans


def test_a_plan_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    small = workload(tmp_path)
    job = job_for(tmp_path, Plan("dataset"))
    (small.folder / "train.py").write_text(SCRIPT.replace(".batch(4)", ".batch(2)"))
    with pytest.raises(PlanMismatch, match="batch"):
        measuring.measure_workload(small, job, lambda doing: None)


def test_a_script_must_say_what_it_trains_on(tmp_path: Path) -> None:
    small = workload(tmp_path)
    (small.folder / "train.py").write_text(SCRIPT.replace("rows=32", "rows"))
    with pytest.raises(PipetuneError, match=r"no training_dataset\(\) that can be called"):
        training_dataset(small.folder)


@pytest.mark.parametrize("name", ["table", "series", "artificial"])
def test_the_examples_say_what_they_train_on(name: str) -> None:
    dataset = training_dataset(FOLDER / name)
    assert isinstance(dataset, tf.data.Dataset)
    assert next(iter(dataset)) is not None


def test_a_peak_is_that_of_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "WINDOW_SECONDS", 0.05)
    monkeypatch.setattr(peaks, "WARMUP_SECONDS", 0.02)
    small = workload(tmp_path)
    peak = peaks.peak_of(training_dataset(small.folder), Plan("dataset", (CACHE,)))
    assert peak is not None and 0 <= peak < 4096


def test_an_option_may_be_named() -> None:
    source = live.read(tf.data.Dataset.range(4))
    edited = apply_edits(source.pipeline, [SetOption("autotune.autotune_algorithm", "STAGE_BASED")])
    options = replay.replay(source, edited).options()
    assert options.autotune.autotune_algorithm is tf.data.experimental.AutotuneAlgorithm.STAGE_BASED


def test_a_process_is_heard_and_its_failure_told(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "log"
    log.write_text("of an earlier one\n")
    seconds = run((sys.executable, "-c", "print('done')"), doing="counting", log=log, say=said.append)
    assert seconds > 0 and said == ["counting"] and log.read_text().endswith("done\n")
    with pytest.raises(RunFailed, match=r"counting ended with 3: one / two"):
        failing = "import sys; print('one'); print('two'); sys.exit(3)"
        run((sys.executable, "-c", failing), doing="counting", log=log, say=said.append)
