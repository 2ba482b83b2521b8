"""The runs of `pipetune analyze` that the tests examine, by name. Each runs once, for any number of tests."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from tests.e2e.command import OWN, Case, wait_for


def interrupt(process: subprocess.Popen[str], stderr: Path) -> None:
    """Presses Ctrl-C once trials have begun."""
    wait_for("[trying changes]", stderr, process)
    time.sleep(2)
    process.send_signal(signal.SIGINT)


CASES = {
    # the run ends early
    "raises-within": Case("raises_within_map.py", ("assert",), options=("--no-trials",)),
    # files that must not be overwritten
    "checkpoints": Case("checkpoint_manager.py", ("{folder}",)),
    "restores": Case(str(OWN / "restored.py"), ("{folder}",)),
    # ways to run a script
    "changes-directory": Case("changes_directory.py", ("{folder}",)),
    # options
    "multiworker": Case(str(OWN / "records.py"), ("{folder}",), options=("--no-trials", "--distribute", "multiworker")),
    "busy": Case(
        str(OWN / "waits_in_its_step.py"), ("{folder}",), options=("--budget", "10", "--distribute", "service")
    ),
}

LONG = {  # with trials, which mostly wait
    "tuned": Case("{folder}/overlap.py", ("{folder}/checkpoint",), options=("--budget", "30"), copied="overlap.py"),
    "interrupted": Case(str(OWN / "overlap.py"), ("{folder}/checkpoint",), ("--budget", "60"), interrupt),
    "in-step": Case(
        str(OWN / "waits_on_workers.py"),
        options=("--budget", "20", "--workers", "2", "--allow", "python-parallel,statistical"),
    ),
    "validation": Case(
        "{folder}/validation_split.py", ("{folder}/loss",), (), copied="validation_split.py", quick=False
    ),
}
