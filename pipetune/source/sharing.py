"""Decides what may be changed at call sites that make more than one dataset."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pipetune.core.edits import (
    Edit,
    Insert,
    Move,
    Remove,
    ReplaceFunction,
    ReplaceOperator,
    ReplaceSource,
    Rewrite,
    Safety,
    SetArgument,
    SetOption,
    SplitFunction,
)
from pipetune.core.errors import CannotExpress
from pipetune.core.functions import FunctionForm
from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import Node, Pipeline
from pipetune.source.callers import Callers

_ONLY_SPEED = frozenset({"num_parallel_calls", "num_parallel_reads", "cycle_length", "block_length", "deterministic"})
"""Arguments that only affect speed; a rewrite sets cycle and block lengths only to the values already in effect."""


class SharedCall(CannotExpress):
    """The call to be changed also makes other datasets, or may."""


@dataclass(frozen=True)
class Sharing:
    """The call sites of a pipeline that serve other datasets too.

    Args:
        pipeline: as it was captured.
        others: the other pipelines of the run, which reveal branches: one dataset that is read by two pipelines.
        all_change: whether a rewrite may change every dataset of a shared site, whatever it does.
        others_stay: whether shared sites may change because the caller limits the change to this dataset afterwards.
        functions_stay: whether the functions of maps must not change, because unchanged code calls them too.
        callers: the callers of the functions that make the datasets.
    """

    pipeline: Pipeline
    others: Sequence[Pipeline] = ()
    all_change: bool = False
    others_stay: bool = False
    functions_stay: bool = False
    callers: Callers | None = None

    def datasets(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """Returns how many datasets the call site of `node` serves, and the names of the other pipelines it serves."""
        site = _site(node.location)
        names = tuple(self.others[index].name for index in self.sharers(node))
        # A library may make several operators of a kind in one call, so the smallest count bounds the number of calls.
        counts = [mine.shared for mine in self.pipeline if site is not None and _site(mine.location) == site]
        return max(min(counts, default=node.shared), 1 + len(names)), names

    def sharers(self, node: Node) -> tuple[int, ...]:
        """Returns the indices of the other pipelines with an operator made by the call of `node`."""
        site = _site(node.location)
        return tuple(
            index
            for index, other in enumerate(self.others)
            if site is not None and any(_site(theirs.location) == site for theirs in other)
        )

    def touched(self, edit: Edit, anchor: Node | None) -> list[Node]:
        """Returns the captured operators whose calls an edit changes or builds upon, without duplicates."""
        found = [node for node in (anchor, self._node(edit)) if node is not None]
        return list({node.id: node for node in found}.values())

    def level(self, node: Node) -> int:
        """Returns how many frames out from the operator's own call the first call is that makes only this dataset.

        Raises:
            CannotExpress: other datasets are made through all of these calls, or by running them again.
        """
        level = self.callers.level(node) if self.callers is not None else 0
        again = self.datasets(node)[0] > 1 + len(node.other_calls)
        if again and (self.callers is None or self.callers.repeated(node)):
            raise CannotExpress(f"The calls that lead to {node.location} make several datasets.")
        alike = [self.others[index].name for index in self.sharers(node) if self._passes_alike(index, node, level)]
        if alike:
            raise CannotExpress(f"The calls that lead to {node.location} make {', '.join(alike)} too.")
        return level

    def _passes_alike(self, index: int, node: Node, level: int) -> bool:
        site = _site(node.location)
        theirs = [one for one in self.others[index] if _site(one.location) == site]
        return any(node.calls[:level] == one.calls[:level] for one in theirs)

    def check(
        self, rewrite: Rewrite, edit: Edit, *, anchor: Node | None, own: Collection[str] = ()
    ) -> str:
        """Returns a note for the reader if the edit changes several datasets; empty if it changes one.

        Args:
            rewrite: the rewrite that the edit belongs to.
            anchor: the captured operator whose call is changed or built upon.
            own: operators whose calls earlier edits have put where only this dataset is made.

        Raises:
            SharedCall: the edit must not change the other datasets.
            CannotExpress: another dataset calls the function of the edit at another call site.
        """
        if isinstance(edit, ReplaceFunction) and edit.form is FunctionForm.DECODE_AND_CROP:
            self._refuse_shared_function(edit.node)
        for node in self.touched(edit, anchor):
            if node.id in own:
                continue
            count, names = self.datasets(node)
            with_names = f" ({', '.join(names)} too)" if names else ""
            if self.others_stay:
                continue
            if not self._harmless(edit, rewrite) and not self.all_change:
                self._refuse_shared(node, count, with_names)
            elif count > 1:
                return f"The call at {node.location} serves {count} datasets{with_names}; all of them change."
        return ""

    def alone(self, node: Node) -> bool:
        """Whether the call of an operator makes only this dataset, and no other code can run it."""
        try:
            self._refuse_shared(node, self.datasets(node)[0], "")
        except SharedCall:
            return False
        return True

    def _refuse_shared(self, node: Node, count: int, with_names: str) -> None:
        """Refuses to change a call that makes another dataset, or may make one later in the script.

        Raises:
            SharedCall: it does, or may.
        """
        if count > 1 and self._made_here(node) == count:
            raise SharedCall(f"The call at {node.location} makes {count} operators of this pipeline: all change.")
        use = self.callers.not_run(node) if self.callers is not None else None
        if use is not None:
            raise SharedCall(f"The function around the call at {node.location} is named elsewhere too ({use.place}).")
        try:
            alone = self.level(node) == 0 and (self.callers is not None or count < 2)
        except CannotExpress:
            alone = False
        if not alone:
            raise SharedCall(f"The call at {node.location} is shared by {count} datasets{with_names}.")

    def _made_here(self, node: Node) -> int:
        """Returns how many operators of `node`'s kind its call makes for this pipeline, for example in a loop."""
        site = _site(node.location)
        return sum(one.op == node.op and _site(one.location) == site for one in self.pipeline)

    def _refuse_shared_function(self, node: str) -> None:
        """Refuses to change a function that other datasets call too, at other call sites.

        Raises:
            CannotExpress: another dataset calls it; the elements of that dataset were not examined.
        """
        mine = self.pipeline[node]
        name = mine.function.name if mine.function is not None else ""
        for other in self.others:
            for theirs in other:
                same = theirs.function is not None and theirs.function.name == name != "<lambda>"
                if same and _site(theirs.location) != _site(mine.location):
                    raise CannotExpress(f"The function {name} is called for the dataset {other.name} too.")

    def _node(self, edit: Edit) -> Node | None:
        match edit:
            case (
                SetArgument(node=node)
                | Remove(node=node)
                | Move(node=node)
                | ReplaceFunction(node=node)
                | ReplaceSource(node=node)
                | SplitFunction(node=node)
                | ReplaceOperator(node=node)
            ):
                return next((captured for captured in self.pipeline if captured.id == node), None)
            case SetOption():
                return self.pipeline.output
        return None

    def _harmless(self, edit: Edit, rewrite: Rewrite) -> bool:
        """Whether every dataset of the site keeps its elements and their order."""
        if rewrite.safety > Safety.STATISTICAL:
            return False
        match edit:
            case Insert(op="prefetch"):
                return True
            case SetArgument(name="deterministic", value=False):
                return False
            case SetArgument(node=node, name="buffer_size"):
                return node in self.pipeline and self.pipeline[node].op == "prefetch"
            case SetArgument(name=name):
                return name in _ONLY_SPEED
        return False


def _site(location: SourceLocation | None) -> tuple[str, int, int, str] | None:
    if location is None:
        return None
    return location.file, location.end_line, location.end_column, location.method
