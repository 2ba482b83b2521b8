"""Changes how TensorFlow Datasets reads, by the `read_config=` argument of `tfds.load` or `as_dataset`."""

from __future__ import annotations

import libcst as cst
from libcst.metadata import Assignment

from pipetune.core.edits import Edit, Rewrite
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.tfds_reading import LIBRARY, field_for, fields_for, read_config_text, reading_of, value_text
from pipetune.source.arguments import add_argument
from pipetune.source.draft import Draft, Splice
from pipetune.source.literals import autotune_text, module_text
from pipetune.source.locate import called_name
from pipetune.source.tree import SyntaxTree

_ARGUMENT = "read_config"
_CLASS = "ReadConfig"


def is_reading(edit: Edit, current: Pipeline) -> bool:
    """Whether a `ReadConfig` can express the edit."""
    return field_for(current, edit) is not None


def set_read_config(draft: Draft, edit: Edit, current: Pipeline, *, node: str) -> Draft:
    """Returns the draft in which the call that makes `node` gets a `ReadConfig` with the field of the edit.

    Args:
        current: the pipeline before the edit.

    Raises:
        CannotExpress: other arguments may already give the field, the given `ReadConfig` is not created in sight or
            is used in several places, or the file has no name for TensorFlow Datasets.
    """
    found = field_for(current, edit)
    assert found is not None
    name, value = found
    tree, call = draft.find(node)
    written = value_text(name, value, autotune=autotune_text(tree, call))
    return draft.splice(draft.sites[node].file, _splices(tree, call, name, written))


def by_hand(rewrite: Rewrite, current: Pipeline) -> str:
    """Returns how a user can write a rewrite of the reading that the patch could not; '' for other rewrites."""
    fields = fields_for(current, rewrite.edits)
    reading = reading_of(current, rewrite.node)
    if not fields or reading is None:
        return ""
    return f" By hand: {reading.call}(..., {_ARGUMENT}={read_config_text(fields)})."


def gives_one_dataset(call: cst.Call) -> bool:
    """Whether a call of `tfds.load` or `as_dataset` returns a single dataset: one split, without the info."""
    given = {one.keyword.value: one.value for one in call.args if one.keyword is not None}
    split, info = given.get("split"), given.get("with_info")
    if any(one.star for one in call.args) or not (info is None or _is_name(info, "False")):
        return False
    return isinstance(split, cst.SimpleString | cst.FormattedString | cst.ConcatenatedString)


def _splices(tree: SyntaxTree, call: cst.Call, name: str, written: str) -> list[Splice]:
    given = next((one for one in call.args if one.keyword is not None and one.keyword.value == _ARGUMENT), None)
    if given is None or _is_name(given.value, "None"):
        config = f"{_module(tree, call)}.{_CLASS}({name}={written})"
        if given is not None:
            return [Splice(tree.start(given.value), tree.end(given.value), config.encode())]
        if any(one.star for one in call.args):
            raise CannotExpress(f"The call takes starred arguments, which may already give {_ARGUMENT}.")
        return add_argument(tree, call, f"{_ARGUMENT}={config}")
    made = _made(tree, given.value)
    if any(one.star or one.keyword is None for one in made.args):
        raise CannotExpress(f"{_CLASS} is given arguments by position or starred, which may already give {name}.")
    old = next((one for one in made.args if one.keyword is not None and one.keyword.value == name), None)
    if old is not None:
        return [Splice(tree.start(old.value), tree.end(old.value), written.encode())]
    return add_argument(tree, made, f"{name}={written}")


def _made(tree: SyntaxTree, value: cst.BaseExpression) -> cst.Call:
    """Returns the `ReadConfig(...)` call that makes the value: in place, or assigned once to a name used only here."""
    if isinstance(value, cst.Call) and called_name(value) == _CLASS:
        return value
    scope = tree.scope(value)
    assignments = list(scope[value.value]) if isinstance(value, cst.Name) and scope is not None else []
    assignment = assignments[0] if len(assignments) == 1 else None
    if isinstance(assignment, Assignment):
        statement = next((one for one in tree.ancestors(assignment.node) if isinstance(one, cst.Assign)), None)
        made = statement.value if statement is not None and len(statement.targets) == 1 else None
        if isinstance(made, cst.Call) and called_name(made) == _CLASS:
            if len(assignment.references) > 1:
                raise CannotExpress(f"{assignment.name} is used in several places, and all of them would change.")
            return made
    raise CannotExpress(f"What {_ARGUMENT} is given is not made where pipetune can see it.")


def _is_name(value: cst.BaseExpression, name: str) -> bool:
    return isinstance(value, cst.Name) and value.value == name


def _module(tree: SyntaxTree, call: cst.Call) -> str:
    found = module_text(tree, call, LIBRARY)
    if found is None:
        raise CannotExpress("The file has no name for TensorFlow Datasets, which ReadConfig is reached through.")
    return found
