"""Whether a rewritten pipeline keeps the promise of its class, judged by the drained elements of both pipelines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.soundness.drained import Element, Kind, Raised, Run, content, in_any_order, in_order

EXACT, STATISTICAL, REORDERS, APPROXIMATE = "EXACT", "STATISTICAL", "REORDERS", "APPROXIMATE"

_AS_MANY = 0.2
"""How much the numbers of distinct elements of two random runs may differ by chance, as a share of the larger."""


@dataclass(frozen=True)
class Verdict:
    """Whether a promise is kept, or how it is broken."""

    right: bool
    kind: str = ""  # name of a `Kind`, or "" where nothing differs
    detail: str = ""
    zeros: bool = False  # right only where zeros and denormals were noted


def judge(
    original: Run, candidate: Run, safety: str, *, random: bool = False, spare: int = 0, notes_zeros: bool = False
) -> Verdict:
    """Whether `candidate` may replace `original` in the class `safety`.

    Two runs of a `random` original differ, or its draws may go to other elements; `spare` rows may be exchanged by
    dropped last batches where the order may differ; `notes_zeros`: changes of denormals and of the sign of zeros were
    noted.
    """
    found = in_order(original, candidate)
    if found is None:
        return Verdict(True)
    kind, detail = found.kind, found.detail
    if kind is Kind.LATER:  # after an error, the rows of a batch depend on the runtime
        return Verdict(True, kind.name, detail)
    if kind <= Kind.DENORMAL:
        tells = kind > Kind.NAN
        return Verdict(not tells or notes_zeros or safety == APPROXIMATE, kind.name, detail, zeros=tells)
    if safety == APPROXIMATE:
        return Verdict(kind <= Kind.OVERFLOW, kind.name, detail)
    if safety == EXACT or original.spec != candidate.spec:
        return Verdict(False, kind.name, detail)
    if random:
        other = as_varied([original], candidate)
        return Verdict(not other, "VALUES" if other else "", other)
    moved = in_any_order(original, candidate, spare=spare if safety == REORDERS else 0)
    return Verdict(moved is None, moved.kind.name if moved else "", moved.detail if moved else "")


def as_varied(originals: Sequence[Run], candidate: Run) -> str:
    """Why a random run cannot come from the distribution of these other runs, or ''.

    It must have equally many elements of the same shapes, equally many errors, and no fewer distinct rows in the first
    epoch and in all: a shared or frozen draw gives fewer. Properties that vary among the other runs are not compared.
    """
    for number, epoch in enumerate(candidate.epochs):
        shapes = [Counter(_shape(event) for event in run.epochs[number]) for run in originals]
        if all(one == shapes[0] for one in shapes) and Counter(_shape(event) for event in epoch) != shapes[0]:
            return f"epoch {number + 1}: other numbers of elements or shapes"
    for epochs in (slice(0, 1), slice(None)):
        least, here = min(_distinct(run, epochs) for run in originals), _distinct(candidate, epochs)
        if here < (1 - _AS_MANY) * least - 2:
            return f"{least} distinct rows became {here}"
    return ""


def _shape(event: Element | Raised) -> object:
    return event if isinstance(event, Raised) else tuple((array.dtype.str, array.shape) for array in event)


def _distinct(run: Run, epochs: slice) -> int:
    """Numbers of distinct rows of each tensor in these epochs, added up."""
    seen: set[tuple[int, bytes]] = set()
    for epoch in run.epochs[epochs]:
        for event in epoch:
            if isinstance(event, Raised):
                continue
            for place, array in enumerate(event):
                parts = array if array.ndim else [array]
                seen.update((place, content(part) if hasattr(part, "dtype") else bytes(part)) for part in parts)
    return len(seen)
