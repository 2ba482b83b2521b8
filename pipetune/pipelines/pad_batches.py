"""Recognises functions that do nothing but fill the components of an element with zeros up to a fixed size."""

from __future__ import annotations

from typing import Any

from pipetune.pipelines.lifting import output_terms
from pipetune.pipelines.terms import CannotProve, Term


def require_padding(traced: Any) -> None:
    """Raises unless every output of a traced function is its input of the same index, filled up by zeros at the ends.

    The size of each axis must be fixed in the input, or be filled up from whatever it is to the fixed size of the
    output: only then does a padded batch accept the same elements as the function.

    Args:
        traced: a concrete function.

    Raises:
        CannotProve: it does anything else; the message continues a sentence whose subject is the function.
    """
    for place, term in enumerate(output_terms(traced)):
        _require_filled_up(term, place)


def _require_filled_up(term: Term, place: int) -> None:
    if term.shape is None or None in term.shape:
        raise CannotProve("does not give every component a fixed shape")
    result = term.inputs[0] if term.op == "EnsureShape" else term  # a padded batch makes the same check
    pads = result.op in ("Pad", "PadV2")
    given = result.inputs[0] if pads else result
    if given.op != "Input" or given.attribute("place") != place or given.shape is None:
        raise CannotProve("does more than pad")
    if result.op == "PadV2" and _number(result.inputs[-1]) != 0:
        raise CannotProve("pads with another value than zero")
    amounts = _amounts(result) if pads else [(0, 0)] * len(given.shape)
    for axis, (size, (before, after)) in enumerate(zip(given.shape, amounts, strict=True)):
        if before != 0:
            raise CannotProve("pads in front of the values")
        if size is None and not _fills_up(after, given, axis, term.shape[axis]):
            raise CannotProve("does not fill up every component to its fixed size")


Amount = int | Term | None
"""How many values are added at one end of an axis; None: this cannot be told."""


def _amounts(term: Term) -> list[tuple[Amount, Amount]]:
    """Returns what a padding adds before and behind the values of each axis."""
    fixed = term.attribute("paddings")
    if fixed is not None:
        return [(before, after) for before, after in fixed]
    axes = _stacked(term.inputs[1])
    if len(axes) != term.rank:
        raise CannotProve("pads by numbers that it computes at once")
    return [_ends(axis) for axis in axes]


def _ends(axis: Term) -> tuple[Amount, Amount]:
    if axis.op == "Constant" and axis.value is not None:
        before, after = axis.value.tolist()
        return before, after
    ends = _stacked(axis)
    return (_number(ends[0]), ends[1]) if len(ends) == 2 else (None, None)


def _stacked(term: Term) -> tuple[Term, ...]:
    return term.inputs if term.op == "Pack" and term.attribute("axes") == (0,) else ()


def _number(term: Term) -> int | None:
    constant = term.op == "Constant" and term.value is not None and term.value.ndim == 0
    return term.value.item() if constant and term.value is not None else None


def _fills_up(amount: Amount, given: Term, axis: int, size: int | None) -> bool:
    """Whether an amount is `size` less the size of an axis, and so negative, which is an error, for longer elements."""
    if not isinstance(amount, Term) or amount.op != "Sub" or _number(amount.inputs[0]) != size:
        return False
    term = amount.inputs[1]
    if term.op == "Size":
        return given.rank == 1 and term.inputs[0] == given
    taken = term.inputs[0] if term.op == "Reshape" else term
    shape = taken.inputs[0] if taken.op == "Slice" else taken
    one = taken.op == "Slice" and taken.attribute("parts") == ((axis, 1, 1),)
    return term.shape == () and shape.op == "Shape" and shape.inputs[0] == given and (one or given.rank == 1)
