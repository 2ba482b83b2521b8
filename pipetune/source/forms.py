"""Writing the function of a map in another form; `tf/pipelines/forms.py` does the same at run time."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.chain import links_above
from pipetune.source.draft import Draft, Splice
from pipetune.source.flow import refuse_unsafe
from pipetune.source.literals import tensorflow_text


def vectorize(draft: Draft, node: str, *, several: bool) -> Draft:
    """The draft in which the function of the map `node` is called through `tf.vectorized_map`.

    Args:
        several: whether the elements are tuples, which a map gives to its function as several arguments.

    Raises:
        CannotExpress: the call gives its function in a way that cannot be wrapped, or the file has no name for
            TensorFlow.
    """
    tree, call = draft.find(node)
    argument = function_given(call)
    if argument is None or not isinstance(argument.value, cst.Name | cst.Attribute):
        raise CannotExpress("The function of the map has no name, which tf.vectorized_map could call it by.")
    vectorized = tensorflow_text(*draft.place_of_names(node), "vectorized_map")
    if vectorized is None:
        raise CannotExpress("The file has no name for TensorFlow, which tf.vectorized_map is reached through.")
    text = vectorized_text(tree.text(argument.value), vectorized, several=several)
    start, end = tree.start(argument.value), tree.end(argument.value)
    return draft.splice(draft.sites[node].file, [Splice(start, end, text.encode())])


def gets_several(pipeline: Pipeline, node: str) -> bool:
    """Whether the elements a map gets are tuples, which it gives to its function as several arguments."""
    return pipeline[pipeline[node].inputs[0]].spec.startswith("(")


def vectorized_text(function: str, vectorized: str = "tf.vectorized_map", *, several: bool) -> str:
    """The expression that calls `function` (a name, or an expression that can be called) on a batch."""
    if several:
        return f"lambda *batch: {vectorized}(lambda row: {function}(*row), batch)"
    return f"lambda batch: {vectorized}({function}, batch)"


def parse_batches(draft: Draft, node: str) -> Draft:
    """The draft in which the function of the map `node` parses batches: `parse_example`, not `parse_single_example`.

    Raises:
        CannotExpress: the function is not written in the call itself. One that has a name may be called elsewhere,
            and would parse batches there too.
    """
    tree, call = draft.find(node)
    argument = function_given(call)
    if argument is None or not isinstance(argument.value, cst.Lambda):
        raise CannotExpress("The function that parses is not written in the call of map: it may be used elsewhere too.")
    finder = _Named("parse_single_example")
    argument.visit(finder)
    if not finder.found:
        raise CannotExpress("The function of the map does not itself call parse_single_example.")
    splices = [Splice(tree.start(name), tree.end(name), b"parse_example") for name in finder.found]
    return draft.splice(draft.sites[node].file, splices)


def fuse(draft: Draft, node: str, first: tuple[str, ...], current: Pipeline) -> Draft:
    """The draft in which the map `node` calls the functions of the maps `first` before its own.

    Raises:
        CannotExpress: a function has no name, or means something else where the map `node` is called.
    """
    tree, call = draft.find(node)
    maps, names = (*first, node), []
    for name in maps:
        other_tree, other = draft.find(name)
        if draft.together(name) != (name,) or draft.sites[name].file != draft.sites[node].file:
            raise CannotExpress("The maps stand in different files, or one call makes several of them.")
        if other not in links_above(call):
            refuse_unsafe(draft, tree, other, anchor=call)
        argument = function_given(other)
        if argument is None or not isinstance(argument.value, cst.Name | cst.Attribute):
            raise CannotExpress("A function of the maps has no name, which another could call it by.")
        names.append(other_tree.text(argument.value))
    own = function_given(call)
    assert own is not None
    element = "element"
    while any(name.partition(".")[0] == element for name in names):
        element += "_"
    given = f"*{element}" if gets_several(current, maps[0]) else element
    text = f"{names[0]}({given})"
    for name, function in zip(maps[1:], names[1:], strict=True):
        text = f"{function}(*{text})" if gets_several(current, name) else f"{function}({text})"
    new = f"lambda {given}: {text}".encode()
    return draft.splice(draft.sites[node].file, [Splice(tree.start(own.value), tree.end(own.value), new)])


class _Named(cst.CSTVisitor):
    """Attributes of one name: `tf.io.parse_single_example`."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.found: list[cst.Name] = []

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node.attr.value == self._name:
            self.found.append(node.attr)


def function_given(call: cst.Call) -> cst.Arg | None:
    """The argument that gives a map its function."""
    named = (one for one in call.args if one.keyword is not None and one.keyword.value == "map_func")
    first = call.args[0] if call.args and call.args[0].keyword is None and not call.args[0].star else None
    return next(named, first)
