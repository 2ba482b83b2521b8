"""Whether what a module gives still fits an `input_signature` that was made from the script's `element_spec`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class SpecChange:
    """A part of the elements that a module specifies otherwise than the script's pipeline."""

    part: str  # "['image']", "[0]"; "" where an element is one tensor
    script: str
    emitted: str
    accepted: bool  # a function with the script's spec in its input_signature takes it


def changes(script: Any, emitted: Any) -> tuple[SpecChange, ...]:
    """What differs between two `element_spec`s, part by part; () where nothing does.

    Args:
        script: that of the script's pipeline.
        emitted: that of what a module makes for one replica.
    """
    return tuple(_changes(script, emitted, ""))


def sentences(found: tuple[SpecChange, ...]) -> Iterator[str]:
    """What an `input_signature` has to say otherwise, or that it need not."""
    refused = [one for one in found if not one.accepted]
    narrower = [one for one in found if one.accepted]
    if refused:
        yield (
            f"element_spec changes: {_listed(refused)}. A tf.function whose input_signature names the script's spec "
            "refuses such elements: make it from the element_spec of what dataset_fn gives."
        )
    if narrower:
        yield (
            f"element_spec says more than the script's: {_listed(narrower)}. An input_signature with the script's spec "
            "takes such elements."
        )


def _changes(script: Any, emitted: Any, part: str) -> Iterator[SpecChange]:
    if isinstance(script, dict) and isinstance(emitted, dict) and script.keys() == emitted.keys():
        for key in script:
            yield from _changes(script[key], emitted[key], f"{part}[{key!r}]")
    elif isinstance(script, tuple) and isinstance(emitted, tuple) and len(script) == len(emitted):
        for number, (one, other) in enumerate(zip(script, emitted, strict=True)):
            yield from _changes(one, other, f"{part}[{number}]")
    elif script != emitted:
        typed = isinstance(script, tf.TypeSpec) and isinstance(emitted, tf.TypeSpec)
        yield SpecChange(part, _short(script), _short(emitted), typed and bool(emitted.is_subtype_of(script)))


def _short(spec: Any) -> str:
    if isinstance(spec, tf.TensorSpec):
        return f"{spec.shape} {spec.dtype.name}"
    return str(spec)


def _listed(found: list[SpecChange]) -> str:
    return ", ".join(f"{one.part} {one.script} becomes {one.emitted}".strip() for one in found)
