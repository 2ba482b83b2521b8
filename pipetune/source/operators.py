"""Replaces a dataset method by another one, which gets the same function."""

from __future__ import annotations

import libcst as cst

from pipetune.core.edits import ReplaceOperator
from pipetune.core.errors import CannotExpress
from pipetune.source.arguments import set_argument
from pipetune.source.chain import link_of
from pipetune.source.draft import Draft, Splice
from pipetune.source.literals import write_value


def call_operator(draft: Draft, edit: ReplaceOperator) -> Draft:
    """Returns the draft in which the call of `edit.node` names another method; other arguments stay as they are.

    Raises:
        CannotExpress: the call is not a method of a dataset or makes other operators too, or starred arguments may
            already give an argument of the edit.
    """
    tree, call = draft.find(edit.node)
    link_of(tree, call)
    if len(draft.together(edit.node)) > 1:
        raise CannotExpress("The same call makes other operators too.")
    assert isinstance(call.func, cst.Attribute)
    file, method = draft.sites[edit.node].file, call.func.attr
    draft = draft.splice(file, [Splice(tree.start(method), tree.end(method), edit.op.encode())])
    for name, value in edit.arguments.items():
        if value is None:
            continue
        tree, call = draft.find(edit.node)
        text = write_value(*draft.place_of_names(edit.node), value, op=edit.op, name=name)
        draft = draft.splice(file, set_argument(tree, call, op=edit.op, name=name, text=text))
    return draft
