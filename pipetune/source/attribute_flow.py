"""How a dataset that is stored in an attribute (`self.dataset`) flows from one statement to another."""

from __future__ import annotations

import libcst as cst

from pipetune.source.carriers import known_ends
from pipetune.source.chain import links_above, root_of, top_of
from pipetune.source.draft import Draft
from pipetune.source.statements import Statement, block_index, is_dotted, name_nodes, statement_of
from pipetune.source.tree import SyntaxTree


def flows_in_attribute(draft: Draft, tree: SyntaxTree, upper: Statement, lower: Statement, *, first: cst.Call) -> bool:
    """Whether a call may move between two statements because one attribute holds the dataset all the way.

    Each statement from `upper` to `lower` calls methods on the attribute and assigns the result back to it, and nothing
    else reads it in between: no other statement, and no method of the same object called in an argument.

    Args:
        upper: the earlier statement.
        lower: the later statement.
        first: the call in the earlier statement; its chain may start with something other than the attribute.
    """
    target = upper.target
    if not isinstance(target, cst.Attribute) or not is_dotted(target) or upper.value is not top_of(tree, first):
        return False
    known = known_ends(draft, tree)
    for line in upper.block[block_index(upper) : block_index(lower) + 1]:
        step = statement_of(tree, line.body[0]) if isinstance(line, cst.SimpleStatementLine) else None
        if step is None or not step.alone or not isinstance(step.value, cst.Call) or step.target is None:
            return False
        begins = step.small is upper.small
        if tree.text(step.target) != tree.text(target) or not (begins or _goes_on(tree, step, known)):
            return False
        if _read_besides(tree, step):
            return False
    return True


def _goes_on(tree: SyntaxTree, step: Statement, known: set[int]) -> bool:
    assert step.target is not None and isinstance(step.value, cst.Call)
    links = links_above(tree, step.value)
    same = tree.text(root_of(tree, step.value)) == tree.text(step.target)
    return same and all(tree.end(link) in known for link in links)


def _read_besides(tree: SyntaxTree, step: Statement) -> bool:
    """Whether the statement may read the attribute anywhere but at the start of its method chain."""
    assert step.target is not None and step.value is not None
    attribute, base = tree.text(step.target), tree.text(step.target).partition(".")[0]
    for name in name_nodes(step.value):
        if name.value != base:
            continue
        parents = [parent for parent in tree.ancestors(name) if isinstance(parent, cst.Attribute)]
        if not parents or parents[0].value is not name:
            return True  # the object itself is passed on
        called = [tree.parent(parent) for parent in parents]
        if any(tree.text(parent) == attribute for parent in parents):
            if not _is_root(tree, name, step):
                return True
        elif any(isinstance(call, cst.Call) and call.func in parents for call in called):
            return True  # a method of the object, which may read the attribute
    return False


def _is_root(tree: SyntaxTree, name: cst.Name, step: Statement) -> bool:
    assert isinstance(step.value, cst.Call)
    return tree.start(root_of(tree, step.value)) == tree.start(name)
