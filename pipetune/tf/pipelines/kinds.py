"""Checks that an argument is a dataset; otherwise the error says how to make a dataset of what was given."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

_IN_MEMORY = (list, tuple, dict, np.ndarray, tf.Tensor, tf.RaggedTensor, tf.SparseTensor)


def require_dataset(value: Any, *, caller: str) -> None:
    """Checks that `value` is a dataset.

    Args:
        caller: the public function that was called, for the message: "pipetune.tune".

    Raises:
        TypeError: it is not a dataset; the message says what was given and how to make a dataset of it.
    """
    if not isinstance(value, tf.data.Dataset):
        raise TypeError(f"{caller} takes a tf.data.Dataset, not {_described(value)}.{_advice(value)}")


def _described(value: Any) -> str:
    if inspect.isgeneratorfunction(value):
        return "a generator function"
    if inspect.isroutine(value):
        return "a function"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _advice(value: Any) -> str:
    if isinstance(value, str | bytes | os.PathLike):
        return " A dataset reads files: tf.data.TFRecordDataset(path), tf.data.Dataset.list_files(pattern)."
    if inspect.isgeneratorfunction(value) or inspect.isgenerator(value):
        return " tf.data.Dataset.from_generator(function, output_signature=...) makes one of a generator function."
    if inspect.isroutine(value):
        return " If it makes a dataset, call it."
    if isinstance(value, tf.data.Iterator):
        return " Give the dataset itself, without iter()."
    if isinstance(value, tf.distribute.DistributedDataset):
        return " Give the dataset that was handed to the strategy."
    if isinstance(value, tf.keras.utils.PyDataset):
        return " Keras runs it in Python, where nothing can be rewritten: read the same data by tf.data."
    if isinstance(value, _IN_MEMORY) or hasattr(value, "to_numpy"):
        return " tf.data.Dataset.from_tensor_slices(...) makes one of data in memory."
    if isinstance(value, Iterator) or hasattr(value, "__iter__"):
        return " tf.data.Dataset.from_generator(lambda: ..., output_signature=...) makes one of what can be iterated."
    return ""
