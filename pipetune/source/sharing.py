"""Call sites that made more than one dataset: what may be changed there, and what must not."""

from __future__ import annotations

from collections.abc import Sequence
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
from pipetune.core.functions import SCALES, FunctionForm
from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import Node, Pipeline

_ONLY_SPEED = frozenset({"num_parallel_calls", "num_parallel_reads", "cycle_length", "block_length", "deterministic"})
"""Arguments about speed; a rewrite writes cycle and block lengths out as they are in force."""


class SharedCall(CannotExpress):
    """The call that would be changed makes other datasets too."""


@dataclass(frozen=True)
class Sharing:
    """Knows which call sites of a pipeline serve other datasets too.

    Args:
        pipeline: as it was captured.
        others: the other pipelines of the run, which show branches: one dataset read by two.
        all_change: whether a rewrite may change every dataset of a shared site, whatever it does.
    """

    pipeline: Pipeline
    others: Sequence[Pipeline] = ()
    all_change: bool = False

    def datasets(self, node: Node) -> tuple[int, tuple[str, ...]]:
        """How many datasets the call site of `node` serves, and the names of the other pipelines there."""
        site = _site(node.location)
        names = tuple(self.others[index].name for index in self.sharers(node))
        # A library may make several operators of a kind in one call: the smallest count bounds the calls.
        counts = [mine.shared for mine in self.pipeline if site is not None and _site(mine.location) == site]
        return max(min(counts, default=node.shared), 1 + len(names)), names

    def sharers(self, node: Node) -> tuple[int, ...]:
        """Which of the other pipelines have an operator made by the call of `node`."""
        site = _site(node.location)
        return tuple(
            index
            for index, other in enumerate(self.others)
            if site is not None and any(_site(theirs.location) == site for theirs in other)
        )

    def check(self, rewrite: Rewrite, edit: Edit, *, anchor: Node | None) -> str:
        """A note for the reader when the edit changes several datasets; empty when it changes one.

        Args:
            anchor: the captured operator whose call is changed or built upon.

        Raises:
            SharedCall: it must not change the others.
            CannotExpress: another dataset calls its function, elsewhere.
        """
        if isinstance(edit, ReplaceFunction) and (edit.form is FunctionForm.DECODE_AND_CROP or edit.form in SCALES):
            self._refuse_shared_function(edit.node)
        touched = [node for node in (anchor, self._node(edit)) if node is not None]
        for node in dict.fromkeys(node.id for node in touched):
            count, names = self.datasets(self.pipeline[node])
            if count < 2:
                continue
            location = self.pipeline[node].location
            with_names = f" ({', '.join(names)} too)" if names else ""
            if not self._harmless(edit, rewrite) and not self.all_change:
                own = self._made_here(self.pipeline[node])
                if own == count:
                    raise SharedCall(f"The call at {location} makes {own} operators of this pipeline: all change.")
                raise SharedCall(f"The call at {location} is shared by {count} datasets{with_names}.")
            return f"The call at {location} serves {count} datasets{with_names}; all of them change."
        return ""

    def _made_here(self, node: Node) -> int:
        """How many operators like `node` its call makes for this pipeline alone, in a loop for example."""
        site = _site(node.location)
        return sum(one.op == node.op and _site(one.location) == site for one in self.pipeline)

    def _refuse_shared_function(self, node: str) -> None:
        """Refuses to change a function that other datasets call too, at calls of their own.

        Raises:
            CannotExpress: one does; nobody looked at its elements.
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
