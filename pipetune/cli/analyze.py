"""`pipetune analyze`: run a script, measure its input pipeline, write session, report, patch and plan."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipetune.cli import command
from pipetune.cli.command import Answer, Failure, add_target, option_strings, session_file_of, target_of
from pipetune.core.cluster import RANK_VARIABLE, SIZE_VARIABLE, ClusterTask, mpi_rank, task_from_environment
from pipetune.core.edits import Consent
from pipetune.core.errors import PipetuneError
from pipetune.core.plan_file import PLAN_FILE
from pipetune.core.session import Session
from pipetune.core.session_file import load
from pipetune.core.settings import Settings
from pipetune.core.summary import summary
from pipetune.core.version import VERSION
from pipetune.distributed.emit import kinds
from pipetune.supervisor.results_folder import (
    CANDIDATE_PATCH,
    Results,
    default_results_folder,
    results_folder_of,
    write_error,
)
from pipetune.supervisor.target import Target, script_target

if TYPE_CHECKING:
    from pipetune.supervisor.request import AnalysisRequest, AnalysisResult

SUMMARY = "measure the input pipeline of a script and find a faster one"

DESCRIPTION = """\
Runs the script up to its first training step, measures its bottleneck there,
tries rewrites of its tf.data pipeline, and confirms the best plan with new
measurements. Variables and files that the training loop changes meanwhile are
restored. Source files are not changed; see `pipetune apply`."""

USAGE = """pipetune analyze [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS...]
       pipetune analyze --resume SESSION [--budget SECONDS]"""

_WORKERS_WITH_SERVERS = 2  # default number of workers with --parameter-servers


def add(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    results = parser.add_argument_group("results")
    results.add_argument(
        "--out",
        metavar="DIR",
        help="results folder: each run is written to DIR/runs/<time>/, and DIR itself shows the last finished run "
        "(default reports/<script name>/, prefixed with the name of the script's folder if another script uses it)",
    )
    results.add_argument(
        "--confidential",
        action="store_true",
        help="leave source text, paths and arguments out of the report and the session",
    )
    results.add_argument("--verbose", action="store_true", help="show what the script prints")
    results.add_argument("--quiet", action="store_true", help="show only errors")
    _add_measurement(parser.add_argument_group("measuring"))
    _add_permissions(parser.add_argument_group("what may be changed"))


def _add_measurement(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resume",
        metavar="SESSION",
        help="go on with the measurements of a plan that was not proven, on the same machine; the script, the options "
        "and the results folder are those of the session",
    )
    group.add_argument(
        "--budget",
        type=command.positive_seconds,
        metavar="SECONDS",
        help="seconds from the first training step to the patch, not counting what further processes take to their "
        "first step (default 60)",
    )
    group.add_argument(
        "--steps",
        type=command.positive_count,
        metavar="N",
        help="training steps per end-to-end window (default: until the rate is stable)",
    )
    group.add_argument(
        "--dataset", metavar="NAME|all", help="which dataset(s) to tune (default: the one(s) training consumes)"
    )
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "gpu", "tpu"),
        default="auto",
        help="target device; an error if it is absent (default auto)",
    )
    group.add_argument(
        "--workers",
        type=command.positive_count,
        metavar="N",
        help="run N processes of the script on this machine that train in lockstep, each with its own TF_CONFIG: "
        "for scripts with MultiWorkerMirroredStrategy",
    )
    group.add_argument(
        "--parameter-servers",
        type=command.positive_count,
        metavar="N",
        help="run a chief, N parameter servers and the --workers processes (default 2) on this machine: for scripts "
        "with ParameterServerStrategy",
    )
    group.add_argument(
        "--step-time",
        type=command.milliseconds,
        metavar="MS",
        help="assume that a training step takes this long (to tune for a faster accelerator than this machine has)",
    )
    group.add_argument(
        "--time-limit",
        type=command.positive_seconds,
        metavar="SECONDS",
        help="stop the script if it has not reached its first training step by then (default 1800)",
    )
    group.add_argument("--force", action="store_true", help="try rewrites even if training is not input-bound")
    group.add_argument("--no-trials", action="store_true", help="capture and profile only")
    group.add_argument(
        "--quick", action="store_true", help="profile in short windows: a first look, with wide intervals"
    )
    group.add_argument(
        "--cold", action="store_true", help="drop the files the pipeline reads from the page cache before each window"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="seed of pipetune's random choices (default 0)")


def _add_permissions(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--allow",
        type=command.consents,
        action="append",
        default=[],
        metavar="LIST",
        help=f"additional consents for rewrites: {', '.join(Consent)}",
    )
    group.add_argument(
        "--without",
        type=command.names,
        action="append",
        default=[],
        metavar="RULES",
        help="rules to exclude: names from `pipetune rules`, separated by commas",
    )
    group.add_argument(
        "--memory-limit",
        type=command.byte_size,
        metavar="SIZE",
        help="reject plans that need more memory: 512M, 4GiB (default: the memory limit of the container, minus a "
        "margin)",
    )
    group.add_argument(
        "--distribute",
        choices=(*kinds.names(), "none"),
        metavar="KIND",
        help=f"also emit a distributed version of the pipeline: {', '.join(kinds.names())} (default: the "
        "one for the script's distribution strategy, if any; none: emit nothing)",
    )


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: the options are not valid, or nothing could be started.
    """
    from pipetune.report.console import Progress
    from pipetune.supervisor.analysis import analyze

    request, warnings = (_resumed(arguments), []) if arguments.resume else _requested(arguments)
    with Progress(quiet=arguments.quiet) as screen:
        for warning in warnings:
            screen.warn(warning)
        screen.say(f"pipetune {VERSION}: Ctrl-C ends the run and keeps what is measured.")
        analysis = analyze(request, screen=screen)
    session = analysis.session
    return Answer(
        summary(session),
        lambda: _show(analysis.results.with_shown_folder(session), quiet=arguments.quiet),
        {} if session.command.confidential else _paths(analysis.results, session),
        failure=_failure(request, analysis) if analysis.exit_code else None,
    )


def _requested(arguments: argparse.Namespace) -> tuple[AnalysisRequest, list[str]]:
    """Returns what the command line asks for, and what to warn of before it runs."""
    if arguments.workers == 1 and not arguments.parameter_servers:
        raise PipetuneError(
            "--workers 1 starts a single process, as without the option.",
            hint="Omit it, or give the number of processes that train in lockstep.",
        )
    target = target_of(arguments)
    place = task_from_environment(os.environ, horovod=target.imports_horovod())
    rank = mpi_rank(os.environ) if place is None else None  # of an MPI launcher, purpose unknown
    settings = settings_of(arguments, place)
    folder = _results_folder(arguments.out, target).absolute()
    if place is not None and not place.is_coordinator:
        folder = folder / f"{place.kind}-{place.index}"  # all tasks have the same --out
    elif rank is not None and rank.rank:
        folder = folder / f"process-{rank.rank}"
    warnings = []
    if misplaced := target.misplaced(option_strings(arguments.parser)):
        options, script = ", ".join(misplaced), Path(target.script).name
        warnings.append(
            f"{options}: passed to {script}, as everything after it is. Options of pipetune come before the script: "
            f"pipetune analyze {misplaced[0]} ... {script}"
        )
    if place is not None and (arguments.workers or arguments.parameter_servers):
        option = "--workers" if arguments.workers else "--parameter-servers"
        warnings.append(
            f"{place.source_variable} is set: this machine is {place} of an existing cluster. It runs as "
            f"that task; {option} is ignored."
        )
    if rank is not None:
        warnings.append(
            f"{rank.size_variable} reports {rank.size} processes, but {target.name} does not appear to "
            "import Horovod: each process is analyzed as if it trained alone. If they are Horovod ranks, "
            f"set {RANK_VARIABLE} and {SIZE_VARIABLE}."
        )
    return _request(arguments, target, settings, folder, place=place), warnings


def _resumed(arguments: argparse.Namespace) -> AnalysisRequest:
    if arguments.script or arguments.module:
        raise PipetuneError(
            "--resume takes no script: it is that of the session.", hint=f"pipetune analyze --resume {arguments.resume}"
        )
    settings = replace(settings_of(arguments), budget_seconds=Settings().budget_seconds)
    if settings != Settings() or arguments.workers or arguments.out:
        raise PipetuneError(
            "--resume goes on with the options of the session: only --budget, --time-limit, --verbose, --quiet and "
            "--json can be given in addition."
        )
    path = Path(arguments.resume)
    session = load(path)
    command = session.command
    if command.confidential:
        raise PipetuneError("A confidential session cannot go on: it does not name its script.")
    if session.candidate is None:
        raise PipetuneError(
            "The session has no unproven plan to go on with.",
            hint="Analyze the script again, with a larger --budget if time was too short.",
        )
    directory = command.directory or os.getcwd()
    target = Target(script=command.script, module=command.module, arguments=command.arguments, directory=directory)
    if target.script:
        script_target(target.script, target.arguments)  # raises if it is not there any more
    elif not target.module:
        raise PipetuneError("The session is not of a script: only `pipetune analyze` can go on.")
    settings = replace(command.options, budget_seconds=arguments.budget or command.options.budget_seconds)
    resumed, folder = str(session_file_of(arguments.resume).resolve()), results_folder_of(path)
    return _request(arguments, target, settings, folder, resumed=resumed, resumptions=command.resumed + 1)


def _request(
    arguments: argparse.Namespace, target: Target, settings: Settings, folder: Path, **more: Any
) -> AnalysisRequest:
    from pipetune.supervisor.monitoring import Timeouts
    from pipetune.supervisor.request import AnalysisRequest

    return AnalysisRequest(
        target=target,
        settings=settings,
        results=Results(
            folder,
            confidential=settings.confidential,
            workers=settings.workers,
            parameter_servers=settings.parameter_servers,
        ),
        limits=Timeouts.for_analysis(longest_seconds=settings.budget_seconds, script_seconds=arguments.time_limit),
        verbose=arguments.verbose and not arguments.quiet,
        **more,
    )


def _results_folder(out: str | None, target: Target) -> Path:
    if out:
        return Path(out)
    reports = Path("reports")
    try:
        return default_results_folder(target, reports)
    except OSError as error:
        raise write_error(reports / target.name, error) from error


def settings_of(arguments: argparse.Namespace, place: ClusterTask | None = None) -> Settings:
    """Returns the options as settings.

    Args:
        arguments: the parsed command line.
        place: of this machine in an existing cluster, where no workers are started; None if there is none.
    """
    servers: int = arguments.parameter_servers or 0
    workers: int = arguments.workers or (_WORKERS_WITH_SERVERS if servers else 1)
    return Settings(
        budget_seconds=arguments.budget or Settings().budget_seconds,
        steps=arguments.steps,
        dataset=arguments.dataset,
        device=arguments.device,
        step_time_seconds=arguments.step_time,
        memory_limit_bytes=arguments.memory_limit,
        allow=frozenset().union(*arguments.allow),
        without=_excluded_rules(arguments),
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


def _excluded_rules(arguments: argparse.Namespace) -> frozenset[str]:
    """The rules to leave out; raises PipetuneError, whose hint lists the rules, for a name that is not of one."""
    names: frozenset[str] = frozenset().union(*arguments.without)
    if names:
        from pipetune.rewrites import find_rule

        for name in sorted(names):
            find_rule(name)
    return names


def _show(session: Session, *, quiet: bool) -> None:
    if session.profiled_datasets and not quiet:
        from pipetune.report.terminal import print_summary

        print_summary(session)


def _paths(results: Results, session: Session) -> dict[str, Path]:
    """Returns the files of the run; a patch only if it changes something."""
    paths = {"results": results.root, "run": results.folder, "session": results.session, "report": results.report}
    paths |= {"plan": results.folder / PLAN_FILE, "log": results.log}
    if session.patch is not None and session.patch.diff:
        paths["patch"] = results.folder / "tuned.patch"
    if session.candidate is not None and session.candidate.diff:
        paths["candidate"] = results.folder / CANDIDATE_PATCH
    if session.distributed is not None and session.distributed.module:
        paths["distributed"] = results.folder / Path(session.distributed.file).name
    return paths


def _failure(request: AnalysisRequest, analysis: AnalysisResult) -> Failure:
    hint = analysis.failure.hint if analysis.failure else ""
    together = request.settings.workers > 1 or request.settings.parameter_servers or request.place is not None
    return Failure(
        analysis.session.status_detail or "The analysis did not finish.",
        hint or _hint(analysis.exit_code, analysis.results),
        analysis.exit_code,
        traceback=analysis.traceback,
        output=analysis.log_tail,
        printed_by="the lost worker" if together else "the script",
        confidential=analysis.session.command.confidential,
    )


def _hint(exit_code: int, results: Results) -> str:
    logs = " to ".join(dict.fromkeys((results.logs[0].name, results.logs[-1].name)))
    folder = results.folder
    match exit_code:
        case 3:
            return f"Its output is in {folder / logs}."
        case 4:
            return "pipetune needs a script that trains on, or loops over, a tf.data.Dataset."
        case 130:
            return f"The report: {folder / 'report.html'}."
        case _:
            return f"Partial results are in {folder / 'report.html'}; the output of the script is in {folder / logs}."
