"""Nothing of the user's changes: files stay as they were, variables and tables are put back."""

from __future__ import annotations

import json

import pytest

from tests.e2e.command import PRECIOUS, Done

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def untouched(done: Done) -> bool:
    return (done.folder / "model.keras").read_bytes() == PRECIOUS


def measured(done: Done) -> bool:
    return done.code == 0 and done.summary["complete"] and done.first["profile"] is not None


@pytest.mark.run("bare-except")
def test_a_bare_except_swallows_the_stop_and_saves_nothing(done: Done) -> None:
    assert untouched(done) and measured(done)
    assert done.summary["side_effects"]["saves_suppressed"] >= 1
    assert "training stopped, saving anyway" in done.log
    assert done.log.rstrip().endswith("saved"), "the script came to its own end"


@pytest.mark.run("bare-except")
def test_the_first_line_says_what_will_happen(done: Done) -> None:
    assert done.said.startswith("Runs the script to its first training step and measures there")
    assert "saving is switched off" in done.said.partition("[")[0]


@pytest.mark.run("finally")
def test_finally_saves_nothing(done: Done) -> None:
    assert untouched(done) and measured(done)
    assert done.summary["side_effects"]["saves_suppressed"] >= 1


@pytest.mark.run("atexit")
def test_atexit_saves_nothing(done: Done) -> None:
    assert untouched(done) and measured(done)
    assert done.summary["side_effects"]["saves_suppressed"] >= 1


@pytest.mark.run("loop-saves")
def test_a_loop_saves_nothing_inside_a_window(done: Done) -> None:
    assert untouched(done) and measured(done)
    assert done.summary["side_effects"]["saves_suppressed"] >= 2
    assert "Kept from happening while pipetune measures: saves." in done.said
    assert list(done.folder.iterdir()) == [done.folder / "model.keras"]


@pytest.mark.run("checkpoints")
def test_checkpoints_and_summaries_are_not_written(done: Done) -> None:
    assert measured(done)
    assert done.summary["side_effects"]["saves_suppressed"] >= 1
    assert done.summary["side_effects"]["summaries_suppressed"] >= 1
    assert not list(done.folder.rglob("ckpt*")) and not list(done.folder.rglob("checkpoint"))


@pytest.mark.run("restores")
def test_variables_and_tables_are_put_back(done: Done) -> None:
    assert measured(done)
    counts = json.loads((done.folder / "counts.json").read_text())
    assert counts["steps"] == counts["iterations"] == counts["weights"] == 20, "where training was stopped"
    assert 20 <= counts["seen"] < 2000, "what the pipeline had read by then"
    assert done.summary["side_effects"]["saves_suppressed"] == 1
    assert not list(done.folder.glob("weights*"))
