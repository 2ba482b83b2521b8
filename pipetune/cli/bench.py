"""`pipetune bench`: measure the plans against those of rivals, and pipetune's accuracy, on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pipetune.cli.command import Subparsers, add_command

_DESCRIPTION = """\
Measures the plans of `pipetune analyze` beside those of its rivals on the
workloads of the repository's examples/: the script as written, with TensorFlow's
optimisations off, AUTOTUNE everywhere, the stage-based algorithm, and the rules
of Plumber. Each workload is kept in benchmarks.json as soon as it is measured;
an interrupted run goes on where it was. A workload takes about six minutes, and
wants the machine to itself.

With --accuracy it measures how right pipetune is: how well costs are attributed,
bottlenecks named and rates predicted (of one process and of several at once),
how often it accepts what is no gain, and what its hooks cost. That takes about
an hour."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser = add_command(
        subparsers,
        "bench",
        summary="measure pipetune beside its rivals, or how right it is",
        description=_DESCRIPTION,
        usage="pipetune bench [OPTIONS] [WORKLOAD...] | --accuracy [FIGURE...]",
    )
    parser.add_argument(
        "names",
        metavar="WORKLOAD",
        nargs="*",
        help="folders of examples/: these only, anew (default: all that were not measured yet); with --accuracy "
        "attribution, bottleneck, prediction, false_positives, overhead, sharing",
    )
    parser.add_argument("--accuracy", action="store_true", help="measure the figures of accuracy.json")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the short form: three workloads in five minutes (or fewer cases), into a file of its own",
    )
    parser.add_argument("--again", action="store_true", help="measure anew what was measured before")
    parser.add_argument("--out", metavar="DIR", default="reports", help="where results go (default reports)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything drawn (default 0)")
    parser.add_argument("--json", action="store_true", help="print the results' JSON at the end, and nothing else")
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Run the command. Returns 1 if something could not be measured, or an accuracy target was missed."""
    return _accuracy(arguments) if arguments.accuracy else _rivals(arguments)


def _rivals(arguments: argparse.Namespace) -> int:
    from pipetune.core.benchmarks import WorkloadResult, benchmarks_data
    from pipetune.report.benchmarks import print_benchmarks, print_workload
    from pipetune.report.progress import Progress
    from pipetune.supervisor.rivals import Request, bench_rivals

    def show(result: WorkloadResult) -> None:
        if not arguments.json:
            print_workload(result)

    request = Request(
        tuple(dict.fromkeys(arguments.names)),
        Path(arguments.out).absolute(),
        quick=arguments.quick,
        seed=arguments.seed,
        again=arguments.again,
    )
    with Progress() as screen:
        known, status = bench_rivals(request, screen=screen, show=show)
    if arguments.json:
        print(json.dumps(benchmarks_data(known), indent=1, allow_nan=False))
    elif known.workloads:
        print_benchmarks(known)
        print(f"The results: {request.file}, the same as .md and .png", file=sys.stderr)
    return status


def _accuracy(arguments: argparse.Namespace) -> int:
    from pipetune.core.accuracy import Figure, accuracy_data
    from pipetune.report.accuracy import print_figure
    from pipetune.report.progress import Progress
    from pipetune.supervisor.benching import Request, bench

    def show(name: str, figure: Figure) -> None:
        if not arguments.json:
            print_figure(name, figure)

    request = Request(
        tuple(dict.fromkeys(arguments.names)),
        Path(arguments.out).absolute(),
        quick=arguments.quick,
        seed=arguments.seed,
        again=arguments.again,
    )
    with Progress() as screen:
        known, status = bench(request, screen=screen, show=show)
    if arguments.json:
        print(json.dumps(accuracy_data(known), indent=1, allow_nan=False))
    else:
        print(f"The figures: {request.file}", file=sys.stderr)
    return status
