"""The command line, and scripts with a session in reports/."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.cli.main import main
from pipetune.core import session_file
from pipetune.core.measurement import Interval
from pipetune.core.session import Candidate, PatchResult
from pipetune.core.settings import Command
from pipetune.source.patch_application import digest_of
from pipetune.source.unified_diffs import file_diff
from tests.cli.results import AFTER, BEFORE, Done, Shell, run
from tests.core.sessions import MACHINE, WINDOW, session


@pytest.fixture
def pipetune(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs a command line, of which the first text may hold several words."""

    def done(line: str, *words: str | Path) -> Done:
        capsys.readouterr()
        try:
            code = main([*shlex.split(line), *map(str, words)])
        except SystemExit as leaving:
            assert isinstance(leaving.code, int)
            code = leaving.code
        return Done(code, *capsys.readouterr())

    return done


@pytest.fixture
def patched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script, and a finished run in reports/ whose patch changes it."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(BEFORE)
    patch = PatchResult(
        file_diff("train.py", BEFORE, AFTER),
        (str(script),),
        {str(script): digest_of(str(script))},
        texts={str(script): BEFORE},
        covered=(WINDOW.key,),
        verified=True,
    )
    here = replace(MACHINE, cores_affinity=len(os.sched_getaffinity(0)))
    command = Command(str(script), directory=str(tmp_path), date="2026-03-01T14:15:00+00:00")
    run(replace(session(), patch=patch, machine=here, command=command))
    return script


@pytest.fixture
def unproven(patched: Path) -> Path:
    """The script and its run, whose change is not proven."""
    (folder,) = Path("reports/train/runs").glob("2*")
    one = session_file.load(folder)
    first = one.datasets[0]
    assert first.plan is not None and one.patch is not None
    gain = Interval(1.4, 1.1, 1.8, 4, "cost model and windows, 80 %")
    candidate = Candidate(first.plan, gain, 0.9, "training", "The time was over.", patch=one.patch)
    later = replace(one, patch=None, datasets=(replace(first, plan=None, candidate=candidate),), status="done")
    assert run(later).joinpath("candidate.patch").read_text() == one.patch.diff
    assert Path("reports/train/tuned.patch").read_text() == ""
    return patched
