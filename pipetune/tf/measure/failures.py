"""Converts the exceptions of a pipeline that is being measured to `RunFailed`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from pipetune.core.measurement import RunFailed
from pipetune.tf.error_text import first_line

RAN_OUT = "The data ran out: read a second time, the dataset gives nothing."
"""Message for a dataset that is empty when iterated again: a generator function that returns an exhausted iterator."""


@contextlib.contextmanager
def told(what: str = "The pipeline") -> Iterator[None]:
    """Context for code that takes elements of an endless dataset.

    Raises:
        RunFailed: `what` raised (the cause is its own exception), or its data ran out.
    """
    try:
        yield
    except StopIteration:
        raise RunFailed(RAN_OUT) from None
    except (tf.errors.OpError, ValueError, TypeError) as error:
        raise RunFailed(f"{what} raised {type(error).__name__}: {first_line(error)}") from error
