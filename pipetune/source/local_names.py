"""Which local variables of a function are live between two of its statements, and must be passed to its second part."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from pipetune.core.errors import CannotExpress
from pipetune.core.functions import Cut
from pipetune.source.statements import names_bound, names_read


def handed_names(function: cst.FunctionDef, block: Sequence[cst.BaseStatement], cut: Cut) -> tuple[str, ...]:
    """Returns the variables that statements behind the cut read, and that statements before it or the caller bind.

    Args:
        block: the statements of the function's body.

    Raises:
        CannotExpress: they may not correspond one to one to the tensors that the plan passes between the parts.
    """
    assert cut.statement is not None
    name = function.name.value
    parameters = parameter_names(function)
    above, below = block[: cut.statement], block[cut.statement :]
    bound = list(dict.fromkeys(one for line in above for one in _assigned(line)))
    anywhere = set().union(*(names_bound(line) for line in above))
    alive = _read_first(below)
    unclear = next((one for one in alive if one in anywhere and one not in bound), None)
    if unclear is not None:
        raise CannotExpress(f"{unclear} of {name} is not bound by a plain assignment in front of the cut.")
    fixed = next((one for one in bound if one in alive and _is_fixed(one, above)), None)
    if fixed is not None:
        raise CannotExpress(f"{fixed} of {name} is a value of Python's, which an element cannot hand on.")
    given = [one for one in parameters if one in alive and one not in bound]
    if given and len(parameters) != cut.components:
        raise CannotExpress(f"The parameters of {name} are not the components of its element, one by one.")
    if tuple(parameters.index(one) for one in given) != cut.taken:
        raise CannotExpress(f"The second part of {name} reads other parameters than the plan hands on.")
    made = [one for one in bound if one in alive]
    if len(made) + len(given) != cut.handed:
        raise CannotExpress(
            f"Between the statements of {name} {len(made) + len(given)} variables are alive, where the plan hands on "
            f"{cut.handed} tensors."
        )
    order = [one for one in parameters if one in given or one in made]
    return (*order, *(one for one in made if one not in order))


def parameter_names(function: cst.FunctionDef) -> list[str]:
    """Returns the names of the function's parameters.

    Raises:
        CannotExpress: not all of them are plain parameters that a map passes by position.
    """
    found = function.params
    plain = not (found.kwonly_params or found.posonly_params or found.star_kwarg is not None)
    if not plain or isinstance(found.star_arg, cst.Param) or any(one.default is not None for one in found.params):
        raise CannotExpress(f"{function.name.value} has other parameters than plain ones.")
    return [one.name.value for one in found.params]


def _assigned(line: cst.BaseStatement) -> list[str]:
    """Returns the names that a simple statement certainly binds: `a = ...`, `a, b = ...`, `a += ...`."""
    if not isinstance(line, cst.SimpleStatementLine):
        return []
    targets: list[cst.BaseAssignTargetExpression] = []
    match line.body[0]:
        case cst.Assign(targets=several):
            targets = [one.target for one in several]
        case cst.AnnAssign(target=target, value=value) if value is not None:
            targets = [target]
        case cst.AugAssign(target=target):
            targets = [target]
    names: list[str] = []
    for target in targets:
        match target:
            case cst.Name(value=name):
                names.append(name)
            case cst.Tuple(elements=elements) | cst.List(elements=elements):
                names += [one.value.value for one in elements if isinstance(one.value, cst.Name)]
    return names


def _is_fixed(name: str, lines: Sequence[cst.BaseStatement]) -> bool:
    """Whether the last assignment of a name gives it a lambda, or an expression without names such as `[3, 4]`."""
    binding = [line for line in lines if name in _assigned(line)][-1]
    assert isinstance(binding, cst.SimpleStatementLine)
    match binding.body[0]:
        case cst.Assign(value=value) | cst.AnnAssign(value=value) if value is not None:
            return isinstance(value, cst.Lambda) or not names_read(value)
    return False


def _read_first(lines: Sequence[cst.BaseStatement]) -> list[str]:
    """Returns the names that the statements may read before they bind them."""
    bound: set[str] = set()
    found: list[str] = []
    for line in lines:
        found += [name for name in _reads(line) if name not in bound]
        bound |= set(_assigned(line))
    return list(dict.fromkeys(found))


def _reads(line: cst.BaseStatement) -> list[str]:
    if isinstance(line, cst.SimpleStatementLine):
        match line.body[0]:
            case cst.Assign(targets=targets, value=value):
                inside = [name for one in targets for name in names_read(one.target)]
                return [*(name for name in inside if name not in _assigned(line)), *names_read(value)]
            case cst.AnnAssign(value=value) if value is not None:
                return names_read(value)
    return names_read(line)
