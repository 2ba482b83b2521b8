"""Measures plans on the live pipeline: the TensorFlow implementation of `search.runner.Runner`."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import tensorflow as tf

from pipetune.capture import consumption, loop_consumer, protection
from pipetune.capture.distributed_input import DistributedInput
from pipetune.capture.lockstep_consumer import LockstepConsumer
from pipetune.core.edits import Plan, Remove, apply_edits
from pipetune.core.errors import CannotReplay, StepFailed
from pipetune.core.lockstep import LockstepTeam
from pipetune.core.machine import Machine
from pipetune.core.measurement import Pause, RunFailed, StepRaised, StepSeries, Window
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Profile
from pipetune.core.results import AutotuneValues, Comparison
from pipetune.equality import compare
from pipetune.equality.compare import replica_check
from pipetune.measure.caches import CutBuffers, filled
from pipetune.measure.files import drop_from_page_cache
from pipetune.measure.machine import throttling_group
from pipetune.measure.runtime_choices import ParameterLog, log_parameters
from pipetune.model.memory import expected_peak_bytes
from pipetune.model.segments import added_caches, seconds_to_fill
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.pipelines.files import NamedFiles, files_within, named_files, private_files, private_folder
from pipetune.timing import windows
from pipetune.timing.cpu_load import LoadMeter
from pipetune.timing.iterators import free_iterators

_COMPILATION_NOTE = (
    "New shapes were compiled while training steps were measured, and again when the measurement was repeated, "
    "so the step times include compilation. Causes are a smaller last batch (see drop_remainder) and batches "
    "padded to their longest element."
)
_KEPT = 4  # datasets kept: a memory cache lives as long as its dataset object
_SHORTEST_SETTLE_SECONDS = 0.3  # wait for AUTOTUNE, at least; by judgement: less leaves more windows unconverged
_WARM_UP_STEPS = 2  # before a window of training steps; fewer where steps are so slow that it has hardly more

_NUMBERING = frozenset({"enumerate", "zip"})
"""Operators whose elements may have a number by which steps differ: `if step % 1000 == 0` is true of the first one."""


def _one_element(dataset: Any, *, second: bool) -> Any:
    """Returns the dataset of the first element, or of the second one if there is one."""
    # Not by `concatenate`: TensorFlow refuses it behind `sample_from_datasets` with a dataset of weights.
    return dataset.take(2).repeat(2).skip(1).take(1) if second else dataset.take(1)


@dataclass(eq=False)
class TensorFlowRunner:
    """Replays plans and measures them alone and inside the user's own training step."""

    source: live.LivePipeline  # the original one
    consumer: consumption.Consumer  # trains on the dataset
    _: KW_ONLY
    machine: Machine  # its available cores and its target device
    examples_per_element: float  # examples in one element of the pipeline's output
    seed: int = 0  # for proofs of equality
    compare_seconds: float = 20.0  # time limit of one proof of equality; as many elements as fit are compared
    cold_files: bool = False  # drop the files from the page cache before every window
    # How a strategy distributes the dataset; the input alone is then the host pipeline that it builds of it.
    distributed_input: DistributedInput | None = None

    def __post_init__(self) -> None:
        self.profile: Profile | None = None  # set after profiling; predictions need it
        self._measured = self.source
        self._cut = CutBuffers(self.source)
        self.max_datasets = _KEPT  # number of datasets that stay built
        self.memory_limit_bytes = math.inf  # for the caches that those have filled, all together
        self._built: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._cached_bytes: dict[tuple[object, ...], float] = {}
        self._bound: Any = None
        self._files = contextlib.ExitStack()
        self._files.enter_context(private_files())
        self._state = protection.Snapshot()
        self.load = LoadMeter(cgroup=throttling_group())
        self.autotune_readings: dict[str, AutotuneValues] = {}  # by plan key: of the window observed longest
        self.seconds_around: defaultdict[str, list[float]] = defaultdict(list)  # of windows, beside what they measure
        self.notes: list[str] = []  # remarks on the figures of training windows, for the report

    @property
    def trains(self) -> bool:
        """Whether something trains on the dataset."""
        return not isinstance(self.consumer, consumption.NoConsumer)

    @property
    def shares_processors(self) -> bool:
        """Whether training runs on the same processors as the input."""
        return self.machine.device == "cpu" and not isinstance(self.consumer, loop_consumer.EmulatedConsumer)

    @functools.cached_property
    def files(self) -> NamedFiles:
        """The files that the original pipeline names."""
        return named_files(self.source)

    @property
    def cut(self) -> CutBuffers:
        """The pipeline that windows run: the original one, or with smaller shuffle buffers, whatever the plan."""
        return self._cut

    @cut.setter
    def cut(self, cut: CutBuffers) -> None:
        self._cut = cut
        self._built.clear()
        self._cached_bytes.clear()

    @property
    def measured(self) -> live.LivePipeline:
        """The pipeline as windows read it, with its own buffers: with full caches where later epochs are what counts.

        Once it is set, its buffers are not cut.
        """
        return self._measured

    @measured.setter
    def measured(self, measured: live.LivePipeline) -> None:
        self._measured, self._bound = measured, None  # it may hold the caches of what was measured before
        self.cut = CutBuffers(measured)

    def drop_file_caches(self) -> None:
        """With `cold_files`, drops the files from the page cache, including files of caches that trials wrote."""
        if self.cold_files:
            drop_from_page_cache([*self.files.paths, *files_within(private_folder())])

    def input_window(self, plan: Plan, *, seconds: float, warmup_seconds: float) -> Window:
        """Returns a window of the input alone, with `plan` applied.

        Raises:
            RunFailed: the pipeline cannot be built, raised, or is empty.
        """
        with self._timed("input") as timed, self.measuring():
            dataset = self.dataset(plan)
            parts = 1 if self.distributed_input is None else len(self.distributed_input.handover.shares) or 1
            log = ParameterLog(repeated=not windows.is_endless(dataset), divided=parts > 1)
            self.drop_file_caches()
            with self.load.window():
                window = windows.input_window(
                    dataset
                    if self.distributed_input is None
                    else self.distributed_input.host_pipeline(windows.repeat_forever(dataset)),
                    parts=parts,
                    seconds=seconds,
                    warmup_seconds=warmup_seconds,
                    settle_seconds=max(_SHORTEST_SETTLE_SECONDS, 2 * warmup_seconds),
                    examples_per_element=self.examples_per_element,
                    epoch_elements=self.epoch_steps,
                    on_poll=log.poll,
                )
            self._keep_longest_reading(plan, log)
            timed.append(window.wall_seconds)
            return self._with_load(window)

    def training_window(self, plan: Plan, *, steps: int, epoch_steps: int | None = None) -> Window:
        """Returns a window of training steps on the pipeline with `plan` applied.

        Args:
            plan: the plan.
            steps: elements of the pipeline to measure.
            epoch_steps: elements of an epoch, where no profile has them yet.

        Raises:
            RunFailed: the pipeline cannot be built, or a step or its input raised.
            StepFailed: the step raised on the original pipeline.
        """
        dataset, epoch = self.training_dataset(plan), epoch_steps or self.epoch_steps
        return self._train(dataset, steps, as_written=not plan.rewrites, epoch_steps=epoch)

    def bound_window(self, *, steps: int) -> Window:
        """Returns a window of training steps on one batch, cached and repeated: the model's own bound.

        Raises:
            RunFailed: as in `training_window`.
            StepFailed: the step raised.
        """
        return self._train(self.training_dataset(None), steps, as_written=True)

    def record_steps(self, plan: Plan, *, steps: int, seconds: float) -> StepSeries:
        """Returns single training steps on the pipeline with `plan` applied, with the script's own shuffle buffers.

        If a new shape was compiled in one of them, they are taken again, as a window is, as far as there is time.

        Args:
            steps: number of steps, at most.
            seconds: what they may take; what is built before, such as a cache of the plan, takes longer.

        Raises:
            RunFailed: the pipeline cannot be built, or a step or its input raised.
        """
        cut = self.cut
        if cut.sizes:
            self.cut = CutBuffers(self._measured)
        try:
            dataset = self.training_dataset(plan)
            self.drop_file_caches()
            end = time.perf_counter() + seconds
            with self.measuring():
                series = self.consumer.record_steps(dataset, steps=steps, seconds=seconds)
                left = end - time.perf_counter()
                if series.compile_seconds and left > sum(series.step_seconds) - series.compile_seconds:
                    series = self.consumer.record_steps(dataset, steps=steps, seconds=left)
            return series
        finally:
            if cut.sizes:
                self.cut = cut

    def training_dataset(self, plan: Plan | None) -> Any:
        """Returns the dataset of training windows: the pipeline under `plan`, or one cached batch if it is None.

        Raises:
            RunFailed: it cannot be built.
        """
        if plan is not None:
            return self.dataset(plan)
        if self._bound is None:
            numbered = any(node.op in _NUMBERING for node in self.source.pipeline)
            self._bound = windows.apply_on_host(
                self._cut.source.dataset, lambda dataset: _one_element(dataset, second=numbered).cache()
            )
        return self._bound

    def compare(self, plan: Plan) -> Comparison:
        """Returns the comparison of the pipeline with `plan` applied and the original one.

        Raises:
            CannotReplay: the edited pipeline cannot be built.
        """
        with self.measuring():
            strategy = self.distributed_input
            division = tuple(replica_check(strategy, self.dataset(plan))) if strategy is not None else ()
            if not all(check.equal for check in division):  # known without any element
                return Comparison(plan.safety, division, elements=0, epochs=0)
            measured = self.profile.operators if self.profile is not None else ()
            filters = {node.id for node in self.source.pipeline if node.op == "filter"}
            found = compare.compare(
                self.source,
                _without_device_copies(self.edited(plan), self.source.pipeline),
                plan.safety,
                seed=self.seed,
                time_limit_seconds=self.compare_seconds,
                filtered={one.node: one.ratio for one in measured if one.node in filters and one.ratio is not None},
            )
            return replace(found, checks=(*found.checks, *division)) if found.equal else found

    def predicted_bytes(self, plan: Plan) -> float:
        """Returns the predicted peak memory of the pipeline with `plan` applied, in bytes; 0 before profiling."""
        if self.profile is None:
            return 0.0
        cores = max(1.0, self.machine.cores_granted)
        return expected_peak_bytes(self.source.pipeline, self.edited(plan), self.profile, cores=cores)

    def seconds_to_fill(self, plan: Plan, epoch_seconds: float | None) -> float | None:
        """As `search.runner.Runner`."""
        return seconds_to_fill(self.edited(plan), self.source.pipeline, epoch_seconds)

    def edited(self, plan: Plan) -> Pipeline:
        """Returns the pipeline with the plan's edits applied."""
        return apply_edits(self.source.pipeline, plan.edits)

    @contextlib.contextmanager
    def _timed(self, unit: str) -> Iterator[list[float]]:
        """Context manager around a window: what the window itself measures is appended to the list."""
        started, measured = time.perf_counter(), list[float]()
        yield measured
        self.seconds_around[unit].append(time.perf_counter() - started - sum(measured))

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Context manager for code that runs the pipeline: restores the state of the script on exit.

        The state is all variables, mutable tables and random generators that functions or training steps may change.
        """
        try:
            yield
        finally:
            self._state.restore()

    def close(self) -> None:
        """Frees every dataset built, with its caches in memory and on disk; the runner cannot be used afterwards."""
        self._state.restore()
        self._built.clear()
        self._cached_bytes.clear()
        self._bound = None
        free_iterators()
        self._files.close()

    @property
    def epoch_steps(self) -> int | None:
        """Elements of the output per epoch; None if unknown."""
        return self.source.pipeline.epoch_elements((self.profile.cardinality if self.profile else None) or {})

    @property
    def pause(self) -> Pause | None:
        """The pauses of the input as written, if it comes in bursts; the start of an epoch is none."""
        return self.profile.pause_within(self.epoch_steps) if self.profile is not None else None

    def _train(self, dataset: Any, steps: int, *, as_written: bool, epoch_steps: int | None = None) -> Window:
        warmup = max(1, min(_WARM_UP_STEPS, steps - 1))
        if epoch_steps and steps < epoch_steps:  # it ends with the epoch at the latest: its start is counted by itself
            warmup = min(warmup, epoch_steps - steps)
        self.drop_file_caches()
        try:
            unit = "bound" if dataset is self._bound else "training"
            with self._timed(unit) as timed, self.measuring(), self.load.window():
                window = self.consumer.window(dataset, steps=steps, warmup=warmup)
                timed.append(window.wall_seconds)
        except StepRaised as failure:
            if not as_written:
                raise  # a rewrite may pass elements to the step that it does not accept
            raise StepFailed(f"{failure}. Its changes were undone.") from failure.__cause__
        if window.compile_seconds and _COMPILATION_NOTE not in self.notes:
            self.notes.append(_COMPILATION_NOTE)
        examples = max(1, round(window.steps * self.examples_per_element))
        return self._with_load(replace(window, examples=examples))

    def _with_load(self, window: Window) -> Window:
        """Returns the last window with how long threads were queued, its warm-up included."""
        return replace(window, queued_seconds=self.load.last_queued_seconds)

    def watch_autotune(self, plan: Plan, *, seconds: float) -> None:
        """Reads what AUTOTUNE chooses under `plan`: consumes one iterator until values are stable, at most `seconds`.

        Raises:
            RunFailed: the pipeline raised, or is empty.
        """
        with self.measuring():
            self._keep_longest_reading(plan, log_parameters(self.dataset(plan), seconds=seconds))

    def _keep_longest_reading(self, plan: Plan, log: ParameterLog) -> None:
        """Keeps the reading of the longest observation, which contains more about the same values."""
        before = self.autotune_readings.get(plan.key)
        if before is None or log.seconds >= before.seconds:
            self.autotune_readings[plan.key] = log.reading(self.edited(plan))

    def dataset(self, plan: Plan) -> Any:
        """Returns the dataset of a plan, built once, with the caches that it adds filled.

        Raises:
            RunFailed: it cannot be built, or the pipeline raised.
        """
        if not plan.edits:
            return self._cut.source.dataset
        key = tuple(repr(edit) for edit in plan.edits)
        if key not in self._built:
            edited = self.edited(plan)
            pipeline = self._cut.applied_to(edited)
            try:
                nodes = replay.replay_nodes(self._cut.source, pipeline)
            except CannotReplay as error:
                raise RunFailed(error.message) from error
            except (tf.errors.OpError, ValueError, TypeError) as error:
                raise RunFailed(f"The plan cannot be built: {first_line(error)}") from error
            empty = tuple(self._empty_caches(edited, nodes))
            size = self.predicted_bytes(plan) if empty else 0.0
            while self._built and sum(self._cached_bytes.values()) + size > self.memory_limit_bytes:
                self._drop_oldest()
            full = filled(self._cut.source, pipeline, nodes, empty)
            self._built[key], self._cached_bytes[key] = full.datasets[replay.OUTPUT], size
            while len(self._built) > self.max_datasets:
                self._drop_oldest()
        self._built.move_to_end(key)
        return self._built[key]

    def _drop_oldest(self) -> None:
        key, _ = self._built.popitem(last=False)
        del self._cached_bytes[key]

    def _empty_caches(self, edited: Pipeline, nodes: Mapping[str, Any]) -> Iterator[str]:
        """Yields the ids of the caches that a plan adds, and of full ones that it has rebuilt on another input."""
        yield from added_caches(edited, self.source.pipeline)
        if self._measured is not self.source:
            full = self._cut.source.datasets
            caches = (node.id for node in edited.memory_caches)
            yield from (name for name in caches if name in full and nodes[name] is not full[name])


def _without_device_copies(edited: Pipeline, original: Pipeline) -> Pipeline:
    """Returns the pipeline without added copies to a device, which keep all bytes and cannot be serialized."""
    copies = [node.id for node in edited if node.op == "copy_to_device" and node.id not in original]
    return apply_edits(edited, [Remove(name) for name in copies])


class LockstepRunner(TensorFlowRunner):
    """The chief's runner: before a training window, every worker builds the pipeline to be measured."""

    def __init__(
        self, source: live.LivePipeline, consumer: LockstepConsumer, *, team: LockstepTeam, **others: Any
    ) -> None:
        """Takes the arguments of `TensorFlowRunner`, and the team of workers."""
        super().__init__(source, consumer, **others)
        self._team = team

    def training_window(self, plan: Plan, *, steps: int, epoch_steps: int | None = None) -> Window:
        """As in the base class, of all workers; raises RunFailed if one of them cannot build or run the pipeline."""
        self.training_dataset(plan)  # if this raises, the other workers need not build it
        self._team.prepare(plan)
        return super().training_window(plan, steps=steps, epoch_steps=epoch_steps)

    def bound_window(self, *, steps: int) -> Window:
        """As in the base class, of all workers; raises RunFailed if one of them cannot build or run the pipeline."""
        self._team.prepare(None)
        return super().bound_window(steps=steps)

    def _with_load(self, window: Window) -> Window:
        """As in the base class; what others used is unknown: on this machine, the other workers may be among them."""
        return replace(super()._with_load(window), others_seconds=None)
