"""Replaces `timeseries_dataset_from_array` by a function that gathers the windows of a batch at once.

The call keeps its arguments and calls a function that is added to the file once. That function takes the same
arguments, except `format`, and makes the same batches in the same order. See also `tf/pipelines/series.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import libcst as cst

from pipetune.core.edits import ReplaceSource
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.source.added_functions import add_functions, outermost
from pipetune.source.draft import Draft, Site, Splice
from pipetune.source.literals import module_text
from pipetune.source.locate import called_name

UTILITY = "timeseries_dataset_from_array"
_NAME = "timeseries_batches"
_ARGUMENTS = ("data", "targets", "sequence_length", "sequence_stride", "sampling_rate", "batch_size", "shuffle", "seed",
              "start_index", "end_index")  # fmt: skip

_HEAD = '''\
def timeseries_batches(
    data,
    targets,
    sequence_length,
    sequence_stride=1,
    sampling_rate=1,
    batch_size=128,
    shuffle=False,
    seed=None,
    start_index=None,
    end_index=None,
):
    """keras.utils.timeseries_dataset_from_array, in which the windows of a batch are gathered at once."""
'''

_BODY = '''\
    series = data[start_index:end_index]
    windows = len(series) - (sequence_length - 1) * sampling_rate
    if targets is not None:
        windows = min(windows, len(targets))
    starts = np.arange(0, windows, sequence_stride, dtype="int32")
    if shuffle:
        seed = np.random.randint(1_000_000) if seed is None else seed
        np.random.RandomState(seed).shuffle(starts)
    arrays = (series, starts) if targets is None else (series, starts, targets[start_index:end_index])
    series, starts, *beside = tf.data.Dataset.from_tensors(arrays).get_single_element()

    def windows_at(index):
        first = tf.gather(starts, index)
        rows = first[:, tf.newaxis] + tf.range(0, sequence_length * sampling_rate, sampling_rate)
        taken = tf.gather(series, rows)
        # As before, the static shape of a window does not say its length.
        taken = tf.compat.v1.placeholder_with_default(taken, [*index.shape, None, *series.shape[1:]])
        return (taken, tf.gather(beside[0], first)) if beside else taken

    dataset = tf.data.Dataset.range(len(starts))
    if shuffle:
        dataset = dataset.shuffle(8 * batch_size, seed=seed)
    return dataset.batch(batch_size).map(windows_at)
'''


def made_by_utility(pipeline: Pipeline, node: str) -> bool:
    """Whether an operator is made inside a call of `timeseries_dataset_from_array`."""
    location = pipeline[node].location
    return location is not None and location.method == UTILITY


def gather_series(draft: Draft, edit: ReplaceSource, current: Pipeline) -> Draft:
    """Returns the draft in which the call of the utility is replaced by one that gathers batches of windows.

    Raises:
        CannotExpress: the utility does not batch the windows itself, or is called in a way that cannot be changed.
    """
    if current[edit.after].location != current[edit.node].location:
        raise CannotExpress(f"{UTILITY} puts out single windows here, and does not know how they are batched.")
    tree, call = draft.find(edit.after)
    site = draft.sites[edit.after]
    if called_name(call) != UTILITY:
        raise CannotExpress(f"{UTILITY} is called under another name.")
    positional = [argument for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument for argument in call.args if argument.keyword is not None}
    if len(positional) > len(_ARGUMENTS) or "format" in named or any(argument.star for argument in call.args):
        raise CannotExpress(f"{UTILITY} is given arguments that {_NAME} does not take.")
    top = outermost(tree, call)
    modules = {"np": module_text(tree, top, "numpy"), "tf": module_text(tree, top, "tensorflow")}
    imports = [f"    import {_MODULES[name]} as {name}\n" for name, known in modules.items() if known is None]
    body = _BODY
    for name, known in modules.items():
        body = body.replace(f"{name}.", f"{known or name}.")
    text = _HEAD + "".join(imports) + ("\n" if imports else "") + body
    start, end = tree.start(call.func), tree.end(call.func)
    splice = Splice(start, end, _NAME.encode())
    draft = add_functions(draft, site.file, {_NAME: text}, [splice], before=call)
    inside = {node.id for node in current if node.location == current[edit.node].location}
    end_of_call = draft.sites[edit.after].end
    draft = draft.at_place_of(edit.after, edit.gather).note(f"{_NAME} does not check its arguments as {UTILITY} does.")
    given = dict(zip(_ARGUMENTS, positional, strict=False)) | named
    if _shuffles(given) and "seed" not in given:
        draft = draft.note(f"Without a seed {UTILITY} draws another order in each run: no run confirms the patch then.")
    return replace(
        draft,
        sites={name: one for name, one in draft.sites.items() if name not in inside}
        | {edit.gather: Site(site.file, end_of_call)},
        problems={**draft.problems, **dict.fromkeys(inside, f"It is made inside {_NAME}, which the patch adds.")},
    )


def _shuffles(given: Mapping[str, cst.Arg]) -> bool:
    shuffle = given.get("shuffle")
    return shuffle is not None and not (isinstance(shuffle.value, cst.Name) and shuffle.value.value == "False")


_MODULES = {"np": "numpy", "tf": "tensorflow"}
