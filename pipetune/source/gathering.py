"""Replaces arrays and windows over them by indices, and gathers their rows after the batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import libcst as cst

from pipetune.core.edits import ReplaceSource
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import ElementSpec, Pipeline
from pipetune.source.call_arguments import METHODS, arguments_by_name, method_arguments, module_text, tensorflow_name
from pipetune.source.chain import insert_link, upstream_calls
from pipetune.source.dataset_flow import refuse_unsafe
from pipetune.source.draft import CallSite, Draft, Splice, called_name, replacing
from pipetune.source.map_functions import add_functions, outermost
from pipetune.source.source_files import line_start, newline_of
from pipetune.source.statements import Statement, block_index, is_evaluated_first, statement_of, unused_name
from pipetune.source.syntax_tree import SyntaxTree, consists_of


@dataclass(frozen=True)
class _WindowArguments:
    """Size, shift and stride of a `window` call, as source text."""

    size: str
    shift: str
    stride: str

    @property
    def offset_range_arguments(self) -> str:
        """Arguments of a `range` over the rows of a window, relative to its first row."""
        if self.stride == "1":
            return self.size
        known = self.size.isdigit() and self.stride.isdigit()
        end = int(self.size) * int(self.stride) if known else f"{_term(self.size)} * {_term(self.stride)}"
        return f"0, {end}, {self.stride}"

    def start_range_arguments(self, array: str) -> str:
        """Returns the arguments of a `range` over the rows of `array` at which windows start."""
        if self.size.isdigit() and self.stride.isdigit():
            reach = (int(self.size) - 1) * int(self.stride)
            stop = f"len({array}) - {reach}" if reach else f"len({array})"
        elif self.stride == "1":
            stop = f"len({array}) - {_term(self.size)} + 1"
        else:
            stop = f"len({array}) - ({self.size} - 1) * {_term(self.stride)}"
        return stop if self.shift == "1" else f"0, {stop}, {self.shift}"


def _read_window_arguments(draft: Draft, source: str, window: str) -> _WindowArguments:
    """Returns the arguments of the call of operator `window`, which can also be written at the call of `source`."""
    if source not in draft.original_calls or window not in draft.original_calls:
        raise CannotExpress(draft.problems.get(window, "The call of window is not in the source."))
    tree, call = draft.original_calls[window]
    other, arrays = draft.original_calls[source]
    if tree is not other:
        raise CannotExpress("The arrays and the call of window are in different files.")
    if arrays not in upstream_calls(tree, call):
        refuse_unsafe(draft, tree, call, anchor=arrays)
    given = arguments_by_name(method_arguments(tree, call), (*METHODS["window"], "name"))
    if given is None or "size" not in given:
        raise CannotExpress("The arguments of the window call cannot be copied: they are starred, or size is missing.")
    values = [(name, given[name].value) for name in ("size", "shift", "stride") if name in given]
    if not all(consists_of(value, PLAIN) for _, value in values):
        raise CannotExpress("The arguments of window are not plain numeric expressions.")
    texts = {"shift": "None", "stride": "1"} | {name: tree.text(value) for name, value in values}
    shift = texts["size" if texts["shift"] == "None" else "shift"]
    return _WindowArguments(texts["size"], shift, texts["stride"])


PLAIN = cst.Attribute | cst.BaseNumber | cst.BinaryOperation | cst.Name | cst.UnaryOperation
"""Expressions that may be written twice: they read names and numbers, and compute with them."""


def _term(text: str) -> str:
    """Returns the value, in parentheses if a sum or product needs them."""
    return text if text.isdigit() or text.replace(".", "").isidentifier() else f"({text})"


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
    """Like keras.utils.timeseries_dataset_from_array, but gathers the windows of a batch at once."""
'''

_BODY = """\
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
        # As before, the window length is not part of the static shape.
        taken = tf.compat.v1.placeholder_with_default(taken, [*index.shape, None, *series.shape[1:]])
        return (taken, tf.gather(beside[0], first)) if beside else taken

    dataset = tf.data.Dataset.range(len(starts))
    if shuffle:
        dataset = dataset.shuffle(8 * batch_size, seed=seed)
    return dataset.batch(batch_size).map(windows_at)
"""


def is_made_by_timeseries_utility(pipeline: Pipeline, node: str) -> bool:
    """Whether an operator is made inside a call of `timeseries_dataset_from_array`."""
    location = pipeline[node].location
    return location is not None and location.method == UTILITY


def gather_timeseries_windows(draft: Draft, edit: ReplaceSource, current: Pipeline) -> Draft:
    """Returns the draft in which the call of the utility is replaced by one that gathers batches of windows.

    Raises:
        CannotExpress: the utility does not batch the windows itself, or is called in a way that cannot be changed.
    """
    if current[edit.after].location != current[edit.node].location:
        raise CannotExpress(f"Here {UTILITY} emits single windows, so their batch size is not known in its call.")
    tree, call = draft.find(edit.after)
    file = draft.sites[edit.after].file
    if called_name(call) != UTILITY:
        raise CannotExpress(f"{UTILITY} is called under another name.")
    if arguments_by_name(call.args, _ARGUMENTS) is None:
        raise CannotExpress(f"{UTILITY} is called with arguments that {_NAME} does not accept.")
    top = outermost(tree, call)
    body, imports = _BODY, ""
    for name, module in (("np", "numpy"), ("tf", "tensorflow")):
        known = module_text(tree, top, module)
        body = body.replace(f"{name}.", f"{known or name}.")
        imports += f"    import {module} as {name}\n" if known is None else ""
    text = _HEAD + imports + ("\n" if imports else "") + body
    draft = add_functions(draft, file, {_NAME: text}, [replacing(tree, call.func, _NAME)], before=call)
    inside = {node.id for node in current if node.location == current[edit.node].location}
    sites = {name: one for name, one in draft.sites.items() if name not in inside}
    sites[edit.gather] = draft.sites[edit.after]
    problems = dict.fromkeys(inside, f"It is made inside {_NAME}, which the patch adds.")
    draft = draft.with_position_of(edit.after, edit.gather)
    draft = draft.with_note(f"{_NAME} does not validate its arguments, unlike {UTILITY}.")
    return replace(draft, sites=sites, problems={**draft.problems, **problems})


def gather_rows(draft: Draft, edit: ReplaceSource, *, spec: ElementSpec, window: str = "") -> Draft:
    """Returns the draft in which a variable has the arrays as tensors, and batches of their rows are gathered by index.

    Args:
        spec: of a row.
        window: id of the operator that formed windows of the rows; empty if none did. Its call may be removed already.

    Raises:
        CannotExpress: no statement can be put in front of the arrays, or they are not visible at the batch.
    """
    tree, call = draft.find(edit.node)
    _, batch = draft.find(edit.after)
    file = draft.sites[edit.node].file
    if draft.sites[edit.after].file != file:
        raise CannotExpress("The arrays and the batch are in different files.")
    owner, arrays = _constructor(call)
    statement = _statement(tree, call)
    if call not in upstream_calls(tree, batch):
        refuse_unsafe(draft, tree, call, anchor=batch)
    tf = tensorflow_name(*draft.original_calls[edit.after], "tf.gather")
    variable = unused_name(tree, "arrays", "dataset_arrays")
    first_tensor = spec.first_tensor
    array = f"{tf}.nest.flatten({variable})[0]" if first_tensor is None else variable + first_tensor
    receiver = tree.text(owner)
    start = line_start(tree.code, tree.start(statement.small))
    indentation = tree.indentation(statement.small).decode()
    newline = newline_of(tree.code, start).decode()
    lines = [f"{variable} = {receiver}.from_tensors({tree.whole_text(arrays)}).get_single_element()"]
    single = array == variable
    rows = f"{tf}.gather({variable}, index)" if single else _map_arrays(variable, f"{tf}.gather(array, index)", tf)
    function = f"lambda index: {rows}"
    windows = _read_window_arguments(draft, edit.node, window) if window else None
    if windows is not None and edit.windows is not None:
        function = unused_name(tree, "windows_at")
        closed = edit.windows.length_known
        lines += _windows_definition(function, variable, tf, windows, single=single, length_known=closed)
    above = "".join((indentation + line if line else "") + newline for line in lines)
    first = Splice(start, start, above.encode())
    starts = windows.start_range_arguments(array) if windows is not None else f"len({array})"
    numbers = replacing(tree, call, f"{receiver}.range({starts})")
    draft = draft.splice(file, [first, numbers])
    end = tree.start(call) + len(first.new) + len(numbers.new)
    draft = draft.with_site(edit.node, CallSite(file, end)).with_position_of(edit.after, edit.gather)
    return insert_link(draft, anchor=draft.sites[edit.after], node=edit.gather, text=f"map({function})".encode())


def _constructor(call: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    """Returns the class that `from_tensor_slices` is called on, and the arrays passed to it."""
    match call:
        case cst.Call(
            func=cst.Attribute(value=receiver, attr=cst.Name(value="from_tensor_slices")),
            args=[cst.Arg(value=arrays, keyword=None | cst.Name(value="tensors"), star="")],
        ):
            return receiver, arrays
    raise CannotExpress("The arrays are not passed as from_tensor_slices(arrays).")


def _statement(tree: SyntaxTree, call: cst.Call) -> Statement:
    """Returns the statement that evaluates `call` first, so that the arrays can be evaluated in front of it."""
    statement = statement_of(tree, call)
    if statement is None or statement.value is None:
        raise CannotExpress("The arrays are passed where no statement can be inserted in front.")
    if not is_evaluated_first(tree, call, statement):
        raise CannotExpress("The statement does something else before it reads the arrays.")
    block_index(statement)  # raises unless it has its line to itself
    if isinstance(tree.around(call, cst.FunctionDef, cst.ClassDef), cst.ClassDef):
        raise CannotExpress("The dataset is built in the body of a class, whose variables functions cannot see.")
    return statement


def _windows_definition(
    name: str, variable: str, tf: str, windows: _WindowArguments, *, single: bool, length_known: bool
) -> list[str]:
    """Returns the lines of a function that gathers the windows which start at a batch of row indices."""
    array = variable if single else "array"
    taken = f"{tf}.gather({array}, rows)"
    rows = f"    rows = starts[:, {tf}.newaxis] + {tf}.range({windows.offset_range_arguments}, dtype={tf}.int64)"
    if length_known:
        body = [f"    return {taken if single else _map_arrays(variable, taken, tf)}"]
    elif single:
        body = [f"    taken = {taken}", _LENGTH_COMMENT, f"    return {_with_unknown_length('taken', array, tf)}"]
    else:
        body = [_LENGTH_COMMENT, f"    return {_map_arrays(variable, _with_unknown_length(taken, array, tf), tf)}"]
    return ["", f"def {name}(starts):", rows, *body, ""]


_LENGTH_COMMENT = "    # As before, the window length is not part of the static shape."


def _with_unknown_length(taken: str, array: str, tf: str) -> str:
    return f"{tf}.compat.v1.placeholder_with_default({taken}, [*starts.shape, None, *{array}.shape[1:]])"


def _map_arrays(variable: str, taken: str, tf: str) -> str:
    return f"{tf}.nest.map_structure(lambda array: {taken}, {variable})"
