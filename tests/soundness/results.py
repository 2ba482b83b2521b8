"""What is told of a run: `reports/soundness.json` and its table; right proposals that another version still makes."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.soundness.hunt import State, wrong_of


def counted(state: State) -> dict[str, Any]:
    """The figures of the report, without those of other suites."""
    by_rule: dict[str, Counter[str]] = defaultdict(Counter)
    by_op: dict[str, Counter[str]] = defaultdict(Counter)
    total: Counter[str] = Counter()
    for (family, _), case in state.cases.items():
        ran = not case["unbuilt"]
        total[family] += ran
        total["unbuilt"] += not ran
        total["hung"] += bool(case.get("hung"))
        total["crashed"] += bool(case.get("crash"))
        total["patches"] += case.get("patches", 0)
        total[f"{family}_cases_wrong"] += bool(wrong_of(case))
        if family == "script":
            total["script_wrong"] += sum(not one["right"] for one in case["tried"])
            continue
        for one in case["tried"]:
            accepted, wrong = bool(one["accepted"]), not one["right"]
            known = {"proposals": True, "structurally_wrong": wrong, "accepted_wrong": accepted and wrong}
            known |= {"asked": one["accepted"] is not None, "accepted": accepted}
            figures = {name: int(value) for name, value in known.items()}
            by_rule["+".join(sorted(one["rules"])) if len(one["rules"]) == 1 else "several"].update(figures)
            total.update(figures)
        if family == "function" and ran:
            for name in case["operations"]:
                by_op[name]["functions"] += 1
                by_op[name]["structurally_wrong"] += any(not one["right"] for one in case["tried"])
                by_op[name]["accepted_wrong"] += bool(wrong_of(case))
    tables = {"by_rule": by_rule, "by_op": by_op}
    return {
        **{name: state.header[name] for name in ("commit", "commits")},
        "seeds": [state.header["seed"]],
        "functions": total["function"],
        **{name: total[name] for name in ("proposals", "structurally_wrong", "accepted_wrong")},
        **{name: {one: dict(table[one]) for one in sorted(table)} for name, table in tables.items()},
        "pipelines": total["pipeline"] + total["hand"],
        "pipelines_wrong": total["pipeline_cases_wrong"] + total["hand_cases_wrong"],
        "patches": total["patches"],
        "patches_wrong": total["script_wrong"],
        **{name: total[name] for name in ("crashed", "unbuilt", "hung")},
    }


def told(state: State) -> str:
    figures = counted(state)
    lines = [
        f"{figures['functions']} functions, {figures['pipelines']} pipelines ({figures['pipelines_wrong']} "
        f"wrong), {figures['patches']} patches ({figures['patches_wrong']} wrong); {figures['unbuilt']} cases "
        f"were none, {figures['hung']} hung, {figures['crashed']} ended pipetune"
    ]
    lines.append(f"{'rule':24}{'tried':>8}{'wrong':>8}{'accepted wrong':>16}")
    for name, one in (*figures["by_rule"].items(), ("all", figures)):
        lines.append(f"{name:24}{one['proposals']:8}{one['structurally_wrong']:8}{one['accepted_wrong']:16}")
    return "\n".join(lines)


KEPT = Path(__file__).with_name("right.json.gz")

SEED = "recall"
CASES = {"function": 600, "pipeline": 200, "hand": 999}
"""The number of cases of the list; of those written by hand, all."""

_CLASSES = ("EXACT", "STATISTICAL", "REORDERS", "APPROXIMATE")


def right_of(state: State) -> dict[str, Any]:
    """The right and accepted proposals of every case: `family:index` -> [key, class]."""
    cases = {}
    for (family, index), case in sorted(state.cases.items()):
        single = [one for one in case["tried"] if len(one["keys"]) == 1 and not one["zeros"]]
        if right := [[*one["keys"], one["safety"]] for one in single if one["right"] and one["accepted"]]:
            cases[f"{family}:{index}"] = right
    return {"commit": state.header["commit"], "seed": state.header["seed"], "cases": cases}


def save(right: dict[str, Any], path: Path = KEPT) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(right, separators=(",", ":")).encode())


def load(path: Path = KEPT) -> dict[str, Any]:
    right: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return right


def compared(right: dict[str, Any], state: State) -> tuple[int, int, dict[str, Counter[str]], list[str]]:
    """Counts the right proposals of the list's cases, and those still proposed in the same or a stricter class.

    Returns:
        Both numbers, both for each rule ("before", "kept"), and a line for each lost proposal.
    """
    by_rule: dict[str, Counter[str]] = defaultdict(Counter)
    lost: list[str] = []
    for name, proposals in right["cases"].items():
        family, _, index = name.partition(":")
        case = state.cases.get((family, int(index)))
        if case is None or case.get("hung"):
            continue
        now = {key: safety for key, safety in case["proposed"]}
        refused = {one["keys"][0] for one in case["tried"] if len(one["keys"]) == 1 and one["accepted"] is False}
        for key, safety in proposals:
            rule = key.partition("@")[0]
            kept = key in now and _CLASSES.index(now[key]) <= _CLASSES.index(safety) and key not in refused
            by_rule[rule].update(before=1, kept=int(kept))
            if not kept:
                became = "refused by the comparison" if key in refused else now.get(key, "not proposed")
                lost.append(f"{name} {key} {safety}: {became}")
    before = sum(one["before"] for one in by_rule.values())
    return before, sum(one["kept"] for one in by_rule.values()), by_rule, lost
