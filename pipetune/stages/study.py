"""What an analysis studies: the captured pipeline, its consumer, the script's other datasets, and the journal."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pipetune import probes, tensorflow_private
from pipetune.capture import consumption, job_processes
from pipetune.capture.consumption import FIRST_ELEMENTS, Consumer, Consumption, NoConsumer
from pipetune.capture.lockstep_consumer import LockstepConsumer
from pipetune.capture.rebuilding import loops_at, rebuild_loops, rebuilt_operators
from pipetune.capture.written_files import WrittenFiles
from pipetune.core.edits import Edit, Insert, Plan, Safety, inserted_caches
from pipetune.core.errors import PipetuneError
from pipetune.core.lockstep import LockstepTeam
from pipetune.core.machine import Machine
from pipetune.core.pipeline import INFINITE, Node, Pipeline
from pipetune.core.profile import Diagnosis, Profile
from pipetune.core.results import PARALLELISM, AutotuneValues, ResumePoint
from pipetune.core.session import DatasetResult, Session
from pipetune.core.settings import Command, Settings
from pipetune.core.time_plan import COMPARISON, TimePlan
from pipetune.core.version import VERSION
from pipetune.journal import Journal, Listener
from pipetune.measure import machine, memory
from pipetune.measure.caches import with_buffers
from pipetune.measure.runner import LockstepRunner, TensorFlowRunner
from pipetune.pipelines import live, replay
from pipetune.pipelines.errors import first_line
from pipetune.rewrites.rule import RuleContext
from pipetune.source.shared_calls import reads_same_datasets
from pipetune.source.source_files import source_lines
from pipetune.timing import windows
from pipetune.timing.iterators import free_iterators


@dataclass(frozen=True)
class Subject:
    """A captured pipeline and how it is used.

    Raises:
        PipetuneError: tf.data runs in debug mode, where nothing takes the time that it takes in training.
    """

    source: live.LivePipeline
    consumer: Consumer
    use: consumption.Consumption
    other_datasets: tuple[tuple[live.LivePipeline, consumption.Consumption], ...] = ()
    resuming: tuple[ResumePoint, ...] = ()
    written_files: WrittenFiles = field(default_factory=WrittenFiles)
    fixed_elsewhere: bool = False  # another dataset of the script fixes randomness

    def __post_init__(self) -> None:
        if tensorflow_private.in_debug_mode():
            raise PipetuneError(
                "tf.data runs in debug mode: all its functions run as Python code, one call at a time.",
                hint="Remove the call of tf.data.experimental.enable_debug_mode(), and analyze the script again.",
            )

    @property
    def randomness_fixed(self) -> bool:
        """Whether the script fixes randomness anywhere: a global seed, a seeded op or shuffle, determinism."""
        pipelines = [self.source.pipeline, *(other.pipeline for other, _ in self.other_datasets)]
        return (
            self.fixed_elsewhere
            or tensorflow_private.global_seed() is not None
            or tensorflow_private.op_determinism_enabled()
            or any(pipeline.options.get("deterministic") is True for pipeline in pipelines)
            or any(node.function is not None and node.function.seeded for one in pipelines for node in one)
            or any(_seeded_by_user(node) for one in pipelines for node in one)
        )

    @property
    def resuming_elsewhere(self) -> tuple[ResumePoint, ...]:
        """How the script resumes, without operators of the pipeline: those of other datasets may have the same ids."""
        return tuple(one for one in self.resuming if not one.node)

    def others_worth_tuning(self) -> list[int]:
        """Returns the positions of the other datasets that are worth their own time: what training repeats comes first.

        A preview is not: it takes a few elements, once.
        """
        uses = [use for _, use in self.other_datasets]
        worth = [index for index, use in enumerate(uses) if use.role != "preview" or use.elements >= FIRST_ELEMENTS]
        return sorted(worth, key=lambda index: uses[index].role not in ("validation", "evaluation"))

    @property
    def partial_read(self) -> bool:
        """Whether the consumer stops before it has read one epoch of the data."""
        steps, has = self.use.steps_per_epoch, self.source.pipeline.output.cardinality
        if steps is None or any(node.op == "repeat" for node in self.source.pipeline):
            return False
        return has < 0 or steps < has

    @property
    def elements_read(self) -> int | None:
        """Elements of the output that each iterator of a loop reads that may leave it early; None: all that there are.

        A loop that runs once takes what it needs of endless data from its only iterator, which never begins anew. Where
        it does not say how much that is, nobody knows how far it goes.
        """
        read = self.use.readings.elements
        endless = self.source.pipeline.output.cardinality == INFINITE
        return None if read == 0 and endless and not any(map(loops_at, self.use.call_path)) else read

    @property
    def epochs(self) -> int | None:
        """Total epochs that the script trains on this dataset; None if not certain."""
        return self.use.epochs if self.use.epochs_certain else None

    def results(self) -> tuple[DatasetResult, ...]:
        """Returns every dataset of the script as the session lists them, the studied one first."""
        return tuple(
            DatasetResult(
                pipeline=source.pipeline,
                role=use.role,
                consumer=use.consumer_call,
                consumed_elements=use.elements,
                in_turn=use.in_turn,
                file=use.file,
                line=use.line,
                loop=use.loop,
                handover=job_processes.handover_of(use),
                calls=source_lines(source.pipeline),
            )
            for source, use in ((self.source, self.use), *self.other_datasets)
        )


def reads_along(plan: Plan, pipeline: Pipeline, other: Pipeline, use: Consumption | DatasetResult) -> bool:
    """Whether another dataset reads the very datasets that a helper has made for this one, and may change with them."""
    return reads_same_datasets(pipeline, other) and may_change_along(plan.safety, plan.edits, use)


def may_change_along(safety: Safety, edits: Sequence[Edit], use: Consumption | DatasetResult) -> bool:
    """Whether what reads the very data that these edits change may get the changed data.

    A preview of some elements may. So may longer ones and `adapt`, where operators are only inserted and all elements
    stay as they are. A cache that freezes an order gives `adapt`, which reads once, an order as it had before.
    """
    elements = use.consumed_elements if isinstance(use, DatasetResult) else use.elements
    if use.role == "preview" and elements < FIRST_ELEMENTS:
        return safety <= Safety.STATISTICAL or only_caches(edits)
    if use.role == "adapt" and only_caches(edits):
        return True
    return use.role in ("preview", "adapt") and only_inserts(safety, edits)


def only_inserts(safety: Safety, edits: Sequence[Edit]) -> bool:
    """Whether all operators and all elements stay as they are."""
    return safety is Safety.EXACT and all(isinstance(edit, Insert) for edit in edits)


def only_caches(edits: Sequence[Edit]) -> bool:
    """Whether nothing is changed but that elements are kept: the first pass is as before."""
    return len(inserted_caches(edits)) == len(edits)


OTHERS_COMPARISON_SECONDS = 3.0
"""For the equality of a plan for another dataset; by judgement: enough for three epochs of decoded images, more delays
the patch."""


@dataclass
class Study:
    """An analysis in progress."""

    subject: Subject
    settings: Settings
    machine: Machine
    journal: Journal
    team: LockstepTeam | None = None  # the other workers, if several train in lockstep and this is their chief
    existing_cluster: bool = False  # the job existed before: workers that share a machine now also do when training
    resumed: Session | None = None  # the session whose race goes on; None: a new analysis
    patch_is_verified: bool = False  # a patch will be verified in separate processes: only the rest is confirmed here
    examples_per_element: float | None = None  # in one element of the output; None: it is found out
    runner: TensorFlowRunner = field(init=False)
    resident_bytes: int = field(init=False)  # of the process, before pipetune first ran the pipeline
    free_bytes: int = field(init=False)  # of memory, then: what the script holds in arrays is no longer free
    failed: Mapping[str, str] = field(default_factory=dict)  # by key of each plan that ended a worker process: how

    def __post_init__(self) -> None:
        # Before one element is read below, which fills buffers: the process keeps their memory.
        memory.release_free_memory()
        self.resident_bytes, self.free_bytes = machine.rss_bytes(), machine.available_bytes()
        pipeline, consumer = self.subject.source.pipeline, self.subject.consumer
        examples = self.examples_per_element or examples_of_batches(pipeline)
        make: Callable[..., TensorFlowRunner] = TensorFlowRunner
        if self.team is not None and isinstance(consumer, LockstepConsumer):
            make = functools.partial(LockstepRunner, team=self.team)
        self.runner = make(
            self.subject.source,
            consumer,
            machine=self.machine,
            examples_per_element=examples or 1.0,
            seed=self.settings.seed,
            compare_seconds=self.time_plan.usual_seconds(COMPARISON),
            cold_files=self.settings.cold,
            distributed_input=self.subject.use.distributed_input,
        )
        self.runner.memory_limit_bytes = self.memory_limit_bytes
        if examples is None:  # an element is read, for which its functions may draw from a generator of the script
            with self.runner.measuring():
                batched = any(node.op in _BATCHING for node in pipeline)
                sizes = {node.id: 1 for node in pipeline if node.op == "shuffle"}  # to fill a buffer may take long
                dataset = with_buffers(self.subject.source, sizes).source.dataset
                self.runner.examples_per_element = windows.examples_per_element(dataset, batched)
                free_iterators()

    @property
    def time_plan(self) -> TimePlan:
        """How long each part of the analysis may take."""
        return self.journal.time_plan

    @functools.cached_property
    def annotated_pipeline(self) -> Pipeline:
        """The original pipeline, annotated with what its functions do in other variants and positions, by retracing."""
        return probes.annotate(self.subject.source)

    @property
    def awaits_verification(self) -> bool:
        """Whether the session has a patch that will be verified: whatever decides nothing is measured after that."""
        patch = self.journal.session.patch_to_verify
        return self.patch_is_verified and patch is not None and bool(patch.diff)

    @property
    def tunes_validation(self) -> bool:
        """Whether validation is studied if its input takes much of an epoch: the script trains on it in one process."""
        settings, handed = self.settings, self.subject.use.distributed_input
        alone = self.team is None and (handed is None or handed.handover.workers == 1)
        alone = alone and not settings.parameter_servers
        requested = settings.trials and settings.dataset != "all"  # which analyzes it by itself
        validates = any(other.role == "validation" for _, other in self.subject.other_datasets)
        return self.journal.studies_training and self.patch_is_verified and alone and requested and validates

    def store_profile(self, profile: Profile, **changes: Any) -> Profile:
        """Returns the profile, stored where plans are priced by it, and in the session with other changes of it."""
        self.runner.profile = profile
        self.journal.update_dataset(profile=profile, **changes)
        return profile

    def for_other(self, index: int) -> Study:
        """Returns the study of the script's other dataset at `index`, input alone: nothing trains on it."""
        source, use = self.subject.other_datasets[index]
        why = f"The {use.role} dataset is measured without a training step."
        subject = Subject(
            source,
            NoConsumer(why),
            use,
            resuming=self.subject.resuming_elsewhere,
            written_files=self.subject.written_files,
            fixed_elsewhere=self.subject.randomness_fixed,
        )
        return Study(subject, self.settings, self.machine, self.journal, failed=self.failed)

    def input_runner(self, source: live.LivePipeline) -> TensorFlowRunner:
        """Returns what measures another dataset of the script, input alone and without its profile, before the patch.

        To be closed by the caller.
        """
        return TensorFlowRunner(
            source,
            NoConsumer("It is measured without a training step."),
            machine=self.machine,
            examples_per_element=examples_of_batches(source.pipeline) or 1.0,
            seed=self.settings.seed,
            compare_seconds=OTHERS_COMPARISON_SECONDS,
        )

    def note_error(self, what: str, error: Exception) -> None:
        """Notes that a part of the analysis has ended with an error; its traceback goes into the log."""
        traceback.print_exception(error)
        self.journal.add_notes(
            f"{what} ({type(error).__name__}: {first_line(error)}). What was found before is complete. "
            "Please report the traceback in the log."
        )

    def store_load(self) -> None:
        """Stores in the session how much other processes used the available cores during the windows so far.

        Skipped if other processes of the script run on this machine: they would be taken for unrelated load.
        """
        load = self.runner.load.load()
        started_here = (self.team is not None and not self.existing_cluster) or self.settings.parameter_servers > 0
        several = started_here or job_processes.local_ranks() > 1
        if load is None or several or not self.journal.studies_training:
            return
        self.journal.update(load=load)

    @property
    def cores(self) -> int:
        """Cores available to the process, rounded; at least 1."""
        return max(1, round(self.machine.cores_granted))

    @property
    def memory_limit_bytes(self) -> float:
        """Bytes that the tuned pipeline may hold: as requested, or else the free memory minus a margin."""
        if self.settings.memory_limit_bytes is not None:
            return float(self.settings.memory_limit_bytes)
        return (1 - _MARGIN) * min(
            self.machine.memory_available_bytes, self.machine.memory_limit_bytes, self.free_bytes
        )


def _seeded_by_user(node: Node) -> bool:
    """Whether a shuffle has a seed that no library set (Keras's image_dataset_from_directory draws one)."""
    if node.op != "shuffle" or node.argument("seed") is None:
        return False
    return node.location is None or node.location.method == "shuffle"


def examples_of_batches(pipeline: Pipeline) -> float | None:
    """Returns the batch size of a pipeline that passes its batches on as they are; None if only an element shows it."""
    node = pipeline.last_except(_PASSING_ON)
    size = node.argument("batch_size") if node.op in ("batch", "padded_batch") else None
    if not isinstance(size, int):
        return None
    rows = pipeline[node.inputs[0]].cardinality
    return float(min(size, rows) if rows > 0 else size)


_PASSING_ON = frozenset({"repeat", "prefetch", "with_options", "take", "skip", "shuffle", "cache", "copy_to_device"})
_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch", "group_by_window", "rebatch"})
_MARGIN = 0.2  # share of the free memory left unused, by judgement: less risks OOM kills, more rejects good plans


def new_study(subject: Subject, settings: Settings, listener: Listener, *, notes: tuple[str, ...] = ()) -> Study:
    """Returns the study of a pipeline in this process, before anything is measured; `notes` are for its session."""
    here = replace(machine.read_machine(), believed=machine.detect_resources())
    command = Command(options=settings, date=time.strftime("%Y-%m-%d %H:%M:%S"))
    session = Session(VERSION, command=command, machine=here, notes=notes)
    return Study(subject, settings, here, Journal(session, TimePlan.of(settings), listener))


def other_pipelines(
    uses: Sequence[consumption.Consumption], training: consumption.Consumption
) -> tuple[tuple[live.LivePipeline, consumption.Consumption], ...]:
    """Returns the pipelines of the script's other datasets with their uses, without those used for training."""
    return tuple(
        (replay.read(use.dataset, name=use.name), use) for use in uses if use is not training and use.role != "training"
    )


def rule_context(study: Study, profile: Profile, diagnosis: Diagnosis) -> RuleContext:
    """Returns what the rules may know; the cores that TensorFlow detects are given in addition to those available."""
    pipeline = study.subject.source.pipeline
    autotuned = study.runner.autotune_readings.get("defaults")
    turns = rebuild_loops(study.subject.source, study.subject.use)
    return RuleContext(
        pipeline=study.annotated_pipeline,
        profile=profile,
        diagnosis=diagnosis,
        cores=study.cores,
        memory_limit_bytes=study.memory_limit_bytes,
        randomness_fixed=study.subject.randomness_fixed,
        built_in_loop=frozenset(turns),
        rebuilt_operators=rebuilt_operators(pipeline, turns, epochs=study.subject.use.epochs),
        buildable_once=frozenset(name for name, turn in turns.items() if turn.alike),
        read_by_others=_read_by_others(study.subject),
        partial_read=study.subject.partial_read,
        elements_read=study.subject.elements_read,
        rewritten_file=study.subject.written_files.written_again(study.subject.source, study.subject.use.call_path),
        epochs=study.subject.epochs,
        epochs_in_loop=study.subject.use.epochs,
        steps_per_epoch=study.subject.use.steps_per_epoch,
        fingerprint=pipeline.fingerprint,
        serial_cycle_length=study.machine.cores_affinity,
        detected_cores=study.machine.cores_detected,
        buffer_budget_bytes=_buffer_limit(study.machine),
        autotune_reading=autotuned,
        observed_kernels=_kernels_in_use(pipeline, autotuned),
        device=study.machine.device,
        custom_training_loop=study.subject.consumer.kind in ("loop", "step")
        and study.subject.use.distributed_input is None,
        resuming=study.subject.resuming,
    )


def _read_by_others(subject: Subject) -> frozenset[str]:
    """Returns the ids of the operators that other datasets of the script read, too; for pipelines with a cache."""
    if not subject.source.pipeline.memory_caches:
        return frozenset()  # no rule asks
    known = [source for source, _ in subject.other_datasets]
    others = (*known, *live.siblings(subject.source, known))
    read = {id(dataset) for source in others for dataset in source.datasets.values()}
    return frozenset(name for name, dataset in subject.source.datasets.items() if id(dataset) in read)


def _buffer_limit(machine: Machine) -> int | None:
    """Returns half of the memory limit, AUTOTUNE's usual share; None unless it assumes more than the whole limit."""
    counted_on = machine.believed.autotune_buffer_bytes if machine.believed is not None else None
    return machine.memory_limit_bytes // 2 if (counted_on or 0) > machine.memory_limit_bytes else None


def _kernels_in_use(pipeline: Pipeline, reading: AutotuneValues | None) -> dict[str, str]:
    """Returns the kernel TensorFlow runs each serial map as, where it was observed: its passes have more information.

    A map that was fused with a batch and has no tunable parallelism runs one call at a time.
    """
    seen: dict[str, str] = {}
    for node in pipeline:
        if reading is None or node.op != "map" or node.argument("num_parallel_calls") is not None:
            continue
        kernel, value = reading.kernels.get(node.id), reading.value(node.id, PARALLELISM)
        if kernel is not None:
            seen[node.id] = "ParallelMap" if value is not None and value.tunable else "Map"
    return seen
