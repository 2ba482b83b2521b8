"""`reports/soundness.json` and the table in the terminal, from the results of a run."""

from __future__ import annotations

from collections import Counter, defaultdict
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
    """A table for the terminal."""
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
