"""How TensorFlow and TensorFlow Datasets read: `tf.data.Options`, and the `read_config=` of a call."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst
from libcst.metadata import ClassScope

from pipetune.core.edits import Edit, Rewrite
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline, Value
from pipetune.core.storage import (
    LIBRARY,
    read_config_field,
    read_config_fields,
    read_config_text,
    tfds_read_of,
    value_text,
)
from pipetune.source.call_arguments import add_argument, autotune_text, module_text, named_arguments, tensorflow_text
from pipetune.source.chain import insert_link
from pipetune.source.draft import CallSite, Draft, Splice, called_name, replacing
from pipetune.source.source_files import line_end, line_start, newline_of
from pipetune.source.statements import block_index, statement_of, unused_name
from pipetune.source.syntax_tree import SyntaxTree

_LAST, _LINK = "#options", "#with_options"
"""Names of the site at which the last assignment to an option ends, and of the call of `with_options`."""


def set_option(draft: Draft, *, output: str, name: str, value: Value) -> Draft:
    """Returns the draft with `options.<name> = <value>` in effect on the dataset that `output` makes.

    `with_options` takes an object that must be filled first, so it needs statements of its own. They follow the
    statement that assigns the dataset to a name; if there is none, they precede the statement that makes the dataset.

    Args:
        output: id of the pipeline's last operator.
        name: dotted name of the option, such as "autotune.cpu_budget".

    Raises:
        CannotExpress: the dataset is made in the head of a compound statement or in the body of a class, its statement
            shares a line, the file has no name for TensorFlow, or the value is neither a bool nor a number.
    """
    if not isinstance(value, bool | int | float):
        raise CannotExpress(
            f"The value of options.{name} is neither a bool nor a number, so it cannot be written as a literal."
        )
    if not draft.options:
        return _open_block(draft, output=output, name=name, value=value)
    site = draft.sites[_LAST]
    code = draft.codes[site.file]
    first = line_start(code, site.end - 1)
    line = code[first : site.end]
    indentation = line[: len(line) - len(line.lstrip())]
    new = newline_of(code, site.end) + indentation + f"{draft.options}.{name} = {value!r}".encode()
    spliced = draft.splice(site.file, [Splice(site.end, site.end, new)])
    return spliced.with_site(_LAST, CallSite(site.file, site.end + len(new)))


def _open_block(draft: Draft, *, output: str, name: str, value: Value) -> Draft:
    tree, call = draft.find(output)
    file = draft.sites[output].file
    statement = statement_of(tree, call)
    if statement is None or isinstance(tree.scope(call), ClassScope):
        raise CannotExpress("Options need separate statements, for which there is no place here.")
    block_index(statement)  # raises unless it has its line to itself
    options = tensorflow_text(tree, call, "data.Options")
    if options is None:
        raise CannotExpress("The file does not import TensorFlow under a usable name, which tf.data.Options requires.")
    variable = unused_name(tree, "options", "dataset_options")
    code = tree.code
    start, at = line_start(code, tree.start(statement.small)), line_end(code, tree.end(statement.small))
    indentation = tree.indentation(statement.small).decode()
    newline = newline_of(code, at).decode()
    begun, filled = f"{variable} = {options}()", f"{variable}.{name} = {value!r}"
    if statement.name is not None and statement.value is call:
        set_on = f"{statement.name} = {statement.name}.with_options({variable})"
        new = [f"{newline}{indentation}{line}".encode() for line in (begun, filled, set_on)]
        last = at + len(new[0]) + len(new[1])
        spliced = draft.splice(file, [Splice(at, at, b"".join(new))]).with_site(_LAST, CallSite(file, last))
    else:
        text = f"{indentation}{begun}{newline}{indentation}{filled}".encode()
        spliced = draft.splice(file, [Splice(start, start, text + newline.encode())])
        spliced = spliced.with_site(_LAST, CallSite(file, start + len(text)))
        link = f"with_options({variable})".encode()
        spliced = insert_link(spliced, anchor=spliced.sites[output], node=_LINK, text=link).without_site(_LINK)
    return replace(spliced, options=variable)


_ARGUMENT = "read_config"
_CLASS = "ReadConfig"


def set_read_config(draft: Draft, edit: Edit, current: Pipeline, *, node: str) -> Draft:
    """Returns the draft in which the call that makes `node` gets a `ReadConfig` with the field of the edit.

    Args:
        current: the pipeline before the edit.

    Raises:
        CannotExpress: other arguments may already give the field, the given `ReadConfig` is not created in sight or
            is used in several places, or the file has no name for TensorFlow Datasets.
    """
    found = read_config_field(current, edit)
    assert found is not None
    name, value = found
    tree, call = draft.find(node)
    written = value_text(name, value, autotune=autotune_text(tree, call))
    return draft.splice(draft.sites[node].file, _read_config_splices(tree, call, name, written))


def manual_hint(rewrite: Rewrite, current: Pipeline) -> str:
    """Returns how a user can write a rewrite of the reading that the patch could not; '' for other rewrites."""
    fields = read_config_fields(current, rewrite.edits)
    reading = tfds_read_of(current, rewrite.node)
    if not fields or reading is None:
        return ""
    return f" By hand: {reading.call}(..., {_ARGUMENT}={read_config_text(fields)})."


def returns_one_dataset(call: cst.Call) -> bool:
    """Whether a call of `tfds.load` or `as_dataset` returns a single dataset: one split, without the info."""
    given = named_arguments(call)
    if any(one.star for one in call.args) or ("with_info" in given and not _is_name(given["with_info"].value, "False")):
        return False
    strings = cst.SimpleString | cst.FormattedString | cst.ConcatenatedString
    return "split" in given and isinstance(given["split"].value, strings)


def _read_config_splices(tree: SyntaxTree, call: cst.Call, name: str, written: str) -> list[Splice]:
    given = named_arguments(call).get(_ARGUMENT)
    if given is None or _is_name(given.value, "None"):
        tfds = module_text(tree, call, LIBRARY)
        if tfds is None:
            raise CannotExpress(
                "The file does not import tensorflow_datasets under a usable name, which ReadConfig requires."
            )
        config = f"{tfds}.{_CLASS}({name}={written})"
        if given is not None:
            return [replacing(tree, given.value, config)]
        if any(one.star for one in call.args):
            raise CannotExpress(f"The call has starred arguments, which may already set {_ARGUMENT}.")
        return add_argument(tree, call, f"{_ARGUMENT}={config}")
    made = _read_config_call(tree, given.value)
    if any(one.star or one.keyword is None for one in made.args):
        raise CannotExpress(f"{_CLASS} has positional or starred arguments, which may already set {name}.")
    if (old := named_arguments(made).get(name)) is not None:
        return [replacing(tree, old.value, written)]
    return add_argument(tree, made, f"{name}={written}")


def _read_config_call(tree: SyntaxTree, value: cst.BaseExpression) -> cst.Call:
    """Returns the `ReadConfig(...)` call that makes the value: in place, or assigned once to a name used only here."""
    if isinstance(value, cst.Call) and called_name(value) == _CLASS:
        return value
    assignment = tree.only_assignment(value)
    made = tree.assigned_value(assignment)
    if assignment is not None and isinstance(made, cst.Call) and called_name(made) == _CLASS:
        if len(assignment.references) > 1:
            raise CannotExpress(f"{assignment.name} is used in several places, which would all be changed.")
        return made
    raise CannotExpress(f"pipetune cannot find where the value of {_ARGUMENT} is created.")


def _is_name(value: cst.BaseExpression, name: str) -> bool:
    return isinstance(value, cst.Name) and value.value == name
