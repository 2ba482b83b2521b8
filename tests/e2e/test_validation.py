"""Validation that computes what it skips: found, tried, verified in processes of its own, and applied."""

from __future__ import annotations

import ast

import pytest

from tests.e2e.command import OWN, Done, pipetune, python

pytestmark = [pytest.mark.tensorflow, pytest.mark.exhaustive, pytest.mark.timeout(600)]

SCRIPT = "validation_split.py"


@pytest.mark.run("validation")
def test_skip_is_moved_before_the_map_for_validation_alone(done: Done) -> None:
    training, validation = done.session["datasets"]
    assert validation["role"] == "validation" and validation["share"] >= 0.05
    assert [one["rule"] for one in done.summary["datasets"][1]["rewrites"]] == ["split-early"]
    assert validation["input_speedup"]["low"] > 1.03 and validation["input_speedup"]["pairs"] >= 3
    assert {check["equal"] for check in validation["comparison"]["checks"]} <= {True, None}
    assert "elements equal" in validation["patch"]["verification"]
    text = (done.results / "tuned.patch").read_text()
    assert "+    validation = everything_before_map.skip(TRAINING).map(slow).batch(16)\n" in text
    assert done.session["patch"]["verified"] is True
    proven = training["plan"] is not None
    assert (done.session["training"]["speedup"] is not None) is proven, "nothing of validation is credited to training"
    told = " ".join(done.out.split())
    assert "Validation: its input runs" in told
    assert proven or "The patch is for validation alone." in told
    assert [edit["type"] for edit in done.plan["more"][0]["edits"]] == ["Move"]


@pytest.mark.run("validation")
def test_applied_patch_trains_and_validates_alike(done: Done) -> None:
    script, loss = done.folder / SCRIPT, done.folder / "loss"
    assert pipetune("apply", done.results).returncode == 0
    assert script.read_text() != (OWN / SCRIPT).read_text()
    assert python(script, loss).returncode == 0
    assert len(ast.literal_eval(loss.read_text())) == 2
    assert pipetune("apply", "--revert", done.results).returncode == 0
    assert script.read_text() == (OWN / SCRIPT).read_text()
