"""`pipetune bench`: compares plans with those of rivals, measures pipetune's accuracy, and judges its decisions."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.cli.command import Answer, positive_count
from pipetune.core.errors import PipetuneError

if TYPE_CHECKING:
    from benchmarks.suites import Suite

SUMMARY = "compare pipetune with its rivals, or measure its accuracy"

DESCRIPTION = """\
Measures pipetune itself, in a clone of its repository. Compares the plans of
`pipetune analyze` with rivals on the workloads in examples/: the original script,
the script with TensorFlow's optimizations off, AUTOTUNE everywhere, the
stage-based algorithm, and the rules of Plumber. Each result is saved to
benchmarks.json as soon as it is measured; an interrupted run continues where it
stopped. A workload takes about six minutes and needs an otherwise idle machine.

With --accuracy, measures the accuracy of pipetune: how well it attributes costs,
names bottlenecks and predicts rates (of one process and of several in parallel),
how often it accepts a rewrite without a gain, and the overhead of its hooks.
That takes about an hour.

With --decisions, analyzes scripts whose right answer is known, and judges the
answers by a stopwatch of its own. Each run is saved to decisions.json; a run takes
about three minutes."""

USAGE = "pipetune bench [OPTIONS] [WORKLOAD...] | --accuracy [FIGURE...] | --decisions [CASE...]"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        metavar="WORKLOAD",
        nargs="*",
        help="folders of examples/: measure only these, even if measured before (default: all that were not measured "
        "yet); with --accuracy: attribution, bottleneck, prediction, false_positives, overhead, sharing",
    )
    parser.add_argument("--accuracy", action="store_true", help="measure the figures of accuracy.json")
    parser.add_argument("--decisions", action="store_true", help="judge the answers to examples/decisions/cases.toml")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quick run: three workloads in five minutes (or fewer cases), saved to a separate file",
    )
    parser.add_argument("--again", action="store_true", help="also measure again what was measured before")
    parser.add_argument(
        "--most", type=positive_count, metavar="N", help="measure at most N figures, and the others next time"
    )
    parser.add_argument("--out", metavar="DIR", default="reports", help="where results go (default reports)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all random choices (default 0)")


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command. Its exit code is 1 if something could not be measured, or an accuracy target was missed."""
    from pipetune.report.console import Progress

    suite = _suite("decisions" if arguments.decisions else "accuracy" if arguments.accuracy else "rivals")
    from benchmarks.suites import Request, bench  # found now that the clone is on the path

    request = Request(
        tuple(dict.fromkeys(arguments.names)),
        Path(arguments.out).absolute(),
        quick=arguments.quick and not suite.cumulative,
        seed=arguments.seed,
        again=arguments.again,
        most=arguments.most,
    )
    with Progress() as screen:
        known, status = bench(
            suite, request, screen=screen, show=(lambda *_: None) if arguments.json else suite.print_figure
        )
    path = request.file(suite)
    return Answer(known.data(), lambda: suite.print_all(known, path), {"results": path}, exit_code=status)


def _suite(module: str) -> Suite[Any]:
    """Returns the figures of `benchmarks.<module>`; raises PipetuneError if there are none beside the package."""
    clone = Path(__file__).resolve().parents[2]
    if not (clone / "benchmarks" / module).is_dir():
        raise PipetuneError(
            f"There are no benchmarks: {clone} is not a clone of the repository.",
            hint="They are part of the repository, not of the package: run pipetune from a clone (pip install -e .).",
        )
    sys.path.insert(0, str(clone))
    suite: Suite[Any] = importlib.import_module(f"benchmarks.{module}.suite").SUITE
    return suite
