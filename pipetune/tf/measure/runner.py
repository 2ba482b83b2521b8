"""Measures plans on the live pipeline: the TensorFlow implementation of `search.runner.Runner`."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import tensorflow as tf

from pipetune.core.autotuned import AutotuneReading
from pipetune.core.comparison import Comparison
from pipetune.core.editing import apply_edits
from pipetune.core.edits import Plan, Remove
from pipetune.core.errors import CannotReplay, StepFailed
from pipetune.core.machine import Machine
from pipetune.core.measurement import RunFailed, StepRaised, Window
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.model.memory import expected_peak_bytes
from pipetune.tf.equality import compare
from pipetune.tf.equality.divided import divided_alike
from pipetune.tf.error_text import first_line
from pipetune.tf.measure import cgroup, cold, windows
from pipetune.tf.measure.autotuned import ParameterLog, watch
from pipetune.tf.measure.load import LoadMeter
from pipetune.tf.pipelines import file_caches, file_names, live, replay
from pipetune.tf.script import consumers, state, step_consumers
from pipetune.tf.script.handing_over import HandedOver

_COMPILED = (
    "New shapes were compiled inside the windows of training steps, and in those repeated after them too: the step "
    "times include it. A smaller last batch does that (drop_remainder), and elements padded to their longest."
)
_KEPT = 4  # datasets kept: a memory cache lives as long as its dataset object
_SHORTEST_SETTLE_SECONDS = 0.3
_FILL_LIMIT_SECONDS = 60.0


class TensorFlowRunner:
    """Replays plans and measures them alone and inside the user's own training step."""

    def __init__(
        self,
        source: live.LivePipeline,
        consumer: consumers.Consumer,
        *,
        machine: Machine,
        examples_per_element: float,
        seed: int = 0,
        compare_seconds: float = 20.0,
        cold_files: bool = False,
        handed: HandedOver | None = None,
    ) -> None:
        """Takes what it measures, and how.

        Args:
            source: the live original pipeline.
            consumer: trains on the dataset.
            machine: its available cores and its target device.
            examples_per_element: examples in one element of the pipeline's output.
            seed: for proofs of equality.
            compare_seconds: time limit of one proof of equality; as many elements as fit are compared.
            cold_files: drop the files from the page cache before every window, whatever the plan.
            handed: how a strategy takes the dataset: the input alone is then what the strategy makes of it, until it
                leaves the host.
        """
        self.source = source
        self.consumer = consumer
        self.profile: Profile | None = None  # set after profiling; predictions need it
        self._machine = machine
        self.examples_per_element = examples_per_element
        self._seed = seed
        self._compare_seconds = compare_seconds
        self.cold_files = cold_files
        self._handed = handed
        self.kept = _KEPT  # number of datasets that stay built
        self._built: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._bound: Any = None
        self._files = contextlib.ExitStack()
        self._files.enter_context(file_caches.apart())
        self._state = state.snapshot()
        self.load = LoadMeter(cgroup=cgroup.braking_group())
        self.readings: dict[str, AutotuneReading] = {}  # by plan key: of the window observed longest
        self.notes: list[str] = []  # remarks on the figures of training windows, for the report

    @property
    def trains(self) -> bool:
        return not isinstance(self.consumer, consumers.NoConsumer)

    @property
    def shares_processors(self) -> bool:
        return self._machine.device == "cpu" and not isinstance(self.consumer, step_consumers.EmulatedConsumer)

    @functools.cached_property
    def files(self) -> file_names.NamedFiles:
        """The files that the original pipeline names."""
        return file_names.named_files(self.source)

    def make_cold(self) -> None:
        """With `cold_files`, drops the files from the page cache, including files of caches that trials wrote."""
        if self.cold_files:
            written = file_names.files_within(file_caches.folder())
            cold.drop([*self.files.paths, *written])

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        try:
            dataset = self._dataset(plan)
            parts = 1 if self._handed is None else self._handed.parts
            log = ParameterLog(repeated=not windows.is_endless(dataset), divided=parts > 1)
            self.make_cold()
            with self.load.window():
                window = windows.input_window(
                    dataset if self._handed is None else self._handed.on_host(windows.endless(dataset)),
                    parts=parts,
                    seconds=seconds,
                    warmup_seconds=warmup_seconds,
                    settle_seconds=max(_SHORTEST_SETTLE_SECONDS, 2 * warmup_seconds),
                    examples_per_element=self.examples_per_element,
                    epoch_elements=self.epoch_steps,
                    on_poll=log.take,
                )
            self._remember(plan, log)
            return replace(window, others_seconds=self.load.last_others_seconds)
        finally:
            self._state.restore()

    def training_window(self, plan: Plan, *, steps: int) -> Window:
        return self._train(self.prepared(plan), steps, as_written=not plan.rewrites)

    def bound_window(self, *, steps: int) -> Window:
        """Measures training steps on one batch, cached and repeated: the model's own bound."""
        return self._train(self.prepared(None), steps, as_written=True)

    def prepared(self, plan: Plan | None) -> Any:
        """Returns the dataset of training windows: the pipeline under `plan`, or one cached batch if it is None.

        Raises:
            RunFailed: it cannot be built.
        """
        if plan is not None:
            return self._dataset(plan)
        if self._bound is None:
            self._bound = windows.on_host(self.source.dataset, lambda dataset: dataset.take(1).cache())
        return self._bound

    def compare(self, plan: Plan) -> Comparison:
        try:
            found = compare.compare(
                self.source,
                _without_copies(self.edited(plan), self.source.pipeline),
                plan.safety,
                seed=self._seed,
                time_limit_seconds=self._compare_seconds,
            )
            if self._handed is None or not found.equal:
                return found
            return replace(found, checks=(*found.checks, *divided_alike(self._handed, self._dataset(plan))))
        finally:
            self._state.restore()

    def predicted_bytes(self, plan: Plan) -> float:
        if self.profile is None:
            return 0.0
        cores = max(1.0, self._machine.cores_granted)
        return expected_peak_bytes(self.source.pipeline, self.edited(plan), self.profile, cores=cores)

    def edited(self, plan: Plan) -> Pipeline:
        """The pipeline with the plan's edits applied."""
        return apply_edits(self.source.pipeline, plan.edits)

    def restore(self) -> None:
        """Restores everything that training steps have changed."""
        self._state.restore()

    def forget(self) -> None:
        """Frees every dataset built, with its caches in memory and on disk; the runner cannot be used afterwards."""
        self._built.clear()
        self._bound = None
        windows.settle()
        self._files.close()

    @property
    def epoch_steps(self) -> int | None:
        """Elements of the output per epoch; None if unknown."""
        return self.source.pipeline.epoch_elements((self.profile.cardinality if self.profile else None) or {})

    def _train(self, dataset: Any, steps: int, *, as_written: bool) -> Window:
        self.make_cold()
        try:
            with self.load.window():
                window = self.consumer.window(dataset, steps=steps, warmup=2)
        except StepRaised as failure:
            if not as_written:
                raise  # a rewrite may feed the step what it cannot take
            raise StepFailed(f"{failure}. What it had changed was put back.") from failure.__cause__
        finally:
            self._state.restore()
        if window.compile_seconds and _COMPILED not in self.notes:
            self.notes.append(_COMPILED)
        examples = max(1, round(window.steps * self.examples_per_element))
        return replace(window, examples=examples, others_seconds=self.load.last_others_seconds)

    def watch_autotune(self, plan: Plan, *, seconds: float) -> AutotuneReading:
        """Returns what AUTOTUNE chose under `plan`: consumes one iterator until values are stable, at most `seconds`.

        Raises:
            RunFailed: the pipeline raised, or is empty.
        """
        try:
            log = watch(self._dataset(plan), seconds=seconds)
            self._remember(plan, log)
        finally:
            self._state.restore()
        return log.reading(self.edited(plan))

    def _remember(self, plan: Plan, log: ParameterLog) -> None:
        """Keeps the reading of the longest observation, which knows more about the same values."""
        before = self.readings.get(plan.key)
        if before is None or log.seconds >= before.seconds:
            self.readings[plan.key] = log.reading(self.edited(plan))

    def _dataset(self, plan: Plan) -> Any:
        if not plan.edits:
            return self.source.dataset
        key = tuple(repr(edit) for edit in plan.edits)
        if key not in self._built:
            edited = self.edited(plan)
            try:
                nodes = replay.replay_nodes(self.source, edited)
            except CannotReplay as error:
                raise RunFailed(error.message) from error
            except (tf.errors.OpError, ValueError, TypeError) as error:
                raise RunFailed(f"The plan cannot be built: {first_line(error)}") from error
            fill_caches(nodes[node] for node in added_caches(edited, self.source.pipeline))
            self._built[key] = nodes[replay.OUTPUT]
            while len(self._built) > self.kept:
                self._built.popitem(last=False)
        self._built.move_to_end(key)
        return self._built[key]


def added_caches(edited: Pipeline, original: Pipeline) -> tuple[str, ...]:
    """Ids of the caches that edits have added."""
    return tuple(node.id for node in edited if node.op == "cache" and node.id not in original)


def _without_copies(edited: Pipeline, original: Pipeline) -> Pipeline:
    """The pipeline on the host: a copy to a device passes the same bytes on, and its graph cannot be serialized."""
    copies = [node.id for node in edited if node.op == "copy_to_device" and node.id not in original]
    return apply_edits(edited, [Remove(name) for name in copies])


def fill_caches(caches: Iterable[Any]) -> None:
    """Reads every dataset that ends in a cache to its end once, so that trials measure what later epochs see.

    Raises:
        RunFailed: a dataset raised, or took too long.
    """
    for dataset in caches:
        end = time.perf_counter() + _FILL_LIMIT_SECONDS
        try:
            for _ in dataset:
                if time.perf_counter() > end:
                    raise RunFailed(f"Filling the cache took longer than {_FILL_LIMIT_SECONDS:.0f} s.")
        except tf.errors.OpError as error:
            raise RunFailed(
                f"The pipeline raised while the cache was filled: {error.message[:200]}"
            ) from error
    windows.settle()
