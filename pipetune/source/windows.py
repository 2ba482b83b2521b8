"""The arguments of a `window` call as source text: names stay names when the windows are gathered by index."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.source.chain import links_above
from pipetune.source.draft import Draft
from pipetune.source.flow import refuse_unsafe
from pipetune.source.signatures import METHODS
from pipetune.source.tree import SyntaxTree
from pipetune.source.unbound import own_arguments


@dataclass(frozen=True)
class WrittenWindows:
    """Size, shift and stride of a `window` call, as source text."""

    size: str
    shift: str
    stride: str

    @property
    def offsets(self) -> str:
        """Arguments of a `range` over the rows of a window, relative to its first row."""
        return self.size if self.stride == "1" else f"0, {_times(self.size, self.stride)}, {self.stride}"

    def starts(self, array: str) -> str:
        """Returns the arguments of a `range` over the rows of `array` at which windows start."""
        if self.size.isdigit() and self.stride.isdigit():
            reach = (int(self.size) - 1) * int(self.stride)
            stop = f"len({array}) - {reach}" if reach else f"len({array})"
        elif self.stride == "1":
            stop = f"len({array}) - {_grouped(self.size)} + 1"
        else:
            stop = f"len({array}) - ({self.size} - 1) * {_grouped(self.stride)}"
        return stop if self.shift == "1" else f"0, {stop}, {self.shift}"


def written_windows(draft: Draft, source: str, window: str) -> WrittenWindows:
    """Returns the arguments of the call of operator `window`, which can also be written at the call of `source`.

    Raises:
        CannotExpress: an argument is more than a name, a number or arithmetic, or may mean something else there.
    """
    if source not in draft.captured or window not in draft.captured:
        raise CannotExpress(draft.problems.get(window, "The call of window is not in the source."))
    tree, call = draft.captured[window]
    other, arrays = draft.captured[source]
    if tree is not other:
        raise CannotExpress("The arrays and the call of window stand in different files.")
    if arrays not in links_above(tree, call):
        refuse_unsafe(draft, tree, call, anchor=arrays)
    own = own_arguments(tree, call)
    given = dict(zip(METHODS["window"], (arg for arg in own if arg.keyword is None), strict=False))
    given |= {arg.keyword.value: arg for arg in own if arg.keyword is not None}
    if any(arg.star for arg in own) or "size" not in given:
        raise CannotExpress("The call of window gives its arguments in a way that cannot be repeated.")
    size = _text(tree, given["size"])
    shift = _text(tree, given["shift"]) if "shift" in given else "None"
    stride = _text(tree, given["stride"]) if "stride" in given else "1"
    return WrittenWindows(size, size if shift == "None" else shift, stride)


def _text(tree: SyntaxTree, argument: cst.Arg) -> str:
    value = argument.value
    if not _only_values(value):
        raise CannotExpress("The arguments of window do more than give numbers.")
    return tree.text(value)


def _only_values(value: cst.BaseExpression) -> bool:
    match value:
        case cst.BinaryOperation(left=left, right=right):
            return _only_values(left) and _only_values(right)
        case cst.UnaryOperation(expression=inner) | cst.Attribute(value=inner):
            return _only_values(inner)
    return isinstance(value, cst.Name | cst.BaseNumber)


def _times(size: str, stride: str) -> str:
    if size.isdigit() and stride.isdigit():
        return str(int(size) * int(stride))
    return f"{_grouped(size)} * {_grouped(stride)}"


def _grouped(text: str) -> str:
    """Returns the value, in parentheses if a sum or product needs them."""
    return text if text.isdigit() or text.replace(".", "").isidentifier() else f"({text})"
