"""Replaces the rows of arrays by indices, and gathers rows after the batch; `tf/pipelines/gathering.py` at run time."""

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
from pipetune.source.purity import evaluated_first
from pipetune.source.statements import Statement, block_index, statement_of
from pipetune.source.text import line_start, newline_of
from pipetune.source.tree import SyntaxTree
from pipetune.source.windows import WrittenWindows, written_windows

_FIRST_COMPONENT = re.compile(r"(?P<single>TensorSpec)|(?P<tuple>\(TensorSpec)|\{(?P<key>'[^'\\]*'): TensorSpec")


def gather_rows(draft: Draft, edit: ReplaceSource, *, spec: str, window: str = "") -> Draft:
    """Returns the draft in which a variable has the arrays as tensors, and batches of their rows are gathered by index.

    Args:
        spec: element spec of a row, as text.
        window: id of the operator that formed windows of the rows; empty if none did. Its call may be removed already.

    Raises:
        CannotExpress: the arrays are passed where no statement can be put in front, or they are not visible at the
            batch.
    """
    tree, call = draft.find(edit.node)
    _, batch = draft.find(edit.after)
    file = draft.sites[edit.node].file
    if draft.sites[edit.after].file != file:
        raise CannotExpress("The arrays and the batch stand in different files.")
    owner, arrays = _constructor(call)
    statement = _statement(tree, call)
    if call not in links_above(tree, batch):
        refuse_unsafe(draft, tree, call, anchor=batch)
    tf = _tensorflow(draft, edit.after)
    variable = next(name for name in _names() if name not in _taken(tree))
    array = _first_array(variable, spec, tf)
    receiver = tree.text(owner)
    start = line_start(tree.code, tree.start(statement.small))
    indentation = tree.code[start : tree.start(statement.small)].decode()
    newline = newline_of(tree.code, start).decode()
    lines = [f"{variable} = {receiver}.from_tensors({_with_parentheses(tree, arrays)}).get_single_element()"]
    function = _lambda(variable, tf, single=array == variable)
    windows = written_windows(draft, edit.node, window) if window else None
    if windows is not None and edit.windows is not None:
        function = next(name for name in _function_names() if name not in _taken(tree))
        closed = edit.windows.length_known
        lines += _definition(function, variable, tf, windows, single=array == variable, length_known=closed)
    above = "".join((indentation + line if line else "") + newline for line in lines)
    first = Splice(start, start, above.encode())
    starts = windows.starts(array) if windows is not None else f"len({array})"
    numbers = Splice(tree.start(call), tree.end(call), f"{receiver}.range({starts})".encode())
    draft = draft.splice(file, [first, numbers])
    end = tree.start(call) + len(first.new) + len(numbers.new)
    draft = draft.place(edit.node, Site(file, end)).at_place_of(edit.after, edit.gather)
    return insert_link(draft, anchor=edit.after, node=edit.gather, text=f"map({function})".encode())


def _tensorflow(draft: Draft, node: str) -> str:
    """Returns the file's name for TensorFlow."""
    for path in ("gather", "nest.map_structure"):
        found = tensorflow_text(*draft.place_of_names(node), path)
        if found is not None and found.endswith(f".{path}"):
            return found.removesuffix(f".{path}")
    raise CannotExpress("The file has no name for TensorFlow, which tf.gather is reached through.")


def _constructor(call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """Returns the class that `from_tensor_slices` is called on, and the arrays passed to it."""
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
    """Returns the statement that evaluates `call` first, so that the arrays can be evaluated in front of it."""
    statement = statement_of(tree, call)
    if statement is None or statement.value is None:
        raise CannotExpress("The arrays are given where no statement can stand in front.")
    if not evaluated_first(tree, call, statement):
        raise CannotExpress("The statement does more than make the dataset, before it reads the arrays.")
    block_index(statement)  # raises unless it has its line to itself
    around = next((one for one in tree.ancestors(call) if isinstance(one, cst.FunctionDef | cst.ClassDef)), None)
    if isinstance(around, cst.ClassDef):
        raise CannotExpress("The dataset is made in the body of a class, whose variables no function sees.")
    return statement


def _names() -> Iterator[str]:
    yield from ("arrays", "dataset_arrays", *(f"dataset_arrays_{number}" for number in range(2, 1000)))


def _function_names() -> Iterator[str]:
    yield from ("windows_at", *(f"windows_at_{number}" for number in range(2, 1000)))


def _taken(tree: SyntaxTree) -> set[str]:
    return {name.value for name in tree.nodes(cst.Name)}


def _first_array(variable: str, spec: str, tf: str) -> str:
    found = _FIRST_COMPONENT.match(spec)
    if found is None:
        return f"{tf}.nest.flatten({variable})[0]"
    return variable + ("" if found["single"] else "[0]" if found["tuple"] else f"[{found['key']}]")


def _lambda(variable: str, tf: str, *, single: bool) -> str:
    if single:
        return f"lambda index: {tf}.gather({variable}, index)"
    return f"lambda index: {_each(variable, f'{tf}.gather(array, index)', tf)}"


def _definition(
    name: str, variable: str, tf: str, windows: WrittenWindows, *, single: bool, length_known: bool
) -> list[str]:
    """Returns the lines of a function that gathers the windows which start at a batch of row indices."""
    array = variable if single else "array"
    taken = f"{tf}.gather({array}, rows)"
    rows = f"    rows = starts[:, {tf}.newaxis] + {tf}.range({windows.offsets}, dtype={tf}.int64)"
    if length_known:
        body = [f"    return {taken if single else _each(variable, taken, tf)}"]
    elif single:
        body = [f"    taken = {taken}", _AS_BEFORE, f"    return {_of_any_length('taken', array, tf)}"]
    else:
        body = [_AS_BEFORE, f"    return {_each(variable, _of_any_length(taken, array, tf), tf)}"]
    return ["", f"def {name}(starts):", rows, *body, ""]


_AS_BEFORE = "    # As before, the static shape of a window does not say its length."


def _of_any_length(taken: str, array: str, tf: str) -> str:
    return f"{tf}.compat.v1.placeholder_with_default({taken}, [*starts.shape, None, *{array}.shape[1:]])"


def _each(variable: str, taken: str, tf: str) -> str:
    return f"{tf}.nest.map_structure(lambda array: {taken}, {variable})"
