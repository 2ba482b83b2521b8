"""`pipetune run`: run a script with a plan applied, its source untouched."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipetune.cli.command import Answer, Failure, add_target, target_of
from pipetune.core.plan_file import PLAN_FILE, load_plan

SUMMARY = "run a script with a plan applied, source untouched"

DESCRIPTION = """\
Runs the script to its end, as Python would: nothing is measured, stopped or
suppressed. The plan is applied to the dataset for which it was made. A plan for
another pipeline is refused with the first operator that differs."""

USAGE = "pipetune run --plan PLAN (SCRIPT | -m MODULE) [ARGUMENTS...]"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", required=True, metavar="PLAN", help="plan.json, or the folder that holds it")
    add_target(parser)


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: there is no such script or plan, or the plan is for another pipeline.
    """
    from pipetune.supervisor.single_worker import run_with_plan

    target = target_of(arguments)
    path = Path(arguments.plan).absolute()
    load_plan(path)  # report an unreadable plan before TensorFlow is started
    plan = path / PLAN_FILE if path.is_dir() else path
    status = run_with_plan(target, plan, prints_to_stderr=arguments.json)
    failure = None
    if status and arguments.json:  # for people, the script has shown what happened
        message = "Interrupted." if status == 130 else "The script failed: its output is on standard error."
        failure = Failure(message, exit_code=status)
    return Answer(paths={"plan": plan}, exit_code=status, failure=failure)
