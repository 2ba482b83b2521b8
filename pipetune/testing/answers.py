"""The words for properties of a function and the results of probing it, as parsed by `words`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from pipetune.core.functions import (
    BatchedCall,
    CropDecoding,
    FunctionFacts,
    FunctionSplit,
    FunctionVariant,
    MapFusion,
    Padding,
    PredicatePushdown,
    ProbeResult,
    RowGathering,
    RowWindows,
    ScaledDecoding,
    SplitPosition,
)
from pipetune.core.pipeline import AUTOTUNE, Value
from pipetune.core.profile import PaddingShares

STATELESS = FunctionFacts(name="f", digest="")
FLAGS: Mapping[str, FunctionFacts] = {
    "stateless": STATELESS,
    "random": replace(STATELESS, random=True),
    "seeded": replace(STATELESS, random=True, seeded=True),
    "python": replace(STATELESS, python=True),
    "python_random": replace(STATELESS, random=True, random_python=True),
    "variable": replace(STATELESS, reads_variables=("w",)),
    "writes": replace(STATELESS, reads_variables=("w",), writes_variables=True),
    "table": replace(STATELESS, mutable_tables=True),
    "print": replace(STATELESS, side_effects=("PrintV2",)),
    "file": replace(STATELESS, side_effects=("WriteFile",)),
    "reads_file": replace(STATELESS, reads_files=True),
    "raises": replace(STATELESS, can_raise=True),
    "asserts": replace(STATELESS, can_raise=True, operations=("Assert",)),
}
"""One word for each property of a function."""

_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def padding(words: str) -> PaddingShares:
    """Returns what `padding=0.4:9+17:0.1` or `padding=0.4:no` stands for."""
    share, boundaries, *rest = words.split(":")
    if boundaries == "no":
        return PaddingShares(float(share), 9, "it pads with values of its own")
    lengths = tuple(map(int, boundaries.split("+")))
    return PaddingShares(float(share), 9, "", (0,), True, lengths, float(rest[0]))


def gathering(words: str) -> RowGathering:
    """Returns what `gathers`, `gathers=windows`, `gathers=series` or `gathers=no` stands for."""
    if words == "no":
        return RowGathering(why_not="they are sparse or ragged")
    return RowGathering(
        digest="gather", windows=RowWindows(3, 1, 1) if words == "windows" else None, singly=words == "series"
    )


def shrinking(words: str) -> ScaledDecoding:
    """Returns what `shrink=4` (at a quarter of the scale) or `shrink=no` stands for."""
    if words == "no":
        return ScaledDecoding(why_not="it uses the size of the image")
    return ScaledDecoding(ratio=int(words), seen="9 elements: all", most_apart=0.2, mean_apart=0.01)


def on_batches(words: str) -> BatchedCall:
    """Returns what `rows=exact`, `rows=Exp+Log` (not bit-equal), `rows=parts` (if split) or `rows=no` stands for."""
    if words == "no":
        return BatchedCall(why_not="its op MatMul mixes rows")
    if words == "parts":
        parts = FunctionSplit(SplitPosition.AFTER_PARSING, position=1, head="head", tail="tail", handed=1, components=1)
        return BatchedCall(form=FunctionVariant.VECTORIZED, digest="tail", cut=parts)
    return BatchedCall(digest="on batches", inexact=() if words == "exact" else tuple(words.split("+")))


def before_draws(words: str) -> FunctionSplit:
    """Returns what `draws=2k` or `draws=no` stands for."""
    if words == "no":
        return FunctionSplit(SplitPosition.BEFORE_DRAWS, why_not="what its first part gives has no fixed shape")
    return FunctionSplit(
        SplitPosition.BEFORE_DRAWS,
        position=3,
        element_bytes=size(words),
        head="head",
        tail="tail",
        handed=1,
        components=1,
    )


def on_inputs(words: str) -> tuple[PredicatePushdown, ...]:
    """Returns what `early=2` (the same upstream of two maps), `early=no` (not of one) or `early=1+no` stands for."""
    count = words.removesuffix("no").removesuffix("+")
    found = tuple(PredicatePushdown(digest=f"above {place + 1}") for place in range(int(count or 0)))
    return (
        (*found, PredicatePushdown(why_not="its predicate reads what the map makes")) if words.endswith("no") else found
    )


def with_flag(function: FunctionFacts | None, flag: FunctionFacts, name: str) -> FunctionFacts:
    """Returns `function` with the properties of `flag` added; `name` replaces the name of the variable."""
    old = function if function is not None else STATELESS
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


def cropping(words: str) -> CropDecoding:
    """Returns what `crop=yes` or `crop=no` stands for."""
    return CropDecoding(digest="cropped", seen="9 elements: all") if words == "yes" else CropDecoding("it uses it all")


def branching(words: str) -> ProbeResult:
    """Returns what `branch=yes` or `branch=no` stands for."""
    return ProbeResult(digest="branched") if words == "yes" else ProbeResult("their shapes may differ")


def arrays(words: str) -> ProbeResult:
    """Returns what `arrays=yes` or `arrays=no` stands for."""
    return ProbeResult(digest="arrays") if words == "yes" else ProbeResult("its Python code needs x as a tensor")


def pads(words: str) -> Padding:
    """Returns what `pads=256` (elements become that long) or `pads=no` stands for."""
    return Padding("its function does more than pad") if words == "no" else Padding(shapes=f"[{words}]")


def fused(words: str, *, why_not: str = "") -> MapFusion:
    """Returns what `fused=n1+n2` or `unfused=n1` stands for."""
    return MapFusion(first=tuple(words.split("+")), why_not=why_not, digest="fused")


_NOT_FUSIBLE = "called in one, their functions do something else"

PROBE_SETTERS: Mapping[str, Callable[[FunctionFacts, str], FunctionFacts]] = {
    "arrays": lambda function, words: replace(function, arrays=arrays(words)),
    "branch": lambda function, words: replace(function, branching=branching(words)),
    "calls": lambda function, words: replace(function, operations=tuple(words.split("+"))),
    "crop": lambda function, words: replace(function, cropping=cropping(words)),
    "draws": lambda function, words: replace(function, before_draws=before_draws(words)),
    "early": lambda function, words: replace(function, on_inputs=on_inputs(words)),
    "fused": lambda function, words: replace(function, fused=fused(words)),
    "pads": lambda function, words: replace(function, padding=pads(words)),
    "passes": lambda function, words: replace(function, hands_on=tuple(map(int, words.split("+")))),
    "rows": lambda function, words: replace(function, on_batches=on_batches(words)),
    "shrink": lambda function, words: replace(function, shrinking=shrinking(words)),
    "unfused": lambda function, words: replace(function, fused=fused(words, why_not=_NOT_FUSIBLE)),
}
"""Setters for the results of probing a function, by the word before the equals sign."""


def value(text: str) -> Value:
    """Returns the integer, True, False, None or AUTOTUNE that the text names, else the text itself."""
    words: dict[str, Value] = {"None": None, "True": True, "False": False, "AUTOTUNE": AUTOTUNE}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def size(text: str) -> float:
    """Returns the number of bytes in a text such as "600k"."""
    return _scaled(text, _SIZES)


def seconds(text: str) -> float:
    """Returns the number of seconds in a text such as "2ms"."""
    return _scaled(text, _TIMES)


def _scaled(text: str, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"([\d.]+)([A-Za-z]*)", text)
    if found is None or found[2] not in units:
        raise ValueError(f"not a number with one of the units {sorted(units)}: {text!r}")
    return float(found[1]) * units[found[2]]
