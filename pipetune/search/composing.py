"""Plans made of candidates: which exclude each other, which stands for a group, which are tried together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pipetune.core.edits import Insert, Plan, ReplaceOperator, Rewrite, SetArgument, SetOption, SplitFunction
from pipetune.core.pipeline import AUTOTUNE, Value

TUNED = "tuned"
"""Name of the plans the search makes."""

Conflict = Callable[[Sequence[Rewrite]], str]
"""Why rewrites, each legal alone, must not stand in one plan; empty if they may."""

_BOUNDS = frozenset({"autotune.cpu_budget", "threading.private_threadpool_size"})
"""Options that only keep AUTOTUNE's numbers within the cores granted; a rewrite with fixed numbers needs none."""


def group_of(rewrite: Rewrite) -> str:
    """Rewrites with the same answer exclude each other."""
    return rewrite.group or rewrite.key


def values_of(rewrite: Rewrite) -> tuple[Value, ...]:
    """The numbers and other values the rewrite writes."""
    found: list[Value] = []
    for edit in rewrite.edits:
        match edit:
            case SetArgument(value=value) | SetOption(value=value):
                found.append(value)
            case Insert(arguments=arguments) | ReplaceOperator(arguments=arguments):
                found += arguments.values()
    return tuple(found)


def shape_of(rewrite: Rewrite) -> tuple[object, ...]:
    """The rewrite without its values: two of the same shape differ by numbers only."""
    shape: list[object] = [rewrite.rule, rewrite.node]
    only_options = all(isinstance(edit, SetOption) for edit in rewrite.edits)
    for edit in rewrite.edits:
        if isinstance(edit, SetOption) and edit.name in _BOUNDS and not only_options:
            continue
        fields = [getattr(edit, name) for name in ("node", "after", "op", "form", "name") if hasattr(edit, name)]
        cut = [edit.cut.kind] if isinstance(edit, SplitFunction) else []
        shape.append((type(edit), *fields, *cut, *getattr(edit, "arguments", ())))
    return tuple(shape)


def structural(candidates: Sequence[Rewrite]) -> list[Rewrite]:
    """One rewrite per shape and group: the one that leaves numbers to AUTOTUNE, else the first.

    Numbers are tried later, against the plan that has this one in their place.
    """
    chosen: dict[tuple[object, ...], Rewrite] = {}
    for rewrite in candidates:
        slot = (rewrite.group, *shape_of(rewrite))
        if slot not in chosen or (AUTOTUNE in values_of(rewrite) and AUTOTUNE not in values_of(chosen[slot])):
            chosen[slot] = rewrite
    keys = {rewrite.key for rewrite in chosen.values()}
    return [rewrite for rewrite in candidates if rewrite.key in keys]


def numbers_for(rewrite: Rewrite, candidates: Sequence[Rewrite]) -> list[Rewrite]:
    """Candidates that differ from `rewrite` by their numbers only."""
    return [
        other
        for other in candidates
        if other.key != rewrite.key and other.group == rewrite.group and shape_of(other) == shape_of(rewrite)
    ]


class Composer:
    """Makes plans whose rewrites stand in the order the candidates were given in, whatever order found them."""

    def __init__(self, candidates: Sequence[Rewrite], *, conflict: Conflict = lambda rewrites: "") -> None:
        self._conflict = conflict
        self._position = {rewrite.key: position for position, rewrite in enumerate(candidates)}

    def plan(self, rewrites: Iterable[Rewrite]) -> Plan:
        """These rewrites; of one group the last given stays."""
        kept = {group_of(rewrite): rewrite for rewrite in rewrites}
        return Plan(TUNED, tuple(sorted(kept.values(), key=lambda rewrite: self._position[rewrite.key])))

    def added(self, plan: Plan, rewrite: Rewrite) -> Plan:
        """`plan` and `rewrite`, in the place of one of its group."""
        return self.plan([*plan.rewrites, rewrite])

    def without(self, plan: Plan, dropped: Iterable[Rewrite]) -> Plan:
        """`plan` without these."""
        keys = {rewrite.key for rewrite in dropped}
        return self.plan(rewrite for rewrite in plan.rewrites if rewrite.key not in keys)

    def conflict(self, plan: Plan) -> str:
        """Why these rewrites must not stand in one plan; empty if they may."""
        return self._conflict(plan.rewrites)

    def everything(self, ranked: Iterable[Rewrite]) -> Plan:
        """As many of them together as may be; of those that exclude each other the first ranked."""
        plan = self.plan([])
        for rewrite in ranked:
            grown = self.added(plan, rewrite)
            if len(grown.rewrites) > len(plan.rewrites) and not self.conflict(grown):
                plan = grown
        return plan
