"""Row numbers in place of the rows of arrays, gathered behind the batch; `tf/pipelines/gathering.py` at run time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from pipetune.core.edits import ReplaceSource
from pipetune.core.errors import CannotExpress
from pipetune.source.chain import insert_link, links_above
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.flow import refuse_unsafe
from pipetune.source.literals import tensorflow_text
from pipetune.source.statements import Statement, block_index, statement_of
from pipetune.source.text import line_start, newline_of
from pipetune.source.tree import SyntaxTree

_FIRST_COMPONENT = re.compile(r"(?P<single>TensorSpec)|(?P<tuple>\(TensorSpec)|\{(?P<key>'[^'\\]*'): TensorSpec")


def gather_rows(draft: Draft, edit: ReplaceSource, *, spec: str) -> Draft:
    """The draft in which the arrays are tensors in a variable, and a batch of their rows is taken by number.

    Args:
        spec: of a row.

    Raises:
        CannotExpress: the arrays are not given where a statement can stand in front, or the batch stands where they
            are not known.
    """
    tree, call = draft.find(edit.node)
    _, batch = draft.find(edit.after)
    file = draft.sites[edit.node].file
    if draft.sites[edit.after].file != file:
        raise CannotExpress("The arrays and the batch stand in different files.")
    owner, arrays = _constructor(call)
    statement = _statement(tree, call)
    if call not in links_above(batch):
        refuse_unsafe(draft, tree, call, anchor=batch)
    variable = next(candidate for candidate in _names() if candidate not in _taken(tree))
    functions = [tensorflow_text(*draft.place_of_names(edit.after), path) for path in ("gather", "nest.map_structure")]
    length = _length(variable, spec, tensorflow_text(*draft.place_of_names(edit.node), "nest.flatten"))
    if length is None or None in functions:
        raise CannotExpress("The file has no name for TensorFlow, which tf.gather is reached through.")
    receiver = tree.text(owner)
    start = line_start(tree.code, tree.start(statement.small))
    indentation = tree.code[start : tree.start(statement.small)].decode()
    newline = newline_of(tree.code, start).decode()
    given = f"{indentation}{variable} = {receiver}.from_tensors({_with_parentheses(tree, arrays)}).get_single_element()"
    first = Splice(start, start, (given + newline).encode())
    numbers = Splice(tree.start(call), tree.end(call), f"{receiver}.range({length})".encode())
    draft = draft.splice(file, [first, numbers])
    end = tree.start(call) + len(first.new) + len(numbers.new)
    draft = draft.place(edit.node, Site(file, end)).at_place_of(edit.after, edit.gather)
    text = f"map({_function(variable, *functions, single=length == f'len({variable})')})"
    return insert_link(draft, anchor=edit.after, node=edit.gather, text=text.encode())


def _constructor(call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """The class that `from_tensor_slices` is called on, and the arrays given to it."""
    match call:
        case cst.Call(
            func=cst.Attribute(value=receiver, attr=cst.Name(value="from_tensor_slices")),
            args=[cst.Arg(value=arrays, keyword=None | cst.Name(value="tensors"), star="")],
        ):
            return receiver, arrays
    raise CannotExpress("The arrays are given in another way than by from_tensor_slices(arrays).")


def _with_parentheses(tree: SyntaxTree, value: cst.BaseExpression) -> str:
    start = tree.start(value.lpar[0]) if value.lpar else tree.start(value)
    end = tree.end(value.rpar[-1]) if value.rpar else tree.end(value)
    return tree.code[start:end].decode()


def _statement(tree: SyntaxTree, call: cst.Call) -> Statement:
    """The statement that begins with evaluating `call`, so that its arrays may be evaluated in front of it."""
    statement = statement_of(tree, call)
    if statement is None or not isinstance(statement.value, cst.Call):
        raise CannotExpress("The arrays are given where no statement can stand in front.")
    if links_above(statement.value)[-1] is not call:
        raise CannotExpress("The statement does more than make the dataset, before it reads the arrays.")
    block_index(statement)  # its line is its own
    around = next((one for one in tree.ancestors(call) if isinstance(one, cst.FunctionDef | cst.ClassDef)), None)
    if isinstance(around, cst.ClassDef):
        raise CannotExpress("The dataset is made in the body of a class, whose variables no function sees.")
    return statement


def _names() -> Iterator[str]:
    yield from ("arrays", "dataset_arrays", *(f"dataset_arrays_{number}" for number in range(2, 1000)))


def _taken(tree: SyntaxTree) -> set[str]:
    return {name.value for name in tree.nodes(cst.Name)}


def _length(variable: str, spec: str, flatten: str | None) -> str | None:
    """The number of rows, read off the first array."""
    found = _FIRST_COMPONENT.match(spec)
    if found is None:
        return f"len({flatten}({variable})[0])" if flatten is not None else None
    index = "" if found["single"] else "[0]" if found["tuple"] else f"[{found['key']}]"
    return f"len({variable}{index})"


def _function(variable: str, gather: str | None, map_structure: str | None, *, single: bool) -> str:
    if single:
        return f"lambda index: {gather}({variable}, index)"
    return f"lambda index: {map_structure}(lambda array: {gather}(array, index), {variable})"
