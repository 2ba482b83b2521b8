"""A generator that goes through lists as a map over their entries; `tf/pipelines/generators.py` at run time."""

from __future__ import annotations

import textwrap

import libcst as cst

from pipetune.core.edits import ReplaceGenerator
from pipetune.core.errors import CannotExpress
from pipetune.core.generators import ListedGenerator, NotListed, read_generator
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.literals import tensorflow_text
from pipetune.source.text import line_start, newline_of
from pipetune.source.tree import SyntaxTree

_DECLARED = frozenset({"output_signature", "output_types", "output_shapes"})
"""Arguments of `from_generator` that say what the elements are: of a map TensorFlow knows it."""


def load_entries(draft: Draft, edit: ReplaceGenerator) -> Draft:
    """The draft in which the generator's function takes one entry, and is called by a map over the lists.

    Raises:
        CannotExpress: the function is used elsewhere too, or the call is written in a way that is not known.
    """
    tree, call = draft.find(edit.node)
    file = draft.sites[edit.node].file
    owner, name = _given(tree, call)
    definition = _definition(tree, call, name)
    start, end = tree.start(definition), _end(tree, definition)
    above = line_start(tree.code, start)
    indentation = tree.code[above:start].decode()
    if indentation.strip():
        raise CannotExpress(f"The function {name} shares its line with other code.")
    try:
        listed = read_generator(tree.code[above:end].decode())
    except NotListed as reason:
        raise CannotExpress(f"The function {name} is no loop through lists: {reason}.") from reason
    lines = textwrap.indent(listed.function, indentation).splitlines()
    function = Splice(above, end, newline_of(tree.code, above).decode().join(lines).encode())
    entries = _entries(draft, edit, listed)
    text = f"{owner}.from_tensor_slices({entries}).map({name})".encode()
    mapped = Splice(tree.start(call), tree.end(call), text)
    draft = draft.splice(file, [function, mapped])
    grown = len(function.new) - (end - above) if start < tree.start(call) else 0
    site = Site(file, tree.start(call) + grown + len(text))
    return draft.place(edit.node, site)


def _given(tree: SyntaxTree, call: cst.Call) -> tuple[str, str]:
    """What `from_generator` is called on, and the name of the function given to it."""
    match call:
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="from_generator")), args=[first, *others]):
            named = {argument.keyword.value for argument in others if argument.keyword is not None}
            plain = not any(argument.star for argument in call.args)
            by_position = [argument for argument in others if argument.keyword is None]
            own = first.keyword is None or first.keyword.value == "generator"
            if plain and own and named <= _DECLARED and len(by_position) <= 2 and isinstance(first.value, cst.Name):
                return tree.text(owner), first.value.value
    raise CannotExpress("from_generator is not called with the name of a function and what it yields.")


def _definition(tree: SyntaxTree, call: cst.Call, name: str) -> cst.FunctionDef:
    """The one definition of the function, where nothing but the call uses it."""
    found = [one for one in tree.nodes(cst.FunctionDef) if one.name.value == name]
    heads = [one.name for one in found]
    uses = [one for one in tree.nodes(cst.Name) if one.value == name and one not in heads]
    if len(found) != 1 or len(uses) != 1 or call not in tree.ancestors(uses[0]):
        raise CannotExpress(f"The function {name} is used elsewhere too, or defined more than once.")
    if found[0].decorators:
        raise CannotExpress(f"The function {name} is decorated.")
    return found[0]


def _end(tree: SyntaxTree, definition: cst.FunctionDef) -> int:
    """Where the last statement of a function ends: comments behind it stay."""
    last: cst.CSTNode = definition
    while isinstance(last, cst.FunctionDef | cst.For | cst.IndentedBlock | cst.SimpleStatementSuite):
        body = last.body
        last = body if isinstance(body, cst.BaseSuite) else body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return tree.end(last)


def _entries(draft: Draft, edit: ReplaceGenerator, listed: ListedGenerator) -> str:
    """The lists as they are given to `from_tensor_slices`."""
    constant = tensorflow_text(*draft.place_of_names(edit.node), "constant")
    parts = []
    for name, dtype in zip(listed.lists, edit.dtypes or ("",) * len(listed.lists), strict=True):
        if dtype and (constant is None or not constant.endswith(".constant")):
            raise CannotExpress("The file has no name for TensorFlow, which the type of the entries is given through.")
        parts.append(f"{constant}({name}, {str(constant).removesuffix('.constant')}.{dtype})" if dtype else name)
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
