"""A pipeline that can be made twice as fast, from the first run to the patch and its revert; and one that cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.command import OWN, Done, pipetune, python

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(600)]

ORIGINAL = (OWN / "overlap.py").read_text()


@pytest.fixture
def source(done: Done) -> Path:
    """The user's copy of the script, as it was when it was analyzed."""
    path = done.folder / "overlap.py"
    path.write_text(ORIGINAL)
    return path


@pytest.mark.run("tuned")
def test_plan_is_proven_and_its_patch_verified(done: Done) -> None:
    summary = done.summary
    assert (summary["status"], summary["complete"]) == ("done", True)
    (dataset,) = summary["datasets"]
    assert "prefetch" in [rewrite["rule"] for rewrite in dataset["rewrites"]]
    assert {rewrite["safety"] for rewrite in dataset["rewrites"]} == {"EXACT"}
    assert {rewrite["file"] for rewrite in dataset["rewrites"]} == {str(done.folder / "overlap.py")}
    assert summary["training"]["speedup"]["low"] > 1
    assert dataset["equality"]["equal"] is True and dataset["equality"]["epochs"] == 3
    assert dataset["order"]["epochs_kept"] is True
    patch = summary["patch"]
    assert patch["verified"] is True and not patch["not_covered"]
    assert patch["files"] == [str(done.folder / "overlap.py")]
    assert set(patch["covered"]) == {"prefetch"}
    assert "elements equal" in done.session["patch"]["verification"]
    (trial,) = [one for one in done.session["trials"] if one["kind"] == "verification"]
    assert trial["gain"] == summary["training"]["speedup"] and trial["unit"] == "training"
    assert len(trial["windows"]) == len(trial["ratios"]) >= 6
    for window in (pair[name] for pair in trial["windows"] for name in ("tuned", "original")):
        assert window["wall_seconds"] > 0 and window["cpu_seconds"] > 0 and window["others_seconds"] is not None
    assert summary["seconds"]["confirmation"] is None and summary["seconds"]["verification"] > 0


@pytest.mark.run("tuned")
def test_what_only_informs_is_measured_after_the_patch(done: Done) -> None:
    """In the process of the original script, which knows the session: of the same dataset, with the proven plan."""
    dataset, seconds = done.session["datasets"][0], done.session["seconds"]
    assert dataset["cost"]["element_wall_seconds"] > 0 and dataset["what_if"]
    assert dataset["plan"] and seconds["after_proof"] > 0
    parts = {name: spent for name, spent in seconds.items() if name not in ("total", "budget")}
    assert sum(parts.values()) <= seconds["total"], "no time is counted twice"
    assert list(dataset["step_series"]) == ["defaults", "tuned"]
    assert not any("would have had to be run once more" in note for note in done.session["notes"])


@pytest.mark.run("tuned")
def test_files_written_by_the_loop_are_removed_in_every_measuring_process(done: Done) -> None:
    """Also during verification, when two processes take windows in turn and write the same file."""
    assert done.summary["side_effects"]["files_removed"] > 0
    assert not list(done.folder.glob("checkpoint*"))
    assert (OWN / "overlap.py").read_text() == ORIGINAL


@pytest.mark.run("tuned")
def test_optional_rewrites_are_offered_with_the_needed_consent(done: Done) -> None:
    offered = done.summary["datasets"][0]["offered"]
    rejected = done.summary["datasets"][0]["rejected"]
    asking = [one["consent"] for one in offered] + [one["why"] for one in rejected]
    assert any("--allow python-parallel,statistical" in text for text in asking)
    assert "parallel-map" not in [one["rule"] for one in done.summary["datasets"][0]["rewrites"]]


@pytest.mark.run("tuned")
def test_training_speedup_is_printed_first(done: Done) -> None:
    match = re.match(r"(\d+\.\d\d)x faster training .*\((\d+\.\d\d) to (\d+\.\d\d); \d+ pairs\)", done.out)
    assert match, done.out
    found = done.summary["training"]["speedup"]
    assert [float(text) for text in match.groups()] == pytest.approx(
        [found["median"], found["low"], found["high"]], abs=0.006
    )
    assert max(map(len, done.out.splitlines())) <= 80 or str(done.results) in done.out
    assert "\x1b" not in done.out + done.err
    assert done.err.index("input or model?") < done.err.index("[trying changes]"), "the verdict comes before any trial"


@pytest.mark.run("tuned")
def test_plan_follows_its_published_schema(done: Done) -> None:
    assert {edit["type"] for edit in done.plan["edits"]} == {"Insert"}
    assert done.plan["fingerprint"] and done.plan["machine"]["cores_granted"]


@pytest.mark.run("tuned")
def test_patch_is_applied_and_reverted(done: Done, source: Path) -> None:
    diff = pipetune("apply", "--diff", done.results)
    assert diff.returncode == 0
    assert diff.stdout == (done.results / "tuned.patch").read_text()
    assert diff.stdout.startswith("# Made by pipetune") and "\n+++ b/" in diff.stdout
    removed, *added = (line for line in diff.stdout.splitlines() if re.match(r"[+-](?![+-])", line))
    assert removed.startswith("-dataset = ") and len(added) == diff.stdout.count(".prefetch(") in (1, 2)
    assert "read).prefetch(tf.data.AUTOTUNE).map(decode)" in added[0], "as small as it can be"
    assert source.read_text() == ORIGINAL, "--diff changes nothing"
    assert pipetune("apply", "--check", done.results).returncode == 1

    assert pipetune("apply", done.results).returncode == 0
    patched = source.read_text()
    without = patched.replace(".prefetch(tf.data.AUTOTUNE)", "").replace("dataset = dataset\n", "")
    assert patched != ORIGINAL and without == ORIGINAL
    assert pipetune("apply", "--check", done.results).returncode == 0
    assert python(source, done.folder / "by-python", "1").stdout == "trained 30 steps to 435.0\n"

    assert pipetune("apply", "--revert", done.results).returncode == 0
    assert source.read_bytes() == ORIGINAL.encode()


@pytest.mark.run("tuned")
def test_run_applies_the_plan_and_saves(done: Done, source: Path) -> None:
    saved = done.folder / "by-run"
    ran = pipetune("run", "--plan", done.results / "plan.json", source, saved, "1")
    assert ran.returncode == 0, ran.stderr
    assert "trained 30 steps to 435.0" in ran.stdout, "to its own end, with the same elements"
    assert "The plan is applied to" in ran.stderr
    assert list(done.folder.glob("by-run*index")), "it saves"
    assert source.read_text() == ORIGINAL


@pytest.mark.run("tuned")
def test_report_is_one_self_contained_file(done: Done) -> None:
    html = (done.results / "report.html").read_text()
    assert 'src="http' not in html and 'href="http' not in html.replace('href="http://www.w3.org', "")
    for text in ("overlap.py:48", "prefetch", "parallel-map", "faster training", "AUTOTUNE"):
        assert text in html


@pytest.mark.run("busy")
def test_analysis_ends_where_the_step_is_the_bottleneck(done: Done) -> None:
    assert done.summary["verdict"] == "not-input-bound"
    assert done.session["trials"] == [] and "[trying changes]" not in done.err
    assert (done.results / "tuned.patch").read_text() == ""
    assert done.summary["datasets"][0]["rewrites"] == []
    assert "The input is not what holds training back: the model is the limit." in " ".join(done.out.split())
    form = done.session["distributed"]
    assert form["service"]["local_rate"]["low"] > form["service"]["step_rate"]
    assert form["advice"][0].startswith("A tf.data service is not recommended: training consumes ")
    assert "A tf.data service is not recommended" in " ".join(done.out.split())
    assert "def dataset_fn" in (done.results / "distributed.py").read_text()  # requested by name, and written
    assert "NOT-INPUT-BOUND." in done.said
