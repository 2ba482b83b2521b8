"""Recall: the right proposals of one version, and whether another version still makes them.

The list of an earlier version is in `right.json.gz`; `python -m tests.soundness right --checkout PATH` regenerates it
from a checkout of that commit.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.soundness.hunt import State

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
    """Writes the list."""
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(json.dumps(right, separators=(",", ":")).encode())


def load(path: Path = KEPT) -> dict[str, Any]:
    """Reads the list."""
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
