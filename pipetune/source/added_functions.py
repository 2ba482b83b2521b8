"""Adds the helper functions of a patch to a file, in front of the code that calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft, Splice
from pipetune.source.text import newline_of
from pipetune.source.tree import SyntaxTree


def add_functions(
    draft: Draft, file: str, texts: Mapping[str, str], splices: Sequence[Splice], *, before: cst.CSTNode
) -> Draft:
    """Returns the draft with `splices` applied to `file` and the functions inserted before the code that calls them.

    A function that an earlier change has already inserted is reused.

    Args:
        texts: source of the functions, by name, with line feeds as newlines.
        before: the code that calls them; they go in front of the module-level statement that contains it.

    Raises:
        CannotExpress: the file already uses one of the names for something else.
    """
    tree = draft.tree(file)
    at = _start(tree, outermost(tree, before))
    newline = newline_of(tree.code, at).decode()
    written = {name: text.replace("\n", newline) for name, text in texts.items()}
    taken = {one.value for one in tree.nodes(cst.Name)}
    missing = [name for name in sorted(written) if written[name].encode() not in tree.code]
    if taken.intersection(missing):
        raise CannotExpress(f"The file has a {min(taken.intersection(missing))} of its own.")
    added = "".join(written[name] + 2 * newline for name in missing)
    if missing:
        added = newline * _blank_lines_wanting(tree, at) + added
    return draft.splice(file, [*splices, Splice(at, at, added.encode())])


def outermost(tree: SyntaxTree, node: cst.CSTNode) -> cst.CSTNode:
    """Returns the module-level statement that contains `node`."""
    return next((one for one in (node, *tree.ancestors(node)) if tree.parent(one) is tree.module), node)


def _blank_lines_wanting(tree: SyntaxTree, at: int) -> int:
    """Number of blank lines to add above the line at `at`, for two above a function; 0 at the start of the file."""
    above = tree.code[:at].splitlines()[-2:]
    blank = 0 if above and above[-1].strip() else sum(not line.strip() for line in above)
    return 2 - blank if above else 0


def _start(tree: SyntaxTree, statement: cst.CSTNode) -> int:
    """Byte offset at which a statement begins, including its decorators and the comment lines directly above."""
    decorators = statement.decorators if isinstance(statement, cst.FunctionDef | cst.ClassDef) else ()
    line = tree.line(tree.start(decorators[0] if decorators else statement))
    while line > 1 and tree.code[tree.offset(line - 1, 0) :].startswith(b"#"):
        line -= 1
    return tree.offset(line, 0)
