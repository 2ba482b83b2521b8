"""Has a script consume other datasets than it makes: where it iterates them, and where a strategy takes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from pipetune.core.handover import DATASET, FUNCTION
from pipetune.tf import private
from pipetune.tf.script.patches import Patches

Choose = Callable[[Any], Any]
"""The dataset to consume instead of the one given; that one itself where nothing takes its place."""


def serve(choose: Choose, patches: Patches) -> None:
    """From now on, until `patches` are put back, every dataset that is consumed is asked for its substitute.

    What a strategy distributes is never iterated itself: its substitute is handed over in its place. What the script's
    own function makes for a strategy is replaced inside that function.
    """
    patches.wrap(private.DatasetV2, "__iter__", functools.partial(_iterated, choose))
    patches.wrap(private.Strategy, DATASET, functools.partial(_distributed, choose))
    patches.wrap(private.Strategy, FUNCTION, functools.partial(_made, choose))


def _iterated(choose: Choose, original: Any, dataset: Any) -> Any:
    return original(_chosen(choose, dataset))


def _distributed(choose: Choose, original: Any, strategy: Any, dataset: Any, options: Any = None) -> Any:
    return original(strategy, _chosen(choose, dataset), options)


def _made(choose: Choose, original: Any, strategy: Any, dataset_fn: Any, options: Any = None) -> Any:
    def instead(context: Any) -> Any:
        return _chosen(choose, dataset_fn(context))

    return original(strategy, tf.autograph.experimental.do_not_convert(instead), options)


def _chosen(choose: Choose, dataset: Any) -> Any:
    readable = isinstance(dataset, private.DatasetV2) and not private.executing_in_function()
    return choose(dataset) if readable else dataset
