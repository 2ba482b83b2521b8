"""What the suite finds if the product has one guard fewer: the same cases with each guard switched off in turn.

That the suite finds no failures is evidence only if it can find them.
"""

from __future__ import annotations

from pathlib import Path

from tests.soundness.handwritten import HANDS
from tests.soundness.hunt import CASE_SECONDS, wrong_of
from tests.soundness.processes import ROOT, Hung, Worker

GUARDS = (
    "none", "structure", "generated inputs", "epochs", "structure and generated inputs",
    "structure and generated inputs and sample",
)  # fmt: skip
"""Guards that `adapter.without` switches off. They build on each other, hence the last two combinations."""

SETS = {
    "functions, all rows alike but one": ("function", {"manner": "alike", "core": True}),
    "functions, random rows": ("function", {"manner": "random", "core": True}),
    "pipelines written by hand": ("hand", {}),
}
"""The cases run with each guard off: their family, and their arguments."""


_WIDTHS = (7, 11, 7, 10, 10)


def measure(guard: str, name: str, *, count: int, seed: str, worker: Worker) -> tuple[list[int], bool]:
    """Runs one set with one guard off; also returns whether this version of pipetune has the guard.

    Returns:
        The numbers of cases, of proposals, of those that are wrong, accepted or not, of those accepted, and of their
        cases.
    """
    family, given = SETS[name]
    total = [0] * 5
    switched = True
    for index in range(min(count, len(HANDS)) if family == "hand" else count):
        request = {"do": "case", "family": family, "seed": f"{seed}:{family}:{index}", "index": index}
        request |= {"given": given, "without": guard}
        try:
            case = worker.ask(request, seconds=CASE_SECONDS)
        except Hung:
            continue
        switched = switched and bool(case["switched"] or guard == "none")
        wrong = wrong_of(case)
        structurally_wrong = sum(not one["right"] for one in case["tried"])
        counted = (not case["unbuilt"], len(case["tried"]), structurally_wrong, len(wrong), bool(wrong))
        total = [before + now for before, now in zip(total, counted, strict=True)]
    return total, switched


def show(guards: list[str], *, count: int, seed: str, checkout: Path = ROOT) -> None:
    """Prints the table, each line as soon as it is known."""
    heads = zip(("cases", "proposals", "wrong", "accepted", "of cases"), _WIDTHS, strict=True)
    print(f"{'guard off':44}{'set':36}" + "".join(f"{one:>{width}}" for one, width in heads), flush=True)
    worker = Worker(checkout)
    try:
        for guard in guards:
            for name in SETS:
                found, switched = measure(guard, name, count=count, seed=seed, worker=worker)
                if not switched:
                    print(f"{guard:44}this version has no such guard", flush=True)
                    break
                figures = zip(found, _WIDTHS, strict=True)
                print(f"{guard:44}{name:36}" + "".join(f"{one:{width}}" for one, width in figures), flush=True)
    finally:
        worker.end()
