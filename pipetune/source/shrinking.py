"""Writing the scale of `decode_jpeg` into the source; `tf/pipelines/shrinking.py` does it at run time."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.arguments import add_argument
from pipetune.source.cropping import decoding_functions, refuse_used_elsewhere
from pipetune.source.crops import DECODERS, full_names, given_by_name
from pipetune.source.draft import Draft
from pipetune.source.tree import SyntaxTree


def decode_smaller(draft: Draft, node: str, *, ratio: int) -> Draft:
    """The draft in which the function of the map `node` decodes 1/`ratio` of the rows and columns.

    Raises:
        CannotExpress: not one plain call decodes, or what holds it is used elsewhere too.
    """
    draft, file, root, functions = decoding_functions(draft, node)
    tree = draft.tree(file)
    holders: list[cst.CSTNode] = [*functions, *([] if isinstance(root, cst.FunctionDef) else [root])]
    calls = [
        (call, around)
        for call in tree.nodes(cst.Call)
        if full_names(tree, call) & DECODERS
        and (around := _holder(tree, call, holders)) is not None
    ]
    if len(calls) != 1:
        raise CannotExpress(f"{len(calls)} plain calls of decode_jpeg stand in the functions that the map names.")
    ((call, around),) = calls
    if isinstance(around, cst.FunctionDef):
        refuse_used_elsewhere(draft, file, around, root)
    if given_by_name(call, ("contents", "channels"), more=_OTHERS) is None:
        raise CannotExpress("The call of decode_jpeg gives its arguments in a way that none can be added to.")
    return draft.splice(file, add_argument(tree, call, f"ratio={ratio}"))


def _holder(tree: SyntaxTree, call: cst.Call, holders: list[cst.CSTNode]) -> cst.CSTNode | None:
    return next((one for one in (call, *tree.ancestors(call)) if any(one is holder for holder in holders)), None)


_OTHERS = frozenset({"fancy_upscaling", "try_recover_truncated", "acceptable_fraction", "dct_method", "name"})
