"""Nothing of the user's changes: files and variables are restored, and no process is left running."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import psutil
import pytest

from pipetune.capture.consumption import FIRST_ELEMENTS
from tests.default_run import cases
from tests.e2e.command import PRECIOUS, Done
from tests.files import trial

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]


def untouched(done: Done) -> bool:
    return (done.folder / "model.keras").read_bytes() == PRECIOUS


def measured(done: Done) -> bool:
    return bool(done.summary["complete"]) and done.first["profile"] is not None


@pytest.fixture(scope="module", params=cases(trial.PLACES, default=["fit"]))
def tried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> trial.Trial:
    return trial.run(tmp_path_factory.mktemp("files"), request.param)


def printed(tried: trial.Trial, first: str) -> list[list[str]]:
    lines = (tried.results / "script.log").read_text().splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{first} ")]


def test_no_file_is_lost_however_the_script_writes(tried: trial.Trial) -> None:
    assert tried.ended.returncode == 0, tried.ended.stderr
    assert tried.tried > 160 and tried.lost == {}
    assert "Changed during the measurements" not in tried.ended.stderr
    session = json.loads((tried.results / "session.json").read_text())
    loops = printed(tried, "loop")
    if loops:
        steps = [int(step) for step, *_ in loops]
        assert max(steps) > 20 and len({" ".join(name) for _, *name in loops}) == tried.tried // 4, "also in windows"
        assert session["summary"]["side_effects"]["files_restored"] > 50
        assert any(note.startswith("Restored: ") for note in session["notes"])
    for place in ("callback", "except", "finally", "atexit"):
        assert printed(tried, place) == [], "no clean-up runs, and no callback"


def test_skipped_clean_up_is_reported(tried: trial.Trial) -> None:
    notes = json.loads((tried.results / "session.json").read_text())["notes"]
    (said,) = (note for note in notes if "clean-up" in note)
    assert "its remaining code, 1 finally block, 1 with block and 1 atexit handler did not run" in said
    assert "writes_files.py:" in said


def test_caches_of_the_script_are_neither_filled_nor_locked(tried: trial.Trial) -> None:
    assert [path.name for path in (tried.own / "caches").iterdir()] == ["log"]


def test_no_process_or_temporary_file_is_left(tried: trial.Trial) -> None:
    (processes,), (files,) = printed(tried, "processes"), printed(tried, "files")
    assert len(processes) == 3 and not any(map(psutil.pid_exists, map(int, processes)))
    assert len(files) == 5 and not any(Path(file).exists() for file in files)
    assert printed(tried, "forked") == [["-15"]], "a child process ends as it does without pipetune"


@pytest.mark.run("restores")
def test_first_line_announces_what_will_run_and_be_restored(done: Done) -> None:
    first = done.said.partition("Training: ")[0]
    assert "Runs the script to its first training step on a dataset, measures there, and ends it" in first
    assert "variables and files that change meanwhile are restored" in first


@pytest.mark.exhaustive
@pytest.mark.run("checkpoints")
def test_checkpoints_and_summaries_are_not_written(done: Done) -> None:
    assert measured(done)
    assert "Suppressed while pipetune measures: " in done.said
    assert done.summary["side_effects"]["saves_suppressed"] >= 1
    assert done.summary["side_effects"]["summaries_suppressed"] >= 1
    assert not list(done.folder.rglob("ckpt*")) and not list(done.folder.rglob("checkpoint"))


@pytest.mark.run("restores")
def test_variables_and_tables_are_restored(done: Done) -> None:
    assert measured(done)
    counts = [tuple(map(int, line.split()[1:])) for line in done.log.splitlines() if line.startswith("counts ")]
    assert all(steps == weights == iterations for steps, weights, iterations, _ in counts)
    first = FIRST_ELEMENTS + 2  # the first step behind the look that showed training
    begun = [number for number, (steps, *_) in enumerate(counts) if steps == first]
    assert len(begun) > 3, "each window begins where training had been found"
    assert all(after[0] in (before[0] + 1, first) for before, after in itertools.pairwise(counts))
    assert all(20 <= counts[number][3] < 2000 for number in begun), "what the pipeline had read by then"


@pytest.mark.run("restores")
def test_log_opened_before_the_loop_keeps_its_earlier_text(done: Done) -> None:
    assert (done.folder / "log").read_text() == "counts\n" and untouched(done)
