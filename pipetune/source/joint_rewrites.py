"""Rewrites that change all operators of one call alike: they are written together, as one change of that call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pipetune.core.edits import (
    Edit,
    Insert,
    ReplaceFunction,
    ReplaceSource,
    Rewrite,
    SplitFunction,
    named_operators,
    renamed,
)
from pipetune.core.pipeline import Node, Pipeline
from pipetune.source.draft import Draft
from pipetune.source.shared_calls import operators_of_call

Value = TypeVar("Value")


@dataclass(frozen=True)
class JointRewrites:
    """A rewrite that is to be written, and those that the same change of the source makes of other operators."""

    others: tuple[Rewrite, ...]
    counterparts: tuple[Mapping[str, str], ...]  # per rewrite: its operators, by those of the first one

    @property
    def edits(self) -> list[Edit]:
        return [edit for rewrite in self.others for edit in rewrite.edits]

    def hide_others(self, draft: Draft) -> Draft:
        """Returns the draft in which the calls make the operators of the first rewrite only."""
        hidden = {mine for ids in self.counterparts for first, mine in ids.items() if mine != first}
        return replace(draft, sites={node: site for node, site in draft.sites.items() if node not in hidden})

    def count_as_one(self, pipeline: Pipeline) -> Pipeline:
        """Returns the captured pipeline in which these operators are made by calls that make nothing else of it."""
        return replace(pipeline, nodes=tuple(self._alone(node, pipeline) for node in pipeline))

    def _alone(self, node: Node, pipeline: Pipeline) -> Node:
        ids = [ids[node.id] for ids in self.counterparts if ids.get(node.id, node.id) != node.id]
        stacks = {pipeline[one].calls for one in ids if one in pipeline}
        others = tuple(stack for stack in node.other_calls if stack not in stacks)
        return replace(node, shared=max(1, node.shared - len(ids)), other_calls=others)

    def show_others(self, draft: Draft) -> Draft:
        """Returns the draft, after the first rewrite was written, in which the others are written, too."""
        for ids in self.counterparts:
            beside = {
                ids[node]: (ids.get(anchor, anchor), level)
                for node, (anchor, level) in draft.moved_beside.items()
                if node in ids
            }
            draft = replace(
                draft,
                sites=_copied(draft.sites, ids),
                original_calls=_copied(draft.original_calls, ids),
                inserted=_copied(draft.inserted, ids),
                moved_beside={**draft.moved_beside, **beside},
                exclusive=draft.exclusive | {ids[node] for node in draft.exclusive if node in ids},
            )
        return draft


def _copied(values: Mapping[str, Value], ids: Mapping[str, str]) -> dict[str, Value]:
    """Returns the values by operator, in which those of `ids` have the values of their counterparts."""
    return {**values, **{mine: values[first] for first, mine in ids.items() if first in values}}


def find_joint_rewrites(
    draft: Draft, rewrite: Rewrite, rest: Sequence[Rewrite], current: Pipeline
) -> JointRewrites | None:
    """Returns the rewrites in `rest` that do the same as `rewrite` to the other operators of the calls it changes.

    Args:
        draft: before any of them is written.
        current: the pipeline before any of them.

    Returns:
        None if there are none, or if the calls make further operators that would not change.
    """
    alike = [(other, ids) for other in rest if (ids := _counterparts(draft, rewrite, other)) is not None]
    joint = JointRewrites(tuple(other for other, _ in alike), tuple(ids for _, ids in alike))
    for node in joint.counterparts[0] if alike else ():
        together = {node, *(ids[node] for ids in joint.counterparts)}
        if node in current and not together.issuperset(operators_of_call(draft, node, current)):
            return None
    return joint if alike else None


def _counterparts(draft: Draft, first: Rewrite, other: Rewrite) -> dict[str, str] | None:
    """Returns the operators of `other` by those of `first`; None if it does not do the same at the same calls."""
    if (first.rule, first.safety, len(first.edits)) != (other.rule, other.safety, len(other.edits)):
        return None
    both = list(zip(first.edits, other.edits, strict=True))
    if any(type(one) is not type(two) or len(_operators(one)) != len(_operators(two)) for one, two in both):
        return None
    pairs = [pair for one, two in both for pair in zip(_operators(one), _operators(two), strict=True)]
    ids = dict(pairs)
    if any(ids[one] != two or draft.sites.get(one) != draft.sites.get(two) for one, two in pairs):
        return None
    if any(_without_digests(renamed(one, ids)) != _without_digests(two) for one, two in both):
        return None
    return ids if any(one != two and one in draft.sites for one, two in pairs) else None


def _operators(edit: Edit) -> tuple[str, ...]:
    """Returns the operators that an edit names, and those that it makes."""
    match edit:
        case Insert(id=name) | SplitFunction(head=name) | ReplaceSource(gather=name):
            return (*named_operators(edit), name)
    return named_operators(edit)


def _without_digests(edit: Edit) -> Edit:
    """Returns an edit without the digests of functions: those are traced once per operator, from the same source."""
    match edit:
        case ReplaceFunction() | ReplaceSource():
            return replace(edit, digest="")
        case SplitFunction(cut=cut):
            return replace(edit, cut=replace(cut, head="", tail=""))
    return edit
