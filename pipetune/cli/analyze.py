"""`pipetune analyze`: run a script, measure its input pipeline, write session, report, patch and plan."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from pipetune.cli import values
from pipetune.cli.command import Subparsers, add_command, add_target, target_of
from pipetune.core.cluster import Place, place_in
from pipetune.core.edits import Consent
from pipetune.core.errors import PipetuneError
from pipetune.core.ranks import RANK, RANKS, rank_by_mpi
from pipetune.source import standalone_kinds

if TYPE_CHECKING:
    from pipetune.core.session import Session
    from pipetune.core.settings import Settings
    from pipetune.supervisor.results import Results
    from pipetune.supervisor.target import Target

_DESCRIPTION = """\
Runs the script up to its first training step, measures there what holds it back,
tries rewrites of its tf.data pipeline, and confirms the best plan with fresh
measurements. Your variables are put back, and so are files that the training
loop changes meanwhile. Source files stay as they are; see `pipetune apply`."""

_BESIDE_SERVERS = 2  # default number of workers with --parameter-servers
_USAGE = "pipetune analyze [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS...]"


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser = add_command(
        subparsers,
        "analyze",
        summary="measure a script's input and find what makes it faster",
        description=_DESCRIPTION,
        usage=_USAGE,
    )
    add_target(parser)
    results = parser.add_argument_group("results")
    results.add_argument(
        "--out",
        metavar="DIR",
        help="where results go: each run in DIR/runs/<time>/, and in DIR itself the last finished one (default "
        "reports/<script name>/; where that is another script's, with the name of the script's folder in front)",
    )
    results.add_argument(
        "--confidential",
        action="store_true",
        help="leave source text, paths and arguments out of the report and the session",
    )
    results.add_argument("--verbose", action="store_true", help="show what the script prints")
    results.add_argument("--quiet", action="store_true", help="show nothing but errors")
    results.add_argument("--json", action="store_true", help="print the session's summary as JSON")
    _add_measuring(parser.add_argument_group("measuring"))
    _add_deciding(parser.add_argument_group("what may be changed"))
    return parser


def _add_measuring(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--budget",
        type=values.positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="wall-clock limit for trials, capture not counted (default 60)",
    )
    group.add_argument(
        "--steps",
        type=values.positive_count,
        metavar="N",
        help="training steps per end-to-end window (default: until the rate is stable)",
    )
    group.add_argument(
        "--dataset",
        metavar="NAME|all",
        help="which dataset(s) to tune (default: the one(s) training consumes)",
    )
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu", "tpu"),
        default="auto",
        help="the target; asked for and absent is an error",
    )
    group.add_argument(
        "--workers",
        type=values.positive_count,
        metavar="N",
        help="run N processes of the script here that train in step, each with its TF_CONFIG: for a script with "
        "MultiWorkerMirroredStrategy",
    )
    group.add_argument(
        "--parameter-servers",
        type=values.positive_count,
        metavar="N",
        help="run a chief, N parameter servers and the --workers (default 2) here: for a script with "
        "ParameterServerStrategy",
    )
    group.add_argument(
        "--step-time",
        type=values.milliseconds,
        metavar="MS",
        help="pretend the training step takes this long (tune here for a faster accelerator elsewhere)",
    )
    group.add_argument(
        "--time-limit",
        type=values.positive_seconds,
        metavar="SECONDS",
        help="end the script when it has not come to its first training step by then (default 1800)",
    )
    group.add_argument(
        "--force", action="store_true", help="try rewrites even when the input holds nothing back"
    )
    group.add_argument("--no-trials", action="store_true", help="capture and profile only")
    group.add_argument(
        "--quick", action="store_true", help="profile in short windows: a first look, with wide intervals"
    )
    group.add_argument(
        "--cold",
        action="store_true",
        help="drop the files the pipeline reads from the page cache before each window",
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of pipetune's own choices (default 0)"
    )


def _add_deciding(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--allow",
        type=values.consents,
        action="append",
        default=[],
        metavar="LIST",
        help=f"consent beyond the default: {', '.join(Consent)}",
    )
    group.add_argument(
        "--without",
        type=values.names,
        action="append",
        default=[],
        metavar="RULES",
        help="leave these rules out: names of `pipetune rules`, with commas",
    )
    group.add_argument(
        "--memory-limit",
        type=values.byte_size,
        metavar="SIZE",
        help="refuse plans above it: 512M, 4GiB (default: what the container grants, less a margin)",
    )
    group.add_argument(
        "--distribute",
        choices=(*standalone_kinds.names(), "none"),
        metavar="KIND",
        help=f"also emit the pipeline for several machines or devices: {', '.join(standalone_kinds.names())} "
        "(default: what the script trains under, if anything; none: nothing)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pipetune.report.progress import Progress
    from pipetune.supervisor.analysis import analyze
    from pipetune.supervisor.limits import Limits
    from pipetune.supervisor.request import Request
    from pipetune.supervisor.results import Results

    if arguments.workers == 1 and not arguments.parameter_servers:
        raise PipetuneError(
            "--workers 1 starts no process beside the first, as without it.",
            hint="Leave it out, or name the number of processes that train in step.",
            exit_code=2,
        )
    target = target_of(arguments)
    place = place_in(os.environ, horovod=target.names_horovod())
    beside = rank_by_mpi(os.environ) if place is None else None  # of an MPI launcher, purpose unknown
    settings = settings_of(arguments, place)
    folder = _results_folder(arguments.out, target).absolute()
    if place is not None and not place.first:
        folder = folder / f"{place.kind}-{place.index}"  # all tasks have the same --out
    elif beside is not None and beside.rank:
        folder = folder / f"process-{beside.rank}"
    request = Request(
        target=target,
        settings=settings,
        results=Results(
            folder,
            confidential=arguments.confidential,
            workers=settings.workers,
            parameter_servers=settings.parameter_servers,
        ),
        limits=Limits.chosen(budget_seconds=arguments.budget, script_seconds=arguments.time_limit),
        verbose=arguments.verbose and not arguments.quiet,
        place=place,
    )
    with Progress(quiet=arguments.quiet) as screen:
        if place is not None and (arguments.workers or arguments.parameter_servers):
            asked = "--workers" if arguments.workers else "--parameter-servers"
            screen.warn(
                f"{place.told_by} is set: this machine is {place} of a cluster that exists. It runs as that task; "
                f"{asked} starts no other."
            )
        if beside is not None:
            screen.warn(
                f"{beside.number_told_by} names {beside.ranks} processes, and {target.name} is not seen to import "
                f"Horovod: each is analysed as if it trained alone. If they are its ranks, set {RANK} and {RANKS}."
            )
        analysis = analyze(request, screen=screen)
    _print_results(analysis.session, arguments)
    if analysis.last_lines:
        together = settings.workers > 1 or settings.parameter_servers or place is not None
        whose = "The log of the worker that was lost" if together else "What the script printed"
        sys.stderr.write(f"{whose} ends:\n{indent(analysis.last_lines, '  ')}\n")
    if analysis.traceback:
        sys.stderr.write(f"{analysis.traceback.rstrip()}\n")
    if analysis.exit_code:
        hint = analysis.failed.hint if analysis.failed else ""
        detail = analysis.session.status_detail or "The analysis did not come to its end."
        raise PipetuneError(
            detail, hint=hint or _hint(analysis.exit_code, analysis.results), exit_code=analysis.exit_code
        )
    return 0


def _results_folder(out: str | None, target: Target) -> Path:
    from pipetune.supervisor.results import cannot_write
    from pipetune.supervisor.runs import default_results_folder

    if out:
        return Path(out)
    reports = Path("reports")
    try:
        return default_results_folder(target, reports)
    except OSError as error:
        raise cannot_write(reports / target.name, error) from error


def settings_of(arguments: argparse.Namespace, place: Place | None = None) -> Settings:
    """The options as settings.

    Args:
        arguments: the parsed command line.
        place: of this machine in an existing cluster, where no workers are started; None if there is none.
    """
    from pipetune.core.settings import Settings

    servers: int = arguments.parameter_servers or 0
    workers: int = arguments.workers or (_BESIDE_SERVERS if servers else 1)
    return Settings(
        budget_seconds=arguments.budget,
        steps=arguments.steps,
        dataset=arguments.dataset,
        device=arguments.device,
        step_time_seconds=arguments.step_time,
        memory_limit_bytes=arguments.memory_limit,
        allow=frozenset().union(*arguments.allow),
        without=_rules(arguments),
        force=arguments.force,
        distribute=arguments.distribute,
        workers=1 if place is not None else workers,
        parameter_servers=0 if place is not None else servers,
        trials=not arguments.no_trials,
        quick=arguments.quick,
        cold=arguments.cold,
        confidential=arguments.confidential,
        seed=arguments.seed,
    )


def _rules(arguments: argparse.Namespace) -> frozenset[str]:
    """The rules to leave out.

    Raises:
        PipetuneError: a name is not that of a rule; the hint lists the rules.
    """
    names: frozenset[str] = frozenset().union(*arguments.without)
    if names:
        from pipetune.rules import find_rule

        for name in sorted(names):
            find_rule(name)
    return names


def _print_results(session: Session, arguments: argparse.Namespace) -> None:
    if arguments.json:
        from pipetune.core.summary import summary

        print(json.dumps(summary(session), indent=1, allow_nan=False))
    elif session.studied and not arguments.quiet:
        from pipetune.report.terminal import print_summary

        print_summary(session)


def _hint(exit_code: int, results: Results) -> str:
    logs = " to ".join(dict.fromkeys((results.logs[0].name, results.logs[-1].name)))
    folder = results.folder
    match exit_code:
        case 3:
            return f"What it printed is in {folder / logs}."
        case 4:
            return "pipetune needs a script that trains on, or loops over, a tf.data.Dataset."
        case 130:
            return f"The report: {folder / 'report.html'}."
        case _:
            return f"What is known is in {folder / 'report.html'}; what the script printed in {folder / logs}."
