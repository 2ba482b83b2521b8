"""One small workload with all rivals, for real; and running processes, with commands that do nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


from benchmarks.examples import training_dataset
from benchmarks.processes import run_process
from benchmarks.rivals import measuring
from benchmarks.rivals.measuring import measure_rates
from benchmarks.rivals.process_files import RatesMeasurement, read_value, write_value
from benchmarks.rivals.results import EXPERT, PIPETUNE, RIVALS
from benchmarks.rivals.rounds import Length
from benchmarks.rivals.workloads import Workload, find_workloads
from pipetune.core.edits import Insert, Plan, Rewrite, Safety
from pipetune.core.errors import PipetuneError, PlanMismatch
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import Job, Mode
from pipetune.core.plan_file import PlanFile, save_plan
from pipetune.core.settings import Settings
from pipetune.pipelines import live

SCRIPT = """
import numpy as np
import tensorflow as tf
def heavy(row):
    return tf.reduce_sum(tf.linalg.matmul(row, row, transpose_b=True), axis=1)
def training_dataset(rows=32):
    values = np.ones([rows, 64, 64], "float32")
    return tf.data.Dataset.from_tensor_slices(values).map(heavy).shuffle(8).batch(4)
"""
EXPERT_SCRIPT = """
import tensorflow as tf
import train
def training_dataset(rows=32):
    dataset = tf.data.Dataset.from_tensor_slices(tf.ones([rows, 64, 64])).map(train.heavy, num_parallel_calls=2).cache()
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
    activities: list[str] = []
    ahead = Rewrite("prefetch", "n3", Safety.EXACT, (Insert("n3", "prefetch", "ahead", {"buffer_size": 2}),), "")
    uncached = job_for(tmp_path, Plan("dataset", (ahead,))).plan
    Path(uncached).rename(tmp_path / "uncached.json")
    job = job_for(tmp_path, Plan("dataset", (CACHE,)))
    result = measure_rates(small, job, activities.append, plan_without_cache=str(tmp_path / "uncached.json"))
    found, expert = result.result, result.result.caches[EXPERT]
    assert found.failed == {} and list(found.rivals) == list(RIVALS)
    assert all(rate.examples_per_second and rate.cpu_us_per_example for rate in found.rivals.values())
    assert set(found.ratio_over) == set(RIVALS) - {PIPETUNE} == set(found.without_cache)
    assert found.caches[PIPETUNE].counts
    assert found.caches[PIPETUNE].bytes_ratio == pytest.approx(8192 / (32 * 64 * 64 * 4))
    assert "cache()" in found.plans["plumber"] and found.plans[PIPETUNE] == "cache"
    assert expert.counts and expert.held_bytes == 32 * 64 * 4 and found.plans[EXPERT] == "expert.py"
    assert found.rivals[EXPERT].examples_per_second != found.rivals["defaults"].examples_per_second
    assert activities[-1] == "round 2 of 2, 10 pipelines in turn"
    write_value(result, tmp_path / "measured.json")
    assert read_value(RatesMeasurement, tmp_path / "measured.json").plans == result.plans


def test_plan_of_another_pipeline_is_rejected(tmp_path: Path) -> None:
    small = workload(tmp_path)
    job = job_for(tmp_path, Plan("dataset"))
    (small.folder / "train.py").write_text(SCRIPT.replace(".batch(4)", ".batch(2)"))
    with pytest.raises(PlanMismatch, match="batch"):
        measure_rates(small, job, lambda activity: None)


def test_script_must_have_a_training_dataset(tmp_path: Path) -> None:
    small = workload(tmp_path)
    (small.folder / "train.py").write_text(SCRIPT.replace("rows=32", "rows"))
    with pytest.raises(PipetuneError, match=r"no training_dataset\(\) that can be called"):
        training_dataset(small.folder)


def test_peak_memory_of_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "PEAK_WINDOW_SECONDS", 0.05)
    monkeypatch.setattr(measuring, "PEAK_WARMUP_SECONDS", 0.02)
    small = workload(tmp_path)
    peak = measuring.peak_memory(training_dataset(small.folder), Plan("dataset", (CACHE,)))
    assert peak is not None and 0 <= peak < 4096


def test_output_of_a_process_is_logged_and_its_failure_reported(tmp_path: Path) -> None:
    activities: list[str] = []
    log = tmp_path / "log"
    log.write_text("of an earlier one\n")

    def run(text: str) -> float:
        return run_process((sys.executable, "-c", text), activity="counting", log=log, progress=activities.append)

    assert run("print('done')") > 0 and activities == ["counting"] and log.read_text().endswith("done\n")
    with pytest.raises(RunFailed, match=r"counting failed with exit status 3: one / two"):
        run("import sys; print('one'); print('two'); sys.exit(3)")
