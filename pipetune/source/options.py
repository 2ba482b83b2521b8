"""Sets `tf.data.Options`: in statements after the assignment of the dataset, or before the statement that makes it."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst
from libcst.metadata import ClassScope

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Value
from pipetune.source.chain import forget, insert_link
from pipetune.source.draft import Draft, OptionsBlock, Site, Splice
from pipetune.source.literals import tensorflow_text
from pipetune.source.statements import block_index, names_read, statement_of
from pipetune.source.text import line_end, line_start, newline_of

_LAST, _LINK = "#options", "#with_options"


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
        raise CannotExpress(f"The value of options.{name} is no number, and has no literal.")
    if draft.options is None:
        return _open_block(draft, output=output, name=name, value=value)
    site = draft.sites[draft.options.last]
    code = draft.codes[site.file]
    first = line_start(code, site.end - 1)
    line = code[first : site.end]
    indentation = line[: len(line) - len(line.lstrip())]
    new = newline_of(code, site.end) + indentation + f"{draft.options.variable}.{name} = {value!r}".encode()
    return draft.splice(site.file, [Splice(site.end, site.end, new)]).place(_LAST, Site(site.file, site.end + len(new)))


def _open_block(draft: Draft, *, output: str, name: str, value: Value) -> Draft:
    tree, call = draft.find(output)
    file = draft.sites[output].file
    statement = statement_of(tree, call)
    if statement is None or isinstance(tree.scope(call), ClassScope):
        raise CannotExpress("Options need statements of their own, and there is no place for them.")
    block_index(statement)
    behind = statement.name is not None and statement.value is call
    options = tensorflow_text(tree, call, "data.Options")
    if options is None:
        raise CannotExpress("The file has no name for TensorFlow, which tf.data.Options needs.")
    taken = set(names_read(tree.module)) | {name.value for name in tree.nodes(cst.Name)}
    variable = next(
        candidate
        for candidate in ("options", "dataset_options", *(f"dataset_options_{i}" for i in range(2, 1000)))
        if candidate not in taken
    )
    code = tree.code
    start, at = line_start(code, tree.start(statement.small)), line_end(code, tree.end(statement.small))
    indentation = code[start : tree.start(statement.small)].decode()
    newline = newline_of(code, at).decode()
    begun, filled = f"{variable} = {options}()", f"{variable}.{name} = {value!r}"
    if behind:
        set_on = f"{statement.name} = {statement.name}.with_options({variable})"
        new = [f"{newline}{indentation}{line}".encode() for line in (begun, filled, set_on)]
        last = at + len(new[0]) + len(new[1])
        spliced = draft.splice(file, [Splice(at, at, b"".join(new))]).place(_LAST, Site(file, last))
    else:
        text = f"{indentation}{begun}{newline}{indentation}{filled}".encode()
        spliced = draft.splice(file, [Splice(start, start, text + newline.encode())])
        spliced = spliced.place(_LAST, Site(file, start + len(text)))
        linked = insert_link(spliced, anchor=output, node=_LINK, text=f"with_options({variable})".encode())
        spliced = forget(linked, _LINK)
    return replace(spliced, options=OptionsBlock(variable, _LAST))
