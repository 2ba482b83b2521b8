"""Advice about code that pipetune does not edit, with the measurements behind it: functions of maps, the consumer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pipetune.core.functions import ArraySelection
from pipetune.core.measurement import Interval, percent
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import ConsumerProfile, Finding, Profile, finding_at

STEPS_TRIED = (8, 32)
"""Numbers of training steps per call that are tried, besides 1."""

_SMALL_STEP_SECONDS = 0.005  # by judgement; larger: more pipelines measured in vain; smaller: gains are missed
_SMALL_UNDER_A_STRATEGY = 0.02  # a strategy does additional work around each call, for every replica
_MODEL_SHARE = 0.5  # of a real step; below it the input is the problem to look at
_MIN_REPORTED_GAIN = 1.1  # rate ratio, by judgement: a smaller gain is not worth a change of the script
_MIN_SIGNIFICANT_GAIN = 1.02  # above 1, as more steps per call also mean fewer calls of the per-batch callbacks
_NOTABLE_SHARE = 0.1  # of the input's CPU time

_GENERATOR = "seed_generator"  # in the name of the variable that a random Keras layer draws from


@dataclass(frozen=True)
class CallGains:
    """Speedup of several steps per call on one cached batch, for the numbers of steps in `STEPS_TRIED`."""

    step_seconds: Mapping[int, float]  # by steps per call, 1 included
    gains: Mapping[int, Interval]  # rate with that many steps per call over the rate with one
    most_over_fewer: Interval  # rate with the most steps per call over the rate with the next fewer

    @property
    def advised(self) -> int | None:
        """The fewest steps per call that more do not significantly improve; None without a proven gain of 10 %."""
        *_, fewer, most = STEPS_TRIED
        if self.gains[fewer].low < _MIN_REPORTED_GAIN:
            return most if self.gains[most].low >= _MIN_REPORTED_GAIN else None
        return most if self.most_over_fewer.low > _MIN_SIGNIFICANT_GAIN else fewer


def steps_are_small(consumer: ConsumerProfile, *, under_a_strategy: bool = False) -> bool:
    """Whether a step is so short that the work around each call could be a large part of it."""
    bound, real = consumer.bound_seconds, consumer.real_seconds
    small = _SMALL_UNDER_A_STRATEGY if under_a_strategy else _SMALL_STEP_SECONDS
    return bool(bound and real and bound < small and bound >= _MODEL_SHARE * real)


_COMPILE = "Compile the model with steps_per_execution={0}; callbacks are then called once in {0} batches."
_SCHEDULE = (
    "Schedule one tf.function that runs {0} steps (for _ in tf.range({0})), not {0} calls: one value is then returned "
    "for all of them, and if a worker is lost, all of them run again."
)


def advise_steps_per_execution(measured: CallGains, *, strategy: str = "", file: str, line: int) -> Finding | None:
    """Returns advice to take several steps per call of `fit`, which is there; None without a proven gain of 10 %.

    `strategy` is the distribution strategy in use; "" if there is none.
    """
    around = f"Keras and {strategy} do" if strategy else "Keras does"
    return _advice(measured, "steps-per-execution", _COMPILE, "a step", around, file, line)


def advise_steps_per_schedule(
    measured: CallGains, *, workers: int, by_fit: bool = False, file: str, line: int
) -> Finding | None:
    """Returns advice to schedule functions of several steps; None without a proven gain of 10 %.

    Each worker runs its own steps; the call that schedules them is in `line`, by Keras if `by_fit`.
    """
    what = f"a step of each of {workers} workers" if workers > 1 else "a step"
    code, hint = ("steps-per-execution", _COMPILE) if by_fit else ("steps-per-schedule", _SCHEDULE)
    return _advice(measured, code, hint, what, "the coordinator does", file, line)


def _advice(measured: CallGains, code: str, hint: str, what: str, around: str, file: str, line: int) -> Finding | None:
    if measured.advised is None:
        return None
    figures = [
        f"{1e3 * measured.step_seconds[steps]:.3g} ms with {steps} steps per call ({gain.median:.2f}x, {gain.low:.2f} "
        f"to {gain.high:.2f}, {gain.pairs} pairs)"
        for steps, gain in measured.gains.items()
    ]
    message = (
        f"On one cached batch {what} takes {1e3 * measured.step_seconds[1]:.3g} ms, {' and '.join(figures)}. "
        f"The difference is the work that {around} around each call."
    )
    return Finding(code, message, hint.format(measured.advised), file, line)


def wait_between_epochs(
    pipeline: Pipeline, profile: Profile, *, epochs: int, steps: int | None = None, by_fit: bool, file: str, line: int
) -> Finding | None:
    """Returns advice to keep one iterator for all epochs.

    At the end of an epoch its iterator is destroyed, which waits until AUTOTUNE's thread ends. Each sleep of that
    thread is twice as long as the one before, up to 60 s, and the order to end often gets lost: the woken thread looks
    whether it is cancelled before that is set, and sleeps on (TensorFlow 2.21: `OptimizeLoop` in model.cc,
    `StartCancel` in cancellation.cc). Of 90 ends of epochs in seven examples, 39 waited; epochs of 49 s took 78 to 88.

    Args:
        pipeline: the training pipeline as written.
        profile: its profile, with the seconds of a training step.
        epochs: that the script trains at least.
        steps: per epoch, that the call of `fit` requests; None if an epoch is the whole data.
        by_fit: whether Keras makes the iterators; otherwise the script does.
        file: where the data is consumed.
        line: where the data is consumed.

    Returns:
        None where no other iterator follows, where AUTOTUNE is off, or where the wait is short.
    """
    has = pipeline.output.cardinality
    elements = has if has > 0 else pipeline.epoch_elements(profile.cardinality or {})
    if epochs < 2 or has == INFINITE or pipeline.options.get("autotune.enabled") is False:
        return None
    if elements and steps and steps * epochs <= elements:
        return None
    if elements and profile.consumer.real_seconds and not 0.2 <= elements * profile.consumer.real_seconds <= 1200:
        return None  # by judgement: too short to matter, or so long that a minute is little
    count = steps or ("len(dataset)" if has > 0 else elements or "...")
    one = f"fit(dataset.repeat(), steps_per_epoch={count})" if by_fit else f"iter(dataset.repeat()), {count} steps each"
    message = "After an epoch, training may wait for AUTOTUNE's thread: up to as long as the epoch took, at most 60 s."
    hint = f"One iterator for all epochs has no such wait: {one}."
    return Finding("wait-between-epochs", message, hint, file, line)


def layers_in_maps(pipeline: Pipeline, profile: Profile) -> Iterator[Finding]:
    """Yields findings on maps that call a random Keras layer and take `_NOTABLE_SHARE` or more of the CPU time."""
    for node, share in _costly_maps(pipeline, profile):
        if node.function is None or not node.function.writes_variables:
            continue
        drawing = next((name for name in node.function.reads_variables if _GENERATOR in name), "")
        if not drawing:
            continue
        yield finding_at(
            "keras-layer-in-map",
            node,
            f"The function of {node.title} calls a Keras layer that draws random numbers from its own variable "
            f"({drawing}) and takes {percent(min(share, 1))} of the input's CPU time. Each call changes that variable, "
            "so TensorFlow runs one call at a time, and no rewrite can parallelize, move or cache it.",
            "Move the layer into the model, where it processes whole batches on the training device; or use "
            "tf.image.stateless_random_* with seeds that are part of the elements.",
        )


def selections_in_maps(pipeline: Pipeline, profile: Profile, *, rewritten: Collection[str] = ()) -> Iterator[Finding]:
    """Yields findings on `tf.where` with one condition in maps that take `_NOTABLE_SHARE` or more of the CPU time.

    With `tf.cond` in its place, the input of the `mask_rcnn` example, which mirrors images by chance, ran 1.35 times as
    fast on two cores (1.31 to 1.37). For maps in `rewritten`, by id, `where-to-cond` is proposed: nothing is told of
    what it changes.
    """
    reported: set[ArraySelection] = set()
    for node, share in _costly_maps(pipeline, profile):
        for selection in node.function.selections if node.function is not None else ():
            if selection in reported or (node.id in rewritten and not selection.why_not):
                continue  # the function is called twice, or changed
            reported.add(selection)
            size = f" of {selection.elements:,} numbers" if selection.elements is not None else ""
            yield Finding(
                "array-selection",
                f"tf.where chooses between two arrays{size} by a single condition. TensorFlow computes both and "
                f"then applies the condition to each number. The function of {node.title}, which calls it, takes "
                f"{percent(min(share, 1))} of the input's CPU time.",
                "Use tf.cond(condition, lambda: ..., lambda: ...), which returns one of the two, and compute in "
                "each lambda what only this one needs, apart from random draws."
                + (f" pipetune does not make this change: {selection.why_not}." if selection.why_not else ""),
                selection.file,
                selection.line,
            )


def python_calls_in_maps(pipeline: Pipeline, profile: Profile) -> Iterator[Finding]:
    """Yields findings on `tf.py_function` in maps that take `_NOTABLE_SHARE` or more of the CPU time.

    Nothing is told where `numpy-function` can make the change, which the `arrays` of a function say.
    """
    for node, share in _costly_maps(pipeline, profile):
        if node.function is None or "EagerPyFunc" not in node.function.operations:
            continue
        arrays = node.function.arrays
        if arrays is not None and not arrays.why_not:
            continue
        yield finding_at(
            "py-function",
            node,
            f"The function of {node.title} calls tf.py_function and takes {percent(min(share, 1))} of the input's CPU "
            "time. Every value passed to the Python code and back becomes an eager tensor first.",
            "Use tf.numpy_function where the Python code needs no tensors: it receives NumPy arrays and bytes, "
            "without .numpy(), and returns arrays of the declared types (np.asarray(values, np.int32))."
            + (f" pipetune does not make this change: {arrays.why_not}." if arrays is not None else ""),
        )


def _costly_maps(pipeline: Pipeline, profile: Profile) -> Iterator[tuple[Node, float]]:
    """Yields the maps that take `_NOTABLE_SHARE` or more of the input's CPU time, with that share."""
    total = profile.input_cpu_seconds
    for node in pipeline:
        measured = profile.operator(node.id)
        if node.op != "map" or not total or measured is None or not measured.cpu_seconds or not measured.visits:
            continue
        share = measured.cpu_seconds * measured.visits / total
        if share >= _NOTABLE_SHARE:
            yield node, share
