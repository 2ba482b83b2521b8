"""Validation that computes what it skips: found, tried, verified in processes of its own, and applied."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.core.test_session_file import schema
from tests.e2e.command import ENVIRONMENT, LIMIT_SECONDS, OWN, pipetune

pytestmark = [pytest.mark.tensorflow, pytest.mark.exhaustive, pytest.mark.timeout(600)]

SCRIPT = "validation_split.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's folder with the script, and the results of its analysis in `out`."""
    folder = tmp_path_factory.mktemp("validation")
    shutil.copy(OWN / SCRIPT, folder)
    command = [sys.executable, "-m", "pipetune", "analyze", "--out", "out", SCRIPT, "loss"]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    (folder / "terminal").write_text(done.stdout)
    return folder


@pytest.fixture
def session(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "out" / "session.json").read_text()))


def test_skip_is_moved_before_the_map_for_validation_alone(folder: Path, session: dict[str, Any]) -> None:
    training, validation = session["datasets"]
    assert validation["role"] == "validation" and validation["share"] >= 0.05
    assert [one["rule"] for one in session["summary"]["datasets"][1]["rewrites"]] == ["split-early"]
    assert validation["input_speedup"]["low"] > 1.03 and validation["input_speedup"]["pairs"] >= 3
    assert {check["equal"] for check in validation["comparison"]["checks"]} <= {True, None}
    assert "elements equal" in validation["patch"]["verification"]
    text = (folder / "out" / "tuned.patch").read_text()
    assert "+    validation = everything_before_map.skip(TRAINING).map(slow).batch(16)\n" in text
    assert session["patch"]["verified"] is True
    proven = training["plan"] is not None
    assert (session["training"]["speedup"] is not None) is proven, "nothing of validation is credited to training"
    told = " ".join((folder / "terminal").read_text().split())
    assert "Validation: its input runs" in told
    assert proven or "The patch is for validation alone." in told
    jsonschema.validate(session, schema("session"))
    plan = json.loads((folder / "out" / "plan.json").read_text())
    jsonschema.validate(plan, schema("plan"))
    assert [edit["type"] for edit in plan["more"][0]["edits"]] == ["Move"]


def test_applied_patch_trains_and_validates_alike(folder: Path) -> None:
    def loss() -> list[float]:
        done = subprocess.run(
            [sys.executable, SCRIPT, "loss"],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0
        return list(ast.literal_eval((folder / "loss").read_text()))

    assert pipetune("apply", "out", cwd=folder).returncode == 0
    assert (folder / SCRIPT).read_text() != (OWN / SCRIPT).read_text()
    assert len(loss()) == 2
    assert pipetune("apply", "--revert", "out", cwd=folder).returncode == 0
    assert (folder / SCRIPT).read_text() == (OWN / SCRIPT).read_text()
