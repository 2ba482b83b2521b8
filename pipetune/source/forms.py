"""Writing the function of a map in another form; `tf/pipelines/forms.py` does the same at run time."""

from __future__ import annotations

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.draft import Draft, Splice
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
    argument = next(
        (one for one in call.args if one.keyword is not None and one.keyword.value == "map_func"),
        call.args[0] if call.args and call.args[0].keyword is None and not call.args[0].star else None,
    )
    if argument is None or not isinstance(argument.value, cst.Name | cst.Attribute):
        raise CannotExpress("The function of the map has no name, which tf.vectorized_map could call it by.")
    vectorized = tensorflow_text(*draft.place_of_names(node), "vectorized_map")
    if vectorized is None:
        raise CannotExpress("The file has no name for TensorFlow, which tf.vectorized_map is reached through.")
    name = tree.text(argument.value)
    text = f"lambda batch: {vectorized}({name}, batch)"
    if several:
        text = f"lambda *batch: {vectorized}(lambda row: {name}(*row), batch)"
    start, end = tree.start(argument.value), tree.end(argument.value)
    return draft.splice(draft.sites[node].file, [Splice(start, end, text.encode())])
