"""Which of its graph passes TensorFlow runs on a pipeline, by the options that are set."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pipetune.core.pipeline import Value

OPTION = "experimental_optimization."
"""Prefix of the option of a pass, as in `tf.data.Options`."""

DEFAULT_PASSES = frozenset(
    {"map_and_batch_fusion", "map_parallelization", "noop_elimination", "parallel_batch", "shuffle_and_repeat_fusion"}
    | {"inject_prefetch"}
)
"""Passes that are on by default (`DefaultOptimizationGraphRewrites` in dataset_utils.cc)."""


def runs_pass(options: Mapping[str, Value], name: str) -> bool:
    """Whether TensorFlow runs a pass under these options, by dotted name."""
    if name == "make_sloppy" and options.get("deterministic") is False:
        return True
    own = options.get(OPTION + name)
    if own is not None:
        return own is True
    return name in DEFAULT_PASSES and options.get(OPTION + "apply_default_optimizations") is not False


def passes_in_force(options: Mapping[str, Value], known: Collection[str]) -> tuple[str, ...]:
    """Returns the passes of `known` that TensorFlow runs under these options, in the order of `known`."""
    return tuple(name for name in known if runs_pass(options, name))
