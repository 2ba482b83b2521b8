"""Trials that are interrupted, and a pipeline that must not be changed."""

from __future__ import annotations

import jsonschema
import pytest

from tests.core.test_session_file import schema
from tests.e2e.command import Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.exhaustive
@pytest.mark.run("interrupted")
def test_ctrl_c_leaves_a_complete_report(done: Done) -> None:
    assert done.code == 130
    assert "Interrupted. Everything measured until then was saved." in done.said
    assert done.files >= {"session.json", "report.html", "tuned.patch", "plan.json"}
    jsonschema.validate(done.session, schema("session"))
    assert done.summary["status"] == "interrupted"
    assert done.first["diagnosis"]["verdict"] == done.summary["verdict"]
    assert done.first["profile"]["operators"] and "of each step" in done.out + done.err
    assert "Interrupted" in (done.results / "report.html").read_text()
    assert (done.results / "tuned.patch").read_text() == ""
    assert not list(done.folder.glob("checkpoint*")), "nothing of the user's is saved then either"


@pytest.mark.exhaustive
@pytest.mark.run("variable")
def test_map_that_reads_a_trained_variable_is_not_rewritten(done: Done) -> None:
    assert done.code == 0
    (dataset,) = done.summary["datasets"]
    assert dataset["rewrites"] == [] and (done.results / "tuned.patch").read_text() == ""
    silent = {silence["rule"]: silence["why"] for silence in done.first["silences"]}
    assert "variable" in silent["prefetch"] and "variable" in silent["cache"]
    assert not {one["rule"] for one in dataset["offered"]} & {"prefetch", "cache"}
    assert "python-parallel" in str(dataset["offered"] + dataset["rejected"]) or "parallel-map" in silent
