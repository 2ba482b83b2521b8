"""`pipetune bench` with a fake process: saved files, output and exit status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from pipetune.cli.main import main
from pipetune.core.errors import PipetuneError
from pipetune.report.progress import Progress
from pipetune.supervisor.benching import RivalsRequest, compare_with_rivals

pytestmark = pytest.mark.slow

FAKE = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from pipetune.core.messages import *
from tests.core.invented_benchmarks import result
from tests.core.sessions import MACHINE
job = read_job(Path(sys.argv[1]))
send = MessageWriter(job.message_descriptor).send
assert job.mode is Mode.BENCH and Path(job.workload.examples).name == "examples"
with open(os.path.join(job.out, "asked"), "a") as stream:
    stream.write(" ".join(job.arguments) + "\\n")
dies_after = int(os.environ.get("DIES_AFTER", 9))
for position, name in enumerate(job.arguments):
    if position == dies_after:
        os._exit(1)
    send(Progress("bench", name + ": beginning"))
    if os.environ.get("FAILS") == name:
        send(LogLine(name + " could not be measured"))
        continue
    send(WorkloadMeasured(result(name, 3.0), MACHINE))
send(WorkerFinished(1 if "FAILS" in os.environ else 0))
"""


@pytest.fixture
def fake(tmp_path: Path) -> tuple[str, ...]:
    path = tmp_path / "fake.py"
    path.write_text(FAKE.format(root=str(Path(__file__).resolve().parents[2])))
    for name in ("table", "series", "digits"):
        (tmp_path / "examples" / name).mkdir(parents=True)
        (tmp_path / "examples" / name / "workload.toml").write_text("")
    return (sys.executable, str(path))


def run(
    command: tuple[str, ...], tmp_path: Path, *names: str, quick: bool = False, seed: int = 0, again: bool = False
) -> tuple[list[str], int]:
    shown: list[str] = []
    request = RivalsRequest(names, tmp_path, quick=quick, seed=seed, again=again, examples=tmp_path / "examples")
    with Progress(io.StringIO()) as screen:
        _, status = compare_with_rivals(
            request, screen=screen, show=lambda result: shown.append(result.name), command=command
        )
    return shown, status


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_finished_workloads_are_saved_and_not_measured_again(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIES_AFTER", "1")
    assert run(fake, tmp_path) == (["digits"], 1)
    data = json.loads((tmp_path / "benchmarks.json").read_text())
    assert [workload["name"] for workload in data["workloads"]] == ["digits"]
    assert data["machine"]["processor"] == "An Invented Processor"
    assert "## digits" in (tmp_path / "benchmarks.md").read_text() and (tmp_path / "benchmarks.png").exists()

    monkeypatch.delenv("DIES_AFTER")
    assert run(fake, tmp_path) == (["digits", "series", "table"], 0)
    assert asked(tmp_path) == ["digits series table", "series table"]
    assert run(fake, tmp_path) == (["digits", "series", "table"], 0)  # all are measured: no process is started
    run(fake, tmp_path, "series")  # named workloads are measured again
    run(fake, tmp_path, again=True)
    run(fake, tmp_path, seed=1)  # results of another seed are not continued
    assert [len(line.split()) for line in asked(tmp_path)] == [3, 2, 1, 3, 3]


def test_failed_workload_does_not_affect_others(
    fake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "series")
    assert run(fake, tmp_path) == (["digits", "table"], 1)
    text = (tmp_path / "benchmarks.md").read_text()
    assert "## digits" in text and "## series" not in text and "missing: series" in text


def test_quick_suite_has_its_own_workloads_and_files(fake: tuple[str, ...], tmp_path: Path) -> None:
    assert run(fake, tmp_path, quick=True)[1] == 0
    assert asked(tmp_path) == ["table series"]
    assert (tmp_path / "benchmarks-quick.json").exists() and not (tmp_path / "benchmarks.json").exists()


def test_unknown_workload_is_usage_error(
    fake: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PipetuneError, match="no workload called 'speed'"):
        run(fake, tmp_path, "speed")
    assert main(["bench", "speed"]) == 2
    said = capsys.readouterr().err
    assert "no workload called 'speed'" in said and "digits" in said
