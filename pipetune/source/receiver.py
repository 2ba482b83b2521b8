"""Alternative places for an edit at a shared call: before the one call that consumes it, or after the helper's call.

A helper such as `load(pattern)` serves training and validation; what would follow its last call can be written
after `load(pattern)` itself, in the function that only training uses.
"""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from pipetune.core.edits import Insert, Move
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.chain import break_of, forget, insert_link, link_of
from pipetune.source.crossing import refuse_other_value
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.literals import write_call
from pipetune.source.moving import move
from pipetune.source.placement import refuse_inside_library
from pipetune.source.sharing import Sharing
from pipetune.source.statements import block_index, names_bound, statement_of
from pipetune.source.tree import SyntaxTree

_RECEIVER = "#receiver"


def express_in_front(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: Sharing) -> Draft:
    """Returns the draft with `edit` written before the one operator that consumes `edit.after`.

    Args:
        current: the pipeline before the edit.
        sharing: the call sites of the captured pipeline that serve other datasets too.

    Raises:
        CannotExpress: not exactly one operator consumes it, the consumer is shared too, or what the consumer is
            called on is not the value of another call in the same block.
    """
    moved = edit.node if isinstance(edit, Move) else None
    readers = [node for node in current.consumers(edit.after) if node.id != moved]
    if len(readers) != 1:
        raise CannotExpress(f"{len(readers)} operators read what stands there.")
    (reader,) = readers
    if reader.id not in sharing.pipeline or not sharing.alone(sharing.pipeline[reader.id]):
        raise CannotExpress("The call that reads it is shared too.")
    refuse_inside_library(current, reader.id)
    tree, call = draft.find(reader.id)
    if isinstance(edit, Insert):
        return _insert_in_front(draft, edit, tree, call, reader=reader.id)
    refuse_inside_library(current, edit.node)
    anchor = Site(draft.sites[reader.id].file, tree.end(_value_called_on(tree, call)))
    if anchor in draft.sites.values():
        raise CannotExpress("What it is called on is the shared call itself.")
    return forget(move(draft.place(_RECEIVER, anchor), edit.node, _RECEIVER, current), _RECEIVER)


def express_behind(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: Sharing) -> Draft:
    """Returns the draft with `edit` written after the helper's call that makes only this dataset: `load(x).cache()`.

    Args:
        current: the pipeline before the edit.
        sharing: the call sites of the captured pipeline that serve other datasets too.

    Raises:
        CannotExpress: the edit is not an insertion, there is no such call, or its value is not the dataset of
            `edit.after`.
    """
    if not isinstance(edit, Insert) or edit.after not in sharing.pipeline:
        raise CannotExpress("What moves stands in the function itself.")
    level = sharing.level(sharing.pipeline[edit.after])
    if not level or edit.after not in draft.ways or edit.after in draft.beside:
        raise CannotExpress("The call that makes it is passed by other datasets alone.")
    refuse_other_value(draft, edit.after, level, current)
    site = draft.ways[edit.after][level - 1]
    tree = draft.tree(site.file)
    if site.end not in tree.calls:
        raise CannotExpress("The function is not called where something could stand behind it.")
    draft = draft.place(_RECEIVER, site)
    draft = replace(draft, captured={**draft.captured, _RECEIVER: (tree, tree.calls[site.end])})
    text = write_call(tree, tree.calls[site.end], edit.arguments, op=edit.op)
    draft = insert_link(draft, anchor=_RECEIVER, node=edit.id, text=text.encode())
    draft = draft.at_place_of(edit.after, edit.id, level=level)
    draft = replace(draft, captured={**draft.captured, edit.id: draft.captured[_RECEIVER]})
    return replace(forget(draft, _RECEIVER), own=draft.own | {edit.id})


def _insert_in_front(draft: Draft, edit: Insert, tree: SyntaxTree, call: cst.Call, *, reader: str) -> Draft:
    """Turns `x.map(f)` into `x.cache().map(f)`: other readers of `x` are not affected."""
    link = link_of(tree, call)
    file, text = draft.sites[reader].file, write_call(*draft.place_of_names(reader), edit.arguments, op=edit.op)
    style = break_of(tree, call.func)  # without the comments before the call
    new = style.before + b"." + style.after + text.encode()
    draft = draft.at_place_of(reader, edit.id)
    return draft.splice(file, [Splice(link.start, link.start, new)]).place(
        edit.id, Site(file, link.start + len(new))
    )


def _value_called_on(tree: SyntaxTree, call: cst.Call) -> cst.Call:
    """Returns the call whose value the method is called on, directly or through a name bound in the same block.

    Raises:
        CannotExpress: the receiver is something else, or the name may have been rebound in between.
    """
    receiver = link_of(tree, call).receiver
    if isinstance(receiver, cst.Call):
        return receiver
    statement = statement_of(tree, call)
    if isinstance(receiver, cst.Name) and statement is not None:
        for line in reversed(statement.block[: block_index(statement)]):
            if receiver.value not in names_bound(line):
                continue
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                assigned = statement_of(tree, line.body[0])
                if assigned is not None and assigned.name == receiver.value and isinstance(assigned.value, cst.Call):
                    return assigned.value
            break
    raise CannotExpress("What the call is called on is not made by one call in the same block.")
