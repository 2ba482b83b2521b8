"""What an analysis studies: the captured pipeline, its consumer, the script's other datasets, and the journal."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipetune.core.machine import Machine
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.resuming import Resuming
from pipetune.core.session import DatasetResult
from pipetune.core.settings import Settings
from pipetune.core.team import Team
from pipetune.journal import Journal
from pipetune.tf import private
from pipetune.tf.measure import allocator, machine, windows
from pipetune.tf.measure.in_step import InStepRunner
from pipetune.tf.measure.runner import TensorFlowRunner
from pipetune.tf.pipelines import (
    cropping,
    cuts,
    fusion,
    gathering,
    live,
    on_batches,
    on_inputs,
    replay,
    shrinking,
)
from pipetune.tf.script import consumption, workers
from pipetune.tf.script.consumers import Consumer, NoConsumer
from pipetune.tf.script.in_step_consumer import InStepConsumer


@dataclass(frozen=True)
class Subject:
    """A captured pipeline and how it is used."""

    source: live.LivePipeline
    consumer: Consumer
    use: consumption.Consumption
    others: tuple[tuple[live.LivePipeline, consumption.Consumption], ...] = ()
    resuming: tuple[Resuming, ...] = ()

    @property
    def randomness_fixed(self) -> bool:
        """Whether the script fixes randomness anywhere: a global seed, a seeded op or shuffle, determinism."""
        pipelines = [self.source.pipeline, *(other.pipeline for other, _ in self.others)]
        return (
            private.global_seed() is not None
            or private.op_determinism_enabled()
            or any(pipeline.options.get("deterministic") is True for pipeline in pipelines)
            or any(node.function is not None and node.function.seeded for one in pipelines for node in one)
            or any(_seeded_by_user(node) for one in pipelines for node in one)
        )

    @property
    def partial_read(self) -> bool:
        """Whether the consumer stops before it has read one epoch of the data."""
        steps, has = self.use.steps_per_epoch, self.source.pipeline.output.cardinality
        if steps is None or any(node.op == "repeat" for node in self.source.pipeline):
            return False
        return has < 0 or steps < has

    @property
    def epochs(self) -> int | None:
        """Total epochs that the script trains on this dataset; None if not certain."""
        return self.use.epochs if self.use.certain else None

    def results(self) -> tuple[DatasetResult, ...]:
        """Returns every dataset of the script as the session lists them, the studied one first."""
        return tuple(
            DatasetResult(
                pipeline=source.pipeline,
                role=use.role,
                consumer=use.how,
                consumed_elements=use.elements,
                file=use.file,
                line=use.line,
                handover=workers.handover(use),
            )
            for source, use in ((self.source, self.use), *self.others)
        )


@dataclass
class Study:
    """An analysis in progress."""

    subject: Subject
    settings: Settings
    machine: Machine
    journal: Journal
    team: Team | None = None  # the other workers, if several train in lockstep and this is their chief
    elsewhere: bool = False  # the job existed before: workers that share a machine now also do when training
    verifies: bool = False  # a patch will be verified in separate processes: only the rest is confirmed here
    runner: TensorFlowRunner = field(init=False)
    resident_bytes: int = field(init=False)  # of the process, before pipetune first ran the pipeline
    failed: Mapping[str, str] = field(
        default_factory=dict
    )  # keys of plans that ended an earlier worker process, and how

    def __post_init__(self) -> None:
        # Before one element is read below, which fills buffers: the process keeps their memory.
        allocator.give_back()
        self.resident_bytes = machine.rss_bytes()
        pipeline = self.subject.source.pipeline
        consumer = self.subject.consumer
        make: Callable[..., TensorFlowRunner] = TensorFlowRunner
        if self.team is not None and isinstance(consumer, InStepConsumer):
            make = functools.partial(InStepRunner, team=self.team)
        self.runner = make(
            self.subject.source,
            consumer,
            machine=self.machine,
            examples_per_element=windows.examples_per_element(self.subject.source.dataset, batched(pipeline)),
            seed=self.settings.seed,
            compare_seconds=min(max(self.settings.budget_seconds / 8, 4.0), 20.0),  # for each of about six plans
            cold_files=self.settings.cold,
            handed=self.subject.use.handed,
        )

    @functools.cached_property
    def told(self) -> Pipeline:
        """The original pipeline, annotated with what its functions do in other variants and positions, by retracing."""
        source = self.subject.source
        told = source.pipeline
        for answers in (on_batches, on_inputs, fusion, cropping, shrinking, cuts, gathering):
            told = answers.with_answers(source, told)
        return told

    def of_other(self, index: int) -> Study:
        """Returns the study of the script's other dataset at `index`, input alone: nothing trains on it."""
        return self.of(*self.subject.others[index])

    def of(self, source: live.LivePipeline, use: consumption.Consumption) -> Study:
        """Returns the study of another dataset of the script, input alone."""
        why = f"The {use.role} dataset is measured alone."
        subject = Subject(source, NoConsumer(why), use, ())
        return Study(subject, self.settings, self.machine, self.journal, failed=self.failed)

    def note_load(self) -> None:
        """Stores in the session how much other processes used the available cores during the windows so far.

        Skipped if other processes of the script run on this machine: they would be taken for unrelated load.
        """
        load = self.runner.load.load()
        started_here = (self.team is not None and not self.elsewhere) or self.settings.parameter_servers > 0
        beside = started_here or workers.ranks_here() > 1
        if load is None or beside or not self.journal.studies_training:
            return
        notes = self.journal.session.notes
        if load.others_share > _BUSY_SHARE:
            notes = (
                *notes,
                f"While measuring, the neighbours took {load.others_share:.0%} of the {load.cores} cores of this "
                "process: intervals are wider than on a quiet machine.",
            )
        self.journal.update(load=load, notes=notes)

    @property
    def cores(self) -> int:
        return max(1, round(self.machine.cores_granted))

    @property
    def memory_limit_bytes(self) -> float:
        """Bytes that the tuned pipeline may hold: as requested, or else the free memory minus a margin."""
        if self.settings.memory_limit_bytes is not None:
            return float(self.settings.memory_limit_bytes)
        free = min(self.machine.memory_available_bytes, self.machine.memory_limit_bytes)
        return (1 - _MARGIN) * free


def _seeded_by_user(node: Node) -> bool:
    """Whether a shuffle has a seed that no library set (Keras's image_dataset_from_directory draws one)."""
    if node.op != "shuffle" or node.argument("seed") is None:
        return False
    return node.location is None or node.location.method == "shuffle"


def batched(pipeline: Pipeline) -> bool:
    """Whether the pipeline's elements are batches."""
    return any(node.op in _BATCHING for node in pipeline)


_BATCHING = frozenset({"batch", "padded_batch", "ragged_batch", "group_by_window", "rebatch"})
_MARGIN = 0.2
_BUSY_SHARE = 0.1  # of the available cores, used by other processes: worth a note


def others_of(
    uses: Sequence[consumption.Consumption], training: consumption.Consumption
) -> tuple[tuple[live.LivePipeline, consumption.Consumption], ...]:
    """Returns the pipelines of the script's other datasets with their uses, without those used for training."""
    return tuple(
        (replay.read(use.dataset, name=use.name), use)
        for use in uses
        if use is not training and use.role != "training"
    )
