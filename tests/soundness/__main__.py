"""Searches for wrong rewrites: rewrites that pipetune accepts although the data differ.

python -m tests.soundness                       the hunt: 5,000 functions, 2,000 pipelines, 1,000 scripts, a new seed
python -m tests.soundness power                 the same product with each of its guards switched off in turn
python -m tests.soundness right --checkout P    the list of right proposals, from a checkout of an earlier commit
python -m tests.soundness recall                how many proposals of that list are still made
python -m tests.soundness case FAMILY SEED N    one case, with everything that was tried, in this process
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
from pathlib import Path
from typing import Any

from tests.files import trial
from tests.soundness import hunt, power, results
from tests.soundness.handwritten import HANDS
from tests.soundness.processes import ROOT

DEFAULTS = {"function": 5000, "pipeline": 2000, "script": 1000}


def main() -> int:
    """Runs the command; 1 where something wrong was accepted, or too much was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soundness", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", default="hunt", choices=["hunt", "power", "right", "recall", "case"])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--seed", help="of every case; without it a new one, or that of an interrupted run")
    parser.add_argument("--functions", type=int, help="how many (default 5,000; 200 for power)")
    parser.add_argument("--pipelines", type=int, help="how many (default 2,000)")
    parser.add_argument("--sources", type=int, help="how many scripts (default 1,000)")
    parser.add_argument("--minutes", type=float, help="ends after so many minutes; the same command goes on")
    parser.add_argument("--again", action="store_true", help="what was wrong runs once more, with a changed suite")
    parser.add_argument("--processes", type=int, default=2, help="at once (default 2)")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose pipetune is tried (default: this one's)")
    parser.add_argument("--guard", action="append", help="for power: only this one (again for more)")
    parser.add_argument("--state", type=Path, help="where results are kept while it runs")
    parser.add_argument("--out", type=Path, help="where the figures, or the list, are written")
    arguments = parser.parse_args()
    commands = {"hunt": _hunt, "power": _power, "right": _right, "recall": _recall, "case": _case}
    return commands[arguments.command](arguments)


def _header(seed: str, cases: dict[str, int], checkout: Path) -> dict[str, Any]:
    commits = {family: hunt.commit_of(checkout, family) for family in cases}
    return {"seed": seed, "cases": cases, "commit": hunt.commit_of(checkout), "commits": commits}


def _state(arguments: argparse.Namespace, cases: dict[str, int], seed: str, name: str, checkout: Path) -> hunt.State:
    path = hunt.STATE.with_name(f".soundness{name}.part.jsonl")
    if arguments.state is not None and not (name and arguments.command == "hunt"):  # the hunt has its own state
        path = arguments.state
    header = _header(seed, cases, checkout)
    commits = header["commits"]
    left = hunt.left_header(path)
    if not seed:
        same = left is not None and left["cases"] == cases and left.get("commits", {}).items() & commits.items()
        header["seed"] = left["seed"] if same and left is not None else secrets.token_hex(4)
    state = hunt.opened(path, header)
    goes_on = f", goes on behind {len(state.cases)} cases" if state.cases else ""
    print(f"seed {header['seed']}, commit {header['commit']}{goes_on}", flush=True)
    return state


def _hunted(
    arguments: argparse.Namespace, state: hunt.State, checkout: Path, given: dict[str, Any] | None = None
) -> hunt.State:
    seed, cases = state.header["seed"], state.header["cases"]
    wanted = hunt.Wanted(seed, cases, arguments.minutes, arguments.processes, checkout, given or {})
    return hunt.hunt(wanted, state)


def _hunt(arguments: argparse.Namespace) -> int:
    asked = {"function": arguments.functions, "pipeline": arguments.pipelines, "script": arguments.sources}
    given = any(count is not None for count in asked.values())
    cases = {family: (count or 0) if given else DEFAULTS[family] for family, count in asked.items()}
    cases |= {} if given else {"hand": len(HANDS)}
    state = _state(arguments, cases, arguments.seed or "", "", arguments.checkout)
    if arguments.again:
        state.forget_wrong()
    state = _hunted(arguments, state, arguments.checkout)
    print(results.told(state))
    figures = results.counted(state)
    # With a limit of time, what `recall` found at this commit.
    before, kept, _, _ = results.compared(*_recalled(arguments, results.KEPT, run=not arguments.minutes))
    figures |= {"right_before": before, "right_kept": kept}
    with tempfile.TemporaryDirectory() as folder:
        figures |= trial.count_files(Path(folder))
    out = arguments.out or ROOT / "reports" / "soundness.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    wrong = [figures[name] for name in ("accepted_wrong", "pipelines_wrong", "patches_wrong", "crashed", "files_lost")]
    return 1 if any(wrong) else 0


def _power(arguments: argparse.Namespace) -> int:
    guards = arguments.guard or list(power.GUARDS)
    power.show(guards, count=arguments.functions or 200, seed=arguments.seed or "power", checkout=arguments.checkout)
    return 0


def _right(arguments: argparse.Namespace) -> int:
    asked = {"function": arguments.functions, "pipeline": arguments.pipelines}
    cases = {family: results.CASES[family] if count is None else count for family, count in asked.items()}
    cases["hand"] = len(HANDS)
    state = _state(arguments, cases, arguments.seed or results.SEED, "-right", arguments.checkout)
    _hunted(arguments, state, arguments.checkout, {"ask_all": True})
    right = results.right_of(state) | {"families": cases}
    results.save(right, arguments.out or results.KEPT)
    print(f"{sum(map(len, right['cases'].values()))} right proposals of {len(state.cases)} cases")
    return 0


def _recalled(arguments: argparse.Namespace, path: Path, *, run: bool = True) -> tuple[dict[str, Any], hunt.State]:
    """The list of right proposals, and what is known of its cases now."""
    right = results.load(path)
    state = _state(arguments, right["families"], right["seed"], "-recall", arguments.checkout)
    return right, _hunted(arguments, state, arguments.checkout, {"ask_all": True}) if run else state


def _recall(arguments: argparse.Namespace) -> int:
    before, kept, by_rule, lost = results.compared(*_recalled(arguments, arguments.out or results.KEPT))
    print("\n".join(lost))
    for rule, one in sorted(by_rule.items()):
        print(f"{rule:24}{one['kept']:6} of {one['before']}")
    print(f"{kept} of {before} right proposals are made, in no laxer class ({kept / max(1, before):.1%})")
    return 0 if kept >= 0.95 * before else 1


def _case(arguments: argparse.Namespace) -> int:
    from tests.soundness import families

    family, seed, index = arguments.words
    with tempfile.TemporaryDirectory() as folder:
        case = families.run(family, seed, int(index), folder=folder, ask_all=True)
    for one in case.tried:
        verdict = "WRONG" if one.wrong else "right" if one.right else "caught"
        print(f"{verdict:8}{' + '.join(one.keys)} {one.safety} {one.kind}")
        print("".join(f"        {text[:300]}\n" for text in (one.detail, one.why) if text), end="")
    print(case.crash or case.unbuilt or f"{len(case.tried)} tried in {case.seconds:.1f} s")
    return 1 if any(one.wrong for one in case.tried) else 0


if __name__ == "__main__":
    raise SystemExit(main())
