"""The GitHub action and its example workflow: their files are valid, and their commands are those of pipetune."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipetune.cli.command import target_of
from pipetune.cli.main import parse

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
WORKFLOW = ROOT / "examples" / "ci" / "pipetune.yml"
FAKE = """#!{python}
import json, os, sys
with open("calls", "a") as stream:
    stream.write(json.dumps(sys.argv[1:]) + "\\n")
if "markdown" in sys.argv:
    print("# the summary")
sys.exit(int(os.environ["FAILS"]) if sys.argv[1] == "check" else 0)
"""


def read(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    return content


def run_action(folder: Path, inputs: dict[str, str], *, fails: int = 0) -> tuple[int, list[list[str]]]:
    """Runs the steps of the action as GitHub does, with a pipetune that only records how it is called.

    Returns:
        The exit status of the last step that ran, and the arguments of each call.
    """
    fake = folder / "bin" / "pipetune"
    fake.parent.mkdir()
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    action = read(ACTION)
    values = {name: about.get("default", "") for name, about in action["inputs"].items()} | inputs
    path = f"{fake.parent}:{os.environ['PATH']}"
    own = {**os.environ, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary"), "FAILS": str(fails)}
    status = 0
    for step in action["runs"]["steps"]:
        variables = {}
        for name, text in step["env"].items():
            for given, value in values.items():
                text = text.replace("${{ inputs." + given + " }}", value)
            assert "${{" not in text
            variables[name] = text
        assert step["shell"] == "bash" and "${{" not in step["run"], "an input must not become a part of the script"
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        status = subprocess.run(bash, cwd=folder, env=own | variables, check=False).returncode
        if status:
            break
    calls = folder / "calls"
    return status, [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []


OF_A_MODULE = {"script": "-m package.train", "arguments": "-v", "budget": "30", "max-input-wait": "10%"}


@pytest.mark.parametrize(
    ("inputs", "target", "limits"),
    [
        ({"script": "train.py"}, ("train.py", ()), (None, None)),
        (
            {"script": "train.py", "arguments": "--name 'a  b' --glob *.py --x=\"$(touch hacked)\"", "baseline": "old"},
            ("train.py", ("--name", "a  b", "--glob", "*.py", "--x=$(touch hacked)")),
            (None, "old"),
        ),
        (OF_A_MODULE, ("package.train", ("-v",)), (0.1, None)),
    ],
)
def test_commands_of_the_action_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: dict[str, str], target: Any, limits: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    status, calls = run_action(tmp_path, inputs)
    analyze, summary, check = (parse(words) for words in calls)
    assert analyze is not None and summary is not None and check is not None
    assert status == 0
    found = target_of(analyze)
    assert (found.module or Path(found.script).name, found.arguments) == target
    assert analyze.budget == float(inputs.get("budget", "60"))
    assert analyze.out == summary.session == check.session == read(ACTION)["outputs"]["results"]["value"]
    assert (summary.format, check.format) == ("markdown", "github")
    for one in (summary, check):
        assert (one.max_input_wait, one.baseline) == limits
    assert not (tmp_path / "hacked").exists()


def test_arguments_with_an_open_quote_are_refused(tmp_path: Path) -> None:
    status, calls = run_action(tmp_path, {"script": "train.py", "arguments": "--name 'a"})
    assert status != 0 and not calls


def test_check_that_fails_fails_the_action_and_leaves_its_summary(tmp_path: Path) -> None:
    status, calls = run_action(tmp_path, {"script": "train.py"}, fails=1)
    assert status == 1 and calls[-1][-1] == "github"
    assert (tmp_path / "summary").read_text() == "# the summary\n"


def test_example_workflow_uses_the_inputs_and_outputs_of_the_action() -> None:
    action = read(ACTION)
    (job,) = read(WORKFLOW)["jobs"].values()
    (step,) = (step for step in job["steps"] if "pipetune@" in step.get("uses", ""))
    assert set(step["with"]) <= set(action["inputs"])
    assert {name for name, about in action["inputs"].items() if about.get("required")} <= set(step["with"])
    (upload,) = (step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "${{ steps." + step["id"] + ".outputs.results }}"
    assert "results" in action["outputs"]
