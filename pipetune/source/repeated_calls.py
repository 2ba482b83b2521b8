"""Calls that make several operators of one pipeline: in a loop, or in a helper that is called more than once.

A change of such a call affects all of them, so it can be made only if the plan does the same to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.edits import Edit, Insert, Rewrite, SetArgument
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.tfds_reading import field_for
from pipetune.source.draft import Draft


def made_together(draft: Draft, node: str, current: Pipeline) -> tuple[str, ...]:
    """Returns the operators of `node`'s kind that its call makes, itself included; a library call also makes others."""
    op = current[node].op
    return tuple(name for name in draft.together(node) if name in current and current[name].op == op)


def _changed_with(draft: Draft, edit: SetArgument, current: Pipeline) -> tuple[str, ...]:
    """Returns the operators whose argument changes together with that of `edit.node`."""
    made = made_together(draft, edit.node, current)
    field = field_for(current, edit)
    if field is None:
        return made
    return tuple(name for name in made if field_for(current, replace(edit, node=name)) == field)


def refuse_one_of_several(draft: Draft, node: str, current: Pipeline) -> None:
    """Refuses to remove or move one of several operators that a call makes.

    Raises:
        CannotExpress: the call makes more than this one.
    """
    count = len(made_together(draft, node, current))
    if count > 1:
        raise CannotExpress(f"{_call(node, current)} makes {count} operators of this pipeline: all change.")


def done_in_part(draft: Draft, rewrite: Rewrite, current: Pipeline) -> str:
    """Returns why a rewrite that was written into `draft` changes more than the plan does; '' if it does not.

    Args:
        current: the pipeline after all rewrites that were written.
    """
    return next((why for edit in rewrite.edits for why in _more(draft, edit, current)), "")


def _more(draft: Draft, edit: Edit, current: Pipeline) -> Iterator[str]:
    if isinstance(edit, SetArgument) and edit.node in current:
        all_of_them = _changed_with(draft, edit, current)
        value = current[edit.node].argument(edit.name)
        same = [name for name in all_of_them if current[name].argument(edit.name) == value]
        if len(same) < len(all_of_them):
            yield (
                f"{_call(edit.node, current)} makes {len(all_of_them)} operators of this pipeline, and the plan gives "
                f"this {edit.name} to {len(same)} of them."
            )
    elif isinstance(edit, Insert) and edit.after in current and edit.id in draft.inserted:
        all_of_them = made_together(draft, edit.after, current)
        same = [name for name, its in draft.inserted.items() if its == draft.inserted[edit.id]]
        if len(same) < len(all_of_them):
            yield (
                f"{_call(edit.after, current)} makes {len(all_of_them)} operators of this pipeline, and the plan puts "
                f"{edit.op} behind {len(same)} of them."
            )


def _call(node: str, current: Pipeline) -> str:
    location = current[node].location
    return f"The call at {location}" if location is not None else f"The call of {current[node].title}"
