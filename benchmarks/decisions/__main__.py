"""`python -m benchmarks.decisions`, which `pipetune bench --decisions` starts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.decisions.cases import Decision, decisions_data, judgements
from benchmarks.decisions.judging import bench_decisions, measure_gains
from pipetune.core.errors import PipetuneError


def main() -> int:
    parser = argparse.ArgumentParser(prog="pipetune bench --decisions", description=__doc__)
    parser.add_argument("names", metavar="CASE", nargs="*", help="of examples/decisions/cases.toml (default: all)")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="where decisions.json is (default reports)")
    parser.add_argument("--again", action="store_true", help="also make again the runs that were made before")
    parser.add_argument("--runs", type=int, metavar="N", help="make at most N runs, and the others next time")
    parser.add_argument("--gains", action="store_true", help="time the experts' scripts until their gains are fixed")
    parser.add_argument("--json", action="store_true", help="print the results' JSON at the end, and nothing else")
    arguments = parser.parse_args()
    names = tuple(dict.fromkeys(arguments.names))

    def say(what: str) -> None:
        print(what, file=sys.stderr, flush=True)

    def show(decision: Decision) -> None:
        if not arguments.json:
            print(line_of(decision), flush=True)

    try:
        if arguments.gains:
            measure_gains(names, say=say)
            return 0
        results, status = bench_decisions(
            names, arguments.out.absolute(), say=say, show=show, again=arguments.again, most=arguments.runs
        )
    except PipetuneError as error:
        say(f"{error.message} {error.hint}".strip())
        return error.exit_code
    if arguments.json:
        print(json.dumps(decisions_data(results), indent=1, allow_nan=False))
        return status
    for neighbours, counts in judgements(results.cases).items():
        seconds = "" if counts.median_seconds is None else f", a patch after {counts.median_seconds:.0f} s (median)"
        print(
            f"beside {neighbours}: {counts.right} of {counts.cases} right, {counts.unjudged} not judged, "
            f"{counts.harmful} harmful{seconds}"
        )
    return status


def line_of(decision: Decision) -> str:
    """Returns a decision as one line of text."""
    verdict = {True: "right", False: "WRONG", None: "not judged"}[decision.right]
    gain = "" if decision.gain is None else f", {decision.gain:.2f}x"
    possible = "" if decision.wanted_gain is None else f" of {decision.wanted_gain:.2f}x"
    harmful = ", HARMFUL" if decision.harmful else ""
    run = f"{decision.name}, seed {decision.seed}, beside {decision.neighbours}"
    return f"{run}: {decision.answer}{gain}{possible}: {verdict}{harmful}"


if __name__ == "__main__":
    sys.exit(main())
