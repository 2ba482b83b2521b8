"""What the suite finds if the product has one guard fewer: the same cases with each guard switched off in turn.

That the suite finds no failures is evidence only if it can find them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.soundness.handwritten import HANDS
from tests.soundness.hunt import CASE_SECONDS
from tests.soundness.processes import ROOT, Hung, Worker

GUARDS = (
    "none",
    "structure",
    "generated inputs",
    "epochs",
    "structure and generated inputs",
    "structure and generated inputs and sample",
)
"""Guards that `adapter.without` switches off. They build on each other, hence the last two combinations."""

SETS = {
    "functions, all rows alike but one": ("function", {"manner": "alike", "core": True}),
    "functions, random rows": ("function", {"manner": "random", "core": True}),
    "pipelines written by hand": ("hand", {}),
}
"""The cases run with each guard off: their family, and their arguments."""


@dataclass(frozen=True)
class Found:
    """The results of one set with one guard off."""

    cases: int
    proposals: int
    structurally_wrong: int  # proposals that are wrong, accepted or not
    accepted_wrong: int
    cases_wrong: int  # with something wrong that was accepted


def measure(guard: str, name: str, *, count: int, seed: str, worker: Worker) -> tuple[Found, bool]:
    """Runs one set with one guard off; also returns whether this version of pipetune has the guard."""
    family, given = SETS[name]
    total: Counter[str] = Counter()
    switched = True
    for index in range(min(count, len(HANDS)) if family == "hand" else count):
        request = {
            "do": "case",
            "family": family,
            "seed": f"{seed}:{family}:{index}",
            "index": index,
            "given": given,
            "without": guard,
        }
        try:
            case = worker.ask(request, seconds=CASE_SECONDS)
        except Hung:
            continue
        switched = switched and bool(case["switched"] or guard == "none")
        wrong = [one for one in case["tried"] if one["accepted"] and not one["right"]]
        total["cases"] += not case["unbuilt"]
        total["proposals"] += len(case["tried"])
        total["structurally_wrong"] += sum(not one["right"] for one in case["tried"])
        total["accepted_wrong"] += len(wrong)
        total["cases_wrong"] += bool(wrong)
    return Found(**{field: total[field] for field in Found.__dataclass_fields__}), switched


def show(guards: list[str], *, count: int, seed: str, checkout: Path = ROOT) -> None:
    """Prints the table, each line as soon as it is known."""
    print(
        f"{'guard off':44}{'set':36}{'cases':>7}{'proposals':>11}{'wrong':>7}{'accepted':>10}{'of cases':>10}",
        flush=True,
    )
    worker = Worker(checkout)
    try:
        for guard in guards:
            for name in SETS:
                found, switched = measure(guard, name, count=count, seed=seed, worker=worker)
                if not switched:
                    print(f"{guard:44}this version has no such guard", flush=True)
                    break
                print(
                    f"{guard:44}{name:36}{found.cases:7}{found.proposals:11}{found.structurally_wrong:7}"
                    f"{found.accepted_wrong:10}{found.cases_wrong:10}",
                    flush=True,
                )
    finally:
        worker.end()
