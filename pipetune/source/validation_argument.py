"""Writes a call where `fit` gets the dataset to validate on: `fit(..., validation_data=data["test"].cache())`."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from pipetune.core.edits import Insert, Move
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.call_arguments import write_call
from pipetune.source.draft import CallSite, Draft, Splice, called_name
from pipetune.source.shared_calls import SharingRules, is_repeated
from pipetune.source.source_files import read_source
from pipetune.source.syntax_tree import SyntaxTree


def express_in_argument(draft: Draft, edit: Insert | Move, current: Pipeline, *, sharing: SharingRules) -> Draft:
    """Returns the draft with `edit` written behind the value of `validation_data`.

    Only what comes last in the pipeline may stand there. The value is that of the dataset, whatever builds it.

    Args:
        draft: the source files.
        edit: to be written.
        current: the pipeline before the edit.
        sharing: names the file with the call of `fit`.

    Raises:
        CannotExpress: it is no insertion behind the last operator, or not one call in that file, outside of loops,
            passes such an argument.
    """
    file = sharing.validated_in
    if not isinstance(edit, Insert) or edit.after != current.output.id or not file:
        raise CannotExpress("It does not stand behind the last operator.")
    tree = draft.tree(file)
    given = _validating_calls(tree)
    if len(given) != 1:
        raise CannotExpress(f"{len(given)} calls of fit in {file} validate.")
    ((call, value),) = given
    if not isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call) or is_repeated(tree, call):
        raise CannotExpress("What fit validates on is chosen there, or built for each of several calls.")
    end, text = tree.end(value), write_call(tree, call, edit.arguments, op=edit.op)
    new = f".{text}".encode()
    draft = draft.splice(file, [Splice(end, end, new)])
    return draft.written_apart(edit.id, CallSite(file, end + len(new)), (tree, call))


def validates_at(file: str, line: int, read: Callable[[str], str] = read_source) -> bool:
    """Whether a file has one call of `fit` that validates, at this line; `read` returns a file by its path."""
    try:
        tree = Draft({}, {}, read=read).tree(file)
    except CannotExpress:
        return False
    calls = [call for call, _ in _validating_calls(tree)]
    return len(calls) == 1 and tree.line(tree.start(calls[0])) <= line <= tree.line(tree.end(calls[0]))


def _validating_calls(tree: SyntaxTree) -> list[tuple[cst.Call, cst.BaseExpression]]:
    """Returns the calls of `fit` that validate, each with the value of that argument."""
    return [(call, value) for call in tree.nodes(cst.Call) if (value := _validation_data(call)) is not None]


def _validation_data(call: cst.Call) -> cst.BaseExpression | None:
    """Returns what a call of `fit` validates on; None if it does not, or is no such call."""
    named = (one.value for one in call.args if one.keyword is not None and one.keyword.value == "validation_data")
    return next(named, None) if called_name(call) == "fit" else None
