"""`pipetune run`: run a script with a plan applied, its source untouched."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipetune.cli.command import Subparsers, add_command, add_target, target_of

_DESCRIPTION = """\
Runs the script to its end, as Python would: nothing is measured, stopped or
suppressed. The plan is applied to the dataset for which it was made. A plan for
another pipeline is refused with the first operator that differs."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Adds the parser of this command and returns it."""
    parser = add_command(
        subparsers,
        "run",
        summary="run a script with a plan applied, source untouched",
        description=_DESCRIPTION,
        usage="pipetune run --plan PLAN (SCRIPT | -m MODULE) [ARGUMENTS...]",
    )
    parser.add_argument("--plan", required=True, metavar="PLAN", help="plan.json, or the folder that holds it")
    add_target(parser)
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Runs the command and returns its exit code."""
    from pipetune.core.plan_file import PLAN_FILE, load_plan
    from pipetune.supervisor.session_ending import run_with_plan

    target = target_of(arguments)
    path = Path(arguments.plan).absolute()
    load_plan(path)  # report an unreadable plan before TensorFlow is started
    return run_with_plan(target, path / PLAN_FILE if path.is_dir() else path)
