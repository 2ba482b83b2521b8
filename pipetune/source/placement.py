"""Refuses edits of operators made inside library functions, and at calls whose value is not exactly one dataset."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.tfds_reading import LIBRARY
from pipetune.source.chain import call_behind
from pipetune.source.locate import called_name
from pipetune.source.read_config import gives_one_dataset
from pipetune.source.signatures import METHODS, RETURNS_ONE_DATASET
from pipetune.source.tree import SyntaxTree


def refuse_inside_library(pipeline: Pipeline, node: str) -> None:
    """Refuses to change an operator that a function makes internally.

    Raises:
        CannotExpress: the operator was made inside a function that the user called.
    """
    operator = pipeline[node]
    location = operator.location
    if location is not None and not _is_users(operator):
        raise CannotExpress(f"{operator.title} is made inside {location.method} ({location}).")


def refuse_behind(tree: SyntaxTree, call: cst.Call, pipeline: Pipeline, node: str) -> None:
    """Refuses to append to a call whose value is not the dataset that operator `node` makes.

    Raises:
        CannotExpress: a downstream operator is made by the same call, or the call may return more than a dataset.
    """
    operator = pipeline[node]
    location = operator.location
    if location is None:
        return  # inserted by the plan: the call is the one that its edit wrote
    for consumer in pipeline.consumers(node):
        if consumer.location == location and not (_is_users(consumer) and _is_users(operator)):
            raise CannotExpress(f"{location.method} goes on behind {operator.title} ({location}).")
    behind = call_behind(tree, call)
    goes_on = behind is not None and called_name(behind) in METHODS
    by_tfds = location.library == LIBRARY
    one = gives_one_dataset(call) if by_tfds else location.method in RETURNS_ONE_DATASET
    if not one and not goes_on:
        raise CannotExpress(f"{location.method} may return more than the dataset ({location}).")
    if _makes_two(tree, call, method=location.method):
        raise CannotExpress(f"{location.method} returns several datasets ({location}).")


def _is_users(node: Node) -> bool:
    return node.location is None or node.location.method == node.op


def _makes_two(tree: SyntaxTree, call: cst.Call, *, method: str) -> bool:
    """Whether the call's value is unpacked or indexed, or `subset` is, or may be, "both"."""
    parent = tree.parent(call)
    if isinstance(parent, cst.Subscript) and parent.value is call:
        return True
    if isinstance(parent, cst.Assign) and any(
        isinstance(target.target, cst.Tuple | cst.List) for target in parent.targets
    ):
        return True
    if not method.endswith("_dataset_from_directory"):
        return False
    for argument in call.args:
        named = argument.keyword.value if argument.keyword is not None else None
        if argument.star == "**" or (named == "subset" and not _names_one(argument.value)):
            return True
    return False


def _names_one(subset: cst.BaseExpression) -> bool:
    return isinstance(subset, cst.SimpleString) and subset.evaluated_value in ("training", "validation")
