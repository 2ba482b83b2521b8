"""What could be better in what consumes the data, where pipetune edits nothing: told with what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.measurement import Interval
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import ConsumerProfile, Finding, Profile

STEPS_IN_ONE_CALL = 16
"""Steps that are tried in one call of the training function."""

_SMALL_STEP_SECONDS = 0.005
_MODELS_SHARE = 0.5  # of a real step: below it the input is what to look at
_WORTH_TELLING = 1.1
_LAYER_SHARE = 0.1  # of the input's processor time

_GENERATOR = "seed_generator"  # in the name of the variable that a random Keras layer draws from


def steps_are_small(consumer: ConsumerProfile) -> bool:
    """Whether what Keras takes around each step could be a good part of it."""
    bound, real = consumer.bound_seconds, consumer.real_seconds
    return bool(bound and real and bound < _SMALL_STEP_SECONDS and bound >= _MODELS_SHARE * real)


def several_steps(
    gain: Interval, *, one_seconds: float, several_seconds: float, file: str, line: int
) -> Finding | None:
    """The advice to put several steps into one call; None where that is not shown to gain a tenth.

    Args:
        gain: the rate of the model on one cached batch with several steps in a call, over that with one.
        one_seconds, several_seconds: per step.
        file, line: of the call of `fit`.
    """
    if gain.low < _WORTH_TELLING:
        return None
    return Finding(
        code="steps-per-execution",
        message=(
            f"On one cached batch a step takes {1e3 * one_seconds:.3g} ms, and {1e3 * several_seconds:.3g} ms where "
            f"{STEPS_IN_ONE_CALL} of them are one call: {gain.median:.2f}x ({gain.low:.2f} to {gain.high:.2f}, "
            f"{gain.pairs} pairs). The rest is what Keras does around each call."
        ),
        hint=(
            f"Compile the model with steps_per_execution={STEPS_IN_ONE_CALL}; callbacks then hear of every "
            f"{STEPS_IN_ONE_CALL}th batch only."
        ),
        file=file,
        line=line,
    )


def layers_in_maps(pipeline: Pipeline, profile: Profile) -> Iterator[Finding]:
    """Maps that call a random Keras layer and take a good part of the input's processor time."""
    total = profile.input_cpu_seconds
    for node in pipeline:
        drawing = _keras_generator(node)
        measured = profile.operator(node.id)
        if not drawing or not total or measured is None or not measured.cpu_seconds or not measured.visits:
            continue
        share = measured.cpu_seconds * measured.visits / total
        if share < _LAYER_SHARE:
            continue
        yield Finding(
            code="keras-layer-in-map",
            message=(
                f"The function of {node.title} calls a Keras layer that draws from a variable of its own ({drawing}) "
                f"and takes {min(share, 1):.0%} of the input's processor time. Each call changes that variable: "
                "TensorFlow makes one call at a time, and it can be run in parallel, moved or cached by no rewrite."
            ),
            hint=(
                "Put the layer into the model, where it works on whole batches on the device that trains; or draw with "
                "tf.image.stateless_random_* from seeds that come with the elements."
            ),
            file=node.location.file if node.location else None,
            line=node.location.line if node.location else None,
        )


def _keras_generator(node: Node) -> str:
    """The name of the variable that a Keras layer in the function draws from; empty if there is none."""
    if node.op != "map" or node.function is None or not node.function.writes_variables:
        return ""
    return next((name for name in node.function.reads_variables if _GENERATOR in name), "")
