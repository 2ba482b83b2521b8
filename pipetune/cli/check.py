"""`pipetune check`: a gate for continuous integration, on an existing session."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipetune.cli import values
from pipetune.cli.answer import Answer, lines, session_file_of
from pipetune.cli.command import Subparsers, add_command
from pipetune.core import comparison
from pipetune.core.codec import Json, encode
from pipetune.core.session_file import load

if TYPE_CHECKING:
    from pipetune.cli.gate import Gate

_DESCRIPTION = """\
Checks a session; the exit status is 0 if it passed, 1 if it failed. A check
fails only if the whole confidence interval is on the wrong side of the limit, so
noise does not fail a build; with --strict, undetermined checks fail too. The
default check is --max-input-wait 5%."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = add_command(subparsers, "check", summary="a CI gate on a session", description=_DESCRIPTION)
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument(
        "--max-input-wait",
        type=values.share,
        metavar="SHARE",
        help="maximum share of a step that training may wait for input: 5%% or 0.05",
    )
    parser.add_argument(
        "--min-speedup",
        type=values.factor,
        metavar="FACTOR",
        help="minimum speedup of the confirmed plan over the original script: 1.1",
    )
    parser.add_argument(
        "--baseline",
        metavar="SESSION",
        help="an earlier session of the same pipeline: fail on more input wait, new room for improvement, and new "
        "warnings",
    )
    parser.add_argument(
        "--tolerance",
        type=values.share,
        default=0.05,
        metavar="SHARE",
        help="how much worse than the baseline is tolerated (default 5%%)",
    )
    parser.add_argument("--any", action="store_true", help="accept a baseline of another pipeline")
    parser.add_argument("--strict", action="store_true", help="fail undetermined checks too")
    parser.add_argument(
        "--format",
        choices=("text", "json", "github", "markdown"),
        default="text",
        help="json: the same as --json; github: workflow commands, shown at the lines of a pull request; markdown: a "
        "summary of the job, at most 30 lines (default text)",
    )
    return parser


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: a session cannot be read, or the baseline is of another pipeline.
    """
    if arguments.format == "json":
        arguments.json = True
    gate = _gate(arguments)
    paths = {"session": session_file_of(arguments.session)}
    if arguments.baseline:
        paths["baseline"] = session_file_of(arguments.baseline)
    return Answer(_data(gate), lines(*_lines(gate, arguments.format)), paths, exit_code=0 if gate.passed else 1)


def _lines(gate: Gate, format: str) -> Iterable[str]:
    from pipetune.cli.gate import annotation_lines, job_summary, text_lines

    match format:
        case "github":
            return annotation_lines(gate)
        case "markdown":
            return job_summary(gate)
        case _:
            return text_lines(gate)


def _gate(arguments: argparse.Namespace) -> Gate:
    """Returns the checks of the session that were requested; raises as above."""
    from pipetune.cli.gate import Gate

    session = load(arguments.session)
    findings = session.findings
    rows = [comparison.check_completed(session, later=_later_run(Path(arguments.session)))]
    wait_limit = arguments.max_input_wait
    if wait_limit is None and arguments.min_speedup is None and arguments.baseline is None:
        wait_limit = 0.05
    if wait_limit is not None:
        rows.append(comparison.check_input_wait(session, wait_limit))
    if arguments.min_speedup is not None:
        rows.append(comparison.check_speedup(session, arguments.min_speedup))
    if arguments.baseline is not None:
        baseline = load(arguments.baseline)
        if not arguments.any:
            comparison.require_same_pipeline(session, baseline)
        rows += comparison.compare_with_baseline(session, baseline, tolerance=arguments.tolerance)
        findings = comparison.new_findings(session, baseline)
    return Gate(session, arguments.session, tuple(rows), findings, strict=arguments.strict)


def _data(gate: Gate) -> dict[str, Json]:
    return {
        "passed": gate.passed,
        "checks": [encode(check) for check in gate.checks],
        "culprit": encode(gate.culprit),
    }


def _later_run(session: Path) -> str:
    """The last unfinished run newer than the one a results folder shows; "" if there is none, or a run was named."""
    from pipetune.supervisor.results_folder import ResultsFolder, results_folder_of

    folder = session if session.is_dir() else session.parent
    if results_folder_of(session) != folder.absolute():
        return ""
    run = ResultsFolder(folder).newer_unfinished_run()
    return str(run) if run else ""
