"""Scripts that train in several processes in lockstep, each a real process started by the command."""

from __future__ import annotations

import pytest

from tests.e2e.command import Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


@pytest.mark.exhaustive
@pytest.mark.run("in-step")
def test_all_workers_take_the_steps_of_every_window(done: Done) -> None:
    assert done.summary["status"] == "done"
    found = done.first["handover"]
    assert (found["strategy"], found["workers"], found["shares"]) == ("MultiWorkerMirroredStrategy", 2, [8])
    consumer = done.first["profile"]["consumer"]
    assert consumer["kind"] == "loop" and consumer["real_seconds"] and consumer["bound_seconds"], consumer["why"]
    assert not any(trial["outcome"] == "failed" for trial in done.session["trials"]), done.session["trials"]
    assert any(trial["unit"] == "training" and trial["ratios"] for trial in done.session["trials"])
    assert len(done.logs) == 2
    assert not any("the end" in log or "Traceback" in log for log in done.logs)


@pytest.mark.exhaustive
@pytest.mark.run("in-step")
def test_worker_with_more_input_work_is_named(done: Done) -> None:
    skew = done.summary["datasets"][0]["skew"]
    assert [len(one["rounds_ms"]) for one in skew["inputs"]] == [3, 3]
    assert (skew["slowest"], skew["ratio"] > 1) == (1, True), skew
    assert "Input skew: each alone, the inputs of 2 workers take" in " ".join(done.out.split())
    assert any("2 workers share" in note for note in done.session["notes"])


@pytest.mark.exhaustive
@pytest.mark.run("in-step")
def test_gain_in_all_workers_is_patched_and_verified_in_all(done: Done) -> None:
    assert done.summary["training"]["speedup"]["low"] > 1, done.out
    (dataset,) = done.summary["datasets"]
    assert "parallel-map" in [rewrite["rule"] for rewrite in dataset["rewrites"]]
    assert dataset["equality"]["equal"] is True
    patch = done.summary["patch"]
    assert patch["verified"] is True and "parallel-map" in patch["covered"]
    assert ".map(read, num_parallel_calls=" in (done.results / "tuned.patch").read_text()
    assert "patched script" in done.said
