"""`pipetune check`: a gate for continuous integration, on an existing session."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pipetune.cli import values
from pipetune.cli.command import Subparsers, add_command

_DESCRIPTION = """\
Reads a session and answers with the exit status: 0 passed, 1 failed. A demand
fails only where the whole interval lies on the wrong side of the limit, so noise
fails no build; with --strict, what the interval leaves open fails too. Without a
demand, --max-input-wait 5% is asked."""


def add(subparsers: Subparsers) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser = add_command(subparsers, "check", summary="a CI gate on a session", description=_DESCRIPTION)
    parser.add_argument("session", metavar="SESSION", help="session.json, or the folder that holds it")
    parser.add_argument(
        "--max-input-wait",
        type=values.share,
        metavar="SHARE",
        help="the most of a step that training may wait for input: 5%% or 0.05",
    )
    parser.add_argument(
        "--min-speedup",
        type=values.factor,
        metavar="FACTOR",
        help="the least that the confirmed plan must win over the script as written: 1.1",
    )
    parser.add_argument(
        "--baseline",
        metavar="SESSION",
        help="an earlier session of the same pipeline: fail on more input wait, on room for improvement that was "
        "not there, and on new warnings",
    )
    parser.add_argument(
        "--tolerance",
        type=values.share,
        default=0.05,
        metavar="SHARE",
        help="how much worse than the baseline is tolerated (default 5%%)",
    )
    parser.add_argument("--any", action="store_true", help="take a baseline of another pipeline, too")
    parser.add_argument("--strict", action="store_true", help="what the interval leaves open fails too")
    parser.add_argument("--json", action="store_true", help="print the answers as JSON")
    return parser


def execute(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pipetune.core import gate
    from pipetune.core.codec import encode
    from pipetune.core.sessionfile import load

    session = load(arguments.session)
    rows = [gate.finished(session, later=_later_run(Path(arguments.session)))]
    wait_limit = arguments.max_input_wait
    if wait_limit is None and arguments.min_speedup is None and arguments.baseline is None:
        wait_limit = 0.05
    if wait_limit is not None:
        rows.append(gate.input_wait(session, wait_limit))
    if arguments.min_speedup is not None:
        rows.append(gate.speedup(session, arguments.min_speedup))
    if arguments.baseline is not None:
        baseline = load(arguments.baseline)
        if not arguments.any:
            gate.refuse_other_pipeline(session, baseline)
        rows += gate.against(session, baseline, tolerance=arguments.tolerance)
    bad = {gate.Result.FAILED} | ({gate.Result.UNDETERMINED} if arguments.strict else set())
    failed = any(row.result in bad for row in rows)
    if arguments.json:
        print(json.dumps({"passed": not failed, "checks": [encode(row) for row in rows]}, indent=1))
    else:
        from pipetune.report.words import clean

        for row in rows:
            print(f"{row.result.value:<12}  {row.name}: {clean(row.text)}")
    return int(failed)


def _later_run(session: Path) -> str:
    """The last unfinished run newer than the one a results folder shows; "" if there is none, or a run was named."""
    from pipetune.supervisor.runs import ResultsFolder, results_folder_of

    folder = session if session.is_dir() else session.parent
    if results_folder_of(session) != folder.absolute():
        return ""
    run = ResultsFolder(folder).unfinished_since()
    return str(run) if run else ""
