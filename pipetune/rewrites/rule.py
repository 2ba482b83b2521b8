"""What a rule is (`Rule`: texts for users and a function from facts to proposals) and what it knows (`RuleContext`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.edits import NoProposal, Rewrite
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Diagnosis, OperatorProfile, Profile
from pipetune.core.results import AutotuneValues, ResumePoint
from pipetune.core.storage import FileUse


@dataclass(frozen=True)
class RuleContext:
    """The facts available to a rule. Rules do not use TensorFlow: they turn facts into edits.

    Without a profile or a diagnosis, a rule proposes only rewrites that need neither.
    """

    pipeline: Pipeline
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    cores: int = 1  # available to this process
    memory_limit_bytes: float = math.inf  # upper bound for the tuned pipeline
    randomness_fixed: bool = False  # the script sets a seed or requests determinism anywhere
    built_in_loop: frozenset[str] = frozenset()  # ids; a loop builds them in each iteration
    rebuilt_operators: frozenset[str] = frozenset()  # ids; of these, what the iteration reads once
    buildable_once: frozenset[str] = frozenset()  # ids; the loop that reads the data builds them alike each time
    python_repeats: bool = False  # Python functions and generators are taken to return the same in every epoch
    partial_read: bool = False  # a consumer stops before it has read one epoch of the data
    rewritten_file: str = ""  # a file that is read and that the script may write again while it trains
    elements_read: int | None = None  # of the output, by each iterator of a loop that may leave it early; None: all
    epochs: int | None = None  # total on this dataset; None: the script does not say, or may train again
    steps_per_epoch: int | None = None  # output elements that the script requests per epoch
    fingerprint: str = ""  # of the original pipeline; "": use `pipeline.fingerprint`
    serial_cycle_length: int | None = None  # default cycle length of a serial interleave on this machine; None: `cores`
    detected_cores: int | None = None  # number of cores that AUTOTUNE detects; None: `cores`
    buffer_budget_bytes: int | None = None  # bytes; set if AUTOTUNE assumes more memory than is available
    autotune_reading: AutotuneValues | None = None  # values that AUTOTUNE chose for the original pipeline
    device: str = "cpu"  # used for training: "cpu", "gpu", "tpu"
    custom_training_loop: bool = False  # the script's own loop or step reads the dataset, without Keras or a strategy
    resuming: tuple[ResumePoint, ...] = ()  # how the script resumes an interrupted run
    observed_kernels: Mapping[str, str] = field(default_factory=dict)  # by node id: TensorFlow's kernel, where observed

    def measured(self, node_id: str) -> OperatorProfile | None:
        """Returns what was measured of an operator; None if nothing was."""
        return self.profile.operator(node_id) if self.profile is not None else None

    @property
    def files(self) -> FileUse | None:
        """What was measured of the files that the pipeline reads; None if nothing was."""
        return self.profile.files if self.profile is not None else None


Propose = Callable[[RuleContext], Iterator[Rewrite | NoProposal]]
ProposeAt = Callable[[Node, RuleContext], Iterator[Rewrite | NoProposal]]


@dataclass(frozen=True)
class Rule:
    """One kind of rewrite. `pipetune rules NAME` prints the name and the three texts."""

    name: str  # "parallel-map"
    summary: str  # what it does, one sentence
    legality: str  # when it is allowed, in prose
    safety: str  # the safety classes of its rewrites, in prose
    propose: Propose
    order: int = 1  # rules propose in this order, then by name; rewrites of a plan are applied in the same order


def at_each(*operators: str) -> Callable[[ProposeAt], Propose]:
    """Decorates what a rule proposes at one operator, to propose it at each operator of these kinds in turn."""

    def decorate(propose_at: ProposeAt) -> Propose:
        @functools.wraps(propose_at)
        def propose(context: RuleContext) -> Iterator[Rewrite | NoProposal]:
            for node in context.pipeline:
                if node.op in operators:
                    yield from propose_at(node, context)

        return propose

    return decorate
