"""The words for properties of a function and the results of probing it, as parsed by `words`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pipetune.core.functions import (
    Cropping,
    Cut,
    CutKind,
    FunctionFacts,
    FunctionForm,
    Fused,
    Gathering,
    OnBatches,
    OnInput,
    Shrinking,
    Windows,
)
from pipetune.core.padding import Padding
from pipetune.core.pipeline import AUTOTUNE, Value

STEADY = FunctionFacts(name="f", digest="")
FLAGS: Mapping[str, FunctionFacts] = {
    "stateless": STEADY,
    "random": replace(STEADY, random=True),
    "seeded": replace(STEADY, random=True, seeded=True),
    "python": replace(STEADY, python=True),
    "python_random": replace(STEADY, random=True, random_python=True),
    "variable": replace(STEADY, reads_variables=("w",)),
    "writes": replace(STEADY, reads_variables=("w",), writes_variables=True),
    "table": replace(STEADY, mutable_tables=True),
    "print": replace(STEADY, side_effects=("PrintV2",)),
    "file": replace(STEADY, side_effects=("WriteFile",)),
    "reads_file": replace(STEADY, reads_files=True),
    "raises": replace(STEADY, can_raise=True),
    "asserts": replace(STEADY, can_raise=True, operations=("Assert",)),
}
"""One word for each property of a function."""

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def padding(words: str) -> Padding:
    """`padding=0.4:9+17:0.1`, `padding=0.4:no`."""
    share, boundaries, *rest = words.split(":")
    if boundaries == "no":
        return Padding(float(share), 9, "it pads with values of its own")
    lengths = tuple(map(int, boundaries.split("+")))
    return Padding(float(share), 9, "", (0,), True, lengths, float(rest[0]))


def gathering(words: str) -> Gathering:
    """`gathers`, `gathers=windows`, `gathers=series`, `gathers=no`."""
    if words == "no":
        return Gathering(why_not="they are sparse or ragged")
    return Gathering("", "gather", Windows(3, 1, 1) if words == "windows" else None, singly=words == "series")


def shrinking(words: str) -> Shrinking:
    """`shrink=4` (at a quarter of the scale), `shrink=no`."""
    if words == "no":
        return Shrinking(why_not="it uses the size of the image")
    return Shrinking(ratio=int(words), seen="9 elements: all", most_apart=0.2, mean_apart=0.01)


def on_batches(words: str) -> OnBatches:
    """`rows=exact`, `rows=Exp+Log` (not bit-equal on batches), `rows=parts` (if it is split in two), `rows=no`."""
    if words == "no":
        return OnBatches(why_not="its op MatMul mixes rows")
    if words == "parts":
        parts = Cut(CutKind.BEHIND_PARSING, position=1, head="head", tail="tail", handed=1, components=1)
        return OnBatches(form=FunctionForm.VECTORIZED, digest="tail", cut=parts)
    return OnBatches(digest="on batches", inexact=() if words == "exact" else tuple(words.split("+")))


def cut(words: str) -> Cut:
    """`draws:2k`, `end:2k+Exp`, `end:no`."""
    where, _, rest = words.partition(":")
    kind = CutKind.BEFORE_DRAWS if where == "draws" else CutKind.BEFORE_EACH_NUMBER
    if rest == "no":
        return Cut(kind, why_not="what its first part gives has no fixed shape")
    held, _, inexact = rest.partition("+")
    return Cut(
        kind,
        position=3,
        element_bytes=size(held),
        head="head",
        tail="tail",
        inexact=tuple(filter(None, inexact.split("+"))),
        handed=1,
        components=1,
    )


def on_inputs(words: str) -> tuple[OnInput, ...]:
    """`early=2` (the same upstream of two maps), `early=no` (not upstream of one), `early=1+no`."""
    count = words.removesuffix("no").removesuffix("+")
    found = tuple(OnInput(digest=f"above {place + 1}") for place in range(int(count or 0)))
    return (*found, OnInput(why_not="its predicate reads what the map makes")) if words.endswith("no") else found


def with_flag(function: FunctionFacts | None, flag: FunctionFacts, name: str) -> FunctionFacts:
    """`function` with the properties of `flag` added; `name` replaces the name of the variable."""
    old = function if function is not None else STEADY
    variables = (name,) if name and flag.reads_variables else flag.reads_variables
    return replace(
        old,
        digest=f"{old.digest}-{flag}-{name}",
        random=old.random or flag.random,
        seeded=old.seeded or flag.seeded,
        random_python=old.random_python or flag.random_python,
        python=old.python or flag.python,
        reads_variables=tuple(dict.fromkeys((*old.reads_variables, *variables))),
        writes_variables=old.writes_variables or flag.writes_variables,
        mutable_tables=old.mutable_tables or flag.mutable_tables,
        side_effects=(*old.side_effects, *flag.side_effects),
        reads_files=old.reads_files or flag.reads_files,
        can_raise=old.can_raise or flag.can_raise,
        operations=tuple(sorted({*old.operations, *flag.operations})),
    )


def cropping(words: str) -> Cropping:
    """`crop=yes`, `crop=no`."""
    return Cropping(digest="cropped", seen="9 elements: all") if words == "yes" else Cropping("it uses it all")


def fused(words: str, *, why_not: str = "") -> Fused:
    """`fused=n1+n2`, `unfused=n1`."""
    return Fused(tuple(words.split("+")), why_not=why_not, digest="fused")


_APART = "called in one, their functions do something else"

ANSWERS: Mapping[str, Callable[[FunctionFacts, str], FunctionFacts]] = {
    "calls": lambda function, words: replace(function, operations=tuple(words.split("+"))),
    "crop": lambda function, words: replace(function, cropping=cropping(words)),
    "cuts": lambda function, words: replace(function, cuts=(cut(words),)),
    "early": lambda function, words: replace(function, on_inputs=on_inputs(words)),
    "fused": lambda function, words: replace(function, fused=fused(words)),
    "passes": lambda function, words: replace(function, hands_on=tuple(map(int, words.split("+")))),
    "rows": lambda function, words: replace(function, on_batches=on_batches(words)),
    "shrink": lambda function, words: replace(function, shrinking=shrinking(words)),
    "unfused": lambda function, words: replace(function, fused=fused(words, why_not=_APART)),
}
"""Setters for the results of probing a function, by the word before the equals sign."""


def value(text: str) -> Value:
    """Parses an integer, True, False, None, AUTOTUNE, or the text itself."""
    words: dict[str, Value] = {"None": None, "True": True, "False": False, "AUTOTUNE": AUTOTUNE}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def size(text: str) -> float:
    """Bytes: `600k`."""
    return _scaled(text, _SIZES)


def seconds(text: str) -> float:
    """Seconds: `2ms`."""
    return _scaled(text, _TIMES)


def _scaled(text: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    if found is None or found[2] not in units:
        raise ValueError(f"not a number with one of the units {sorted(units)}: {text!r}")
    return float(found[1]) * units[found[2]]
