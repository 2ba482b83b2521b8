"""`pipetune run`: run a script with a plan applied, its source untouched."""

from __future__ import annotations

import argparse
from pathlib import Path

from pipetune.cli.command import Subparsers, add_command, add_target, target_of

_DESCRIPTION = """\
Runs the script as Python would, to its end: nothing is measured, stopped or kept
from being saved. The dataset that the plan was made for is served as planned. A
plan made for another pipeline is refused, naming the first operator that differs."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser = add_command(
        subparsers,
        "run",
        summary="run a script with a plan applied, source untouched",
        description=_DESCRIPTION,
        usage="pipetune run --plan PLAN (SCRIPT | -m MODULE) [ARGUMENTS...]",
    )
    parser.add_argument(
        "--plan", required=True, metavar="PLAN", help="plan.json, or the folder that holds it"
    )
    add_target(parser)
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pipetune.core.planfile import PLAN_FILE, load_plan
    from pipetune.supervisor.running import run_with_plan

    target = target_of(arguments)
    path = Path(arguments.plan).absolute()
    load_plan(path)  # report an unreadable plan before TensorFlow is started
    return run_with_plan(target, path / PLAN_FILE if path.is_dir() else path)
