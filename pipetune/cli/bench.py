"""`pipetune bench`: compares plans with those of rivals, measures pipetune's accuracy, and judges its decisions."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pipetune.cli.answer import Answer, Failure
from pipetune.cli.command import Subparsers, add_command
from pipetune.core.errors import PipetuneError

if TYPE_CHECKING:
    from pipetune.supervisor.benching import AccuracyRequest, RivalsRequest

_Request = TypeVar("_Request", "AccuracyRequest", "RivalsRequest")

_DESCRIPTION = """\
Compares the plans of `pipetune analyze` with rivals on the workloads in the
repository's examples/: the original script, the script with TensorFlow's
optimizations off, AUTOTUNE everywhere, the stage-based algorithm, and the rules
of Plumber. Each result is saved to benchmarks.json as soon as it is measured; an
interrupted run continues where it stopped. A workload takes about six minutes
and needs an otherwise idle machine.

With --accuracy, measures the accuracy of pipetune: how well it attributes costs,
names bottlenecks and predicts rates (of one process and of several in parallel),
how often it accepts a rewrite without a gain, and the overhead of its hooks.
That takes about an hour.

With --decisions, analyzes scripts whose right answer is known, and judges the
answers by a stopwatch of its own. Each run is saved to decisions.json; a run takes
about three minutes."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = add_command(
        subparsers,
        "bench",
        summary="compare pipetune with its rivals, or measure its accuracy",
        description=_DESCRIPTION,
        usage="pipetune bench [OPTIONS] [WORKLOAD...] | --accuracy [FIGURE...] | --decisions [CASE...]",
    )
    parser.add_argument(
        "names",
        metavar="WORKLOAD",
        nargs="*",
        help="folders of examples/: measure only these, even if measured before (default: all that were not "
        "measured yet); with --accuracy: attribution, bottleneck, prediction, false_positives, overhead, "
        "sharing",
    )
    parser.add_argument("--accuracy", action="store_true", help="measure the figures of accuracy.json")
    parser.add_argument(
        "--decisions", action="store_true", help="judge the answers to examples/decisions/cases.toml, in a clone"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quick run: three workloads in five minutes (or fewer cases), saved to a separate file",
    )
    parser.add_argument("--again", action="store_true", help="also measure again what was measured before")
    parser.add_argument("--out", metavar="DIR", default="reports", help="where results go (default reports)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random choices (default 0)")
    return parser


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command. Its exit code is 1 if something could not be measured, or an accuracy target was missed."""
    if arguments.decisions:
        return _decisions(arguments)
    return _accuracy(arguments) if arguments.accuracy else _rivals(arguments)


def _decisions(arguments: argparse.Namespace) -> Answer:
    """Runs `benchmarks.decisions`, which is part of the repository, not of the package."""
    from pipetune.core.benchmarks import FOLDER

    clone = FOLDER.parent
    if not (clone / "benchmarks" / "decisions").is_dir():
        raise PipetuneError(
            f"There are no cases: {clone} is not a clone of the repository.",
            hint="They are part of the repository, not of the package: run pipetune from a clone (pip install -e .).",
        )
    options = [f"--{option}" for option in ("again", "json") if getattr(arguments, option)]
    command = [sys.executable, "-P", "-m", "benchmarks.decisions", "--out", arguments.out, *options, *arguments.names]
    output = subprocess.PIPE if arguments.json else None
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(clone)}, stdout=output, check=False)
    paths = {"results": Path(arguments.out) / "decisions.json"}
    if not arguments.json:
        return Answer(exit_code=done.returncode)
    if not done.stdout:
        message = "The answers were not judged: standard error says why."
        return Answer(paths=paths, failure=Failure(message, exit_code=done.returncode or 1))
    return Answer(json.loads(done.stdout), paths=paths, exit_code=done.returncode)


def _request(kind: type[_Request], arguments: argparse.Namespace) -> _Request:
    return kind(
        tuple(dict.fromkeys(arguments.names)),
        Path(arguments.out).absolute(),
        quick=arguments.quick,
        seed=arguments.seed,
        again=arguments.again,
    )


def _rivals(arguments: argparse.Namespace) -> Answer:
    from pipetune.core.benchmarks import WorkloadResult, benchmarks_data
    from pipetune.report.benchmarks import print_benchmarks, print_workload
    from pipetune.report.progress import Progress
    from pipetune.supervisor.benching import RivalsRequest, compare_with_rivals

    def show_workload(result: WorkloadResult) -> None:
        if not arguments.json:
            print_workload(result)

    request = _request(RivalsRequest, arguments)
    with Progress() as screen:
        known, status = compare_with_rivals(request, screen=screen, show=show_workload)

    def show() -> None:
        if known.workloads:
            print_benchmarks(known)
            print(f"The results: {request.file}, the same as .md and .png", file=sys.stderr)

    return Answer(benchmarks_data(known), show, {"results": request.file}, exit_code=status)


def _accuracy(arguments: argparse.Namespace) -> Answer:
    from pipetune.core.accuracy import AccuracyFigure, accuracy_data
    from pipetune.report.accuracy import print_figure
    from pipetune.report.progress import Progress
    from pipetune.supervisor.benching import AccuracyRequest, measure_accuracy

    def show_figure(name: str, figure: AccuracyFigure) -> None:
        if not arguments.json:
            print_figure(name, figure)

    request = _request(AccuracyRequest, arguments)
    with Progress() as screen:
        known, status = measure_accuracy(request, screen=screen, show=show_figure)

    def show() -> None:
        print(f"The figures: {request.file}", file=sys.stderr)

    return Answer(accuracy_data(known), show, {"results": request.file}, exit_code=status)
