"""Converts dataclasses to JSON and back, driven by the type hints of their fields.

Values without a JSON equivalent are encoded as follows: an enum by its value if that is text, else by its name;
tuples and frozensets as lists; NaN and infinity as null; a member of a union of dataclasses as an object with its
class name under "type". Unknown keys are ignored and keys with a default may be missing, so adding a field does not
invalidate existing files.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar, Union

from pipetune.core.errors import MalformedData

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
_TAG = "type"
T = TypeVar("T")


def encode(value: object, hint: Any = None, *, sparse: bool = False) -> Json:
    """Returns `value` as JSON data.

    Args:
        value: a dataclass, enum, mapping, sequence, set, number, text, bool or None.
        hint: the declared type of `value`; needed only if that is a union of dataclasses.
        sparse: omit fields that have their default value; `decode` restores them.

    Raises:
        TypeError: the value contains something that has no JSON representation.
    """
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value, str) else value.name
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        tag = {_TAG: type(value).__name__} if len(_dataclasses(_options(hint))) > 1 else {}
        hints = _hints(type(value))
        return tag | {
            field.name: encode(getattr(value, field.name), hints[field.name], sparse=sparse)
            for field in dataclasses.fields(value)
            if not (sparse and _has_default(field, getattr(value, field.name)))
        }
    if isinstance(value, Mapping):
        item_hint = _argument(hint, (dict, Mapping), 1)
        return {str(key): encode(item, item_hint, sparse=sparse) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted((encode(item, sparse=sparse) for item in value), key=repr)
    if isinstance(value, tuple | list):
        item_hint = _argument(hint, (tuple, list), 0)
        return [encode(item, item_hint, sparse=sparse) for item in value]
    raise TypeError(f"JSON cannot say a {type(value).__name__}: {value!r}")


def _has_default(field: dataclasses.Field[Any], value: object) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return field.default is not dataclasses.MISSING and bool(value == field.default)


def decode(kind: type[T], data: object) -> T:
    """Returns `data`, as produced by `json.loads`, as an instance of the dataclass `kind`.

    Raises:
        MalformedData: the data does not match the type; the message says where.
    """
    return typing.cast(T, _decode(kind, data, ""))


def decode_union(union: Any, data: object) -> Any:
    """Returns `data` as an instance of the member of `union` that its "type" names.

    Raises:
        MalformedData: the data does not match the type; the message says where.
    """
    return _decode(union, data, "")


def _decode(hint: Any, data: object, where: str) -> object:
    options = _options(hint)
    if len(options) > 1:
        return _decode_union(options, data, where)
    if hint is Any or hint is object:
        return data
    if isinstance(hint, str | typing.ForwardRef):  # the recursive part of `pipeline.Value`
        return _plain(data)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        known = {(item.value if isinstance(item, str) else item.name): item for item in hint}
        if not isinstance(data, str) or data not in known:
            raise MalformedData(where, f"{data!r} is none of {', '.join(known)}")
        return known[data]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode_dataclass(hint, data, where)
    origin = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if origin in (tuple, list, frozenset, set):
        return _decode_sequence(origin, arguments, data, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, dict):
            raise MalformedData(where, "should be an object")
        item = arguments[1] if arguments else Any
        return {key: _decode(item, value, f"{where}.{key}") for key, value in data.items()}
    if hint not in (bool, int, float, str):
        raise TypeError(f"{where}: no JSON form for the type {hint!r}")
    if hint is float and data is None:
        return math.nan
    if hint is float and type(data) is int:
        return float(data)
    if type(data) is not hint:
        raise MalformedData(where, f"should be {hint.__name__}, is {data!r}")
    return data


def _decode_dataclass(kind: type, data: object, where: str) -> object:
    if not isinstance(data, dict):
        raise MalformedData(where, f"should be an object ({kind.__name__})")
    hints = _hints(kind)
    values = {}
    for field in dataclasses.fields(kind):
        inside = f"{where}.{field.name}" if where else field.name
        if field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name], inside)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise MalformedData(inside, "is missing")
    return kind(**values)


def _decode_sequence(origin: type, arguments: tuple[Any, ...], data: object, where: str) -> object:
    if not isinstance(data, list):
        raise MalformedData(where, "should be a list")
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(data) != len(arguments):
            raise MalformedData(where, f"should have {len(arguments)} items, has {len(data)}")
        hints = arguments
    else:
        hints = (arguments[0] if arguments else Any,) * len(data)
    return origin(
        _decode(hint, item, f"{where}[{index}]") for index, (hint, item) in enumerate(zip(hints, data, strict=True))
    )


def _decode_union(options: tuple[Any, ...], data: object, where: str) -> object:
    if data is None and type(None) in options:
        return None
    if isinstance(data, dict):
        classes = _dataclasses(options)
        if len(classes) > 1:
            for kind in classes:
                if kind.__name__ == data.get(_TAG):
                    return _decode_dataclass(kind, data, where)
            known = ", ".join(kind.__name__ for kind in classes)
            raise MalformedData(where, f"type {data.get(_TAG)!r} is none of {known}")
        if classes:
            return _decode_dataclass(classes[0], data, where)
    if type(data) in options:
        return data
    for option in options:
        origin = typing.get_origin(option) or option
        if (
            (isinstance(data, list) and origin in (tuple, list, frozenset, set))
            or (isinstance(data, dict) and isinstance(origin, type) and issubclass(origin, Mapping))
            or (isinstance(data, str) and isinstance(origin, type) and issubclass(origin, enum.Enum))
            or (type(data) is int and origin is float)
        ):
            return _decode(option, data, where)
    raise MalformedData(where, f"{data!r} has none of the allowed types")


def _plain(data: object) -> object:
    """Returns an operator's argument with all nested lists converted to tuples."""
    return tuple(_plain(item) for item in data) if isinstance(data, list) else data


def _options(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _dataclasses(options: tuple[Any, ...]) -> list[type]:
    return [option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)]


def _argument(hint: Any, origins: tuple[type, ...], index: int) -> Any:
    """Returns the item type that the container in `hint` declares, or None if there is no container."""
    for option in _options(hint):
        origin = typing.get_origin(option)
        if isinstance(origin, type) and issubclass(origin, origins):
            return typing.get_args(option)[index]
    return None


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
