"""What a rule is: a name, prose for the reader, and a function from facts to proposals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pipetune.core.autotuned import AutotuneReading
from pipetune.core.edits import Rewrite, Silence
from pipetune.core.pipeline import Pipeline
from pipetune.core.profile import Diagnosis, Profile
from pipetune.core.resuming import Resuming


@dataclass(frozen=True)
class RuleContext:
    """Everything a rule may know. Rules hold no TensorFlow: facts in, edits out.

    Without a profile or a diagnosis a rule proposes only what needs neither.
    """

    pipeline: Pipeline
    profile: Profile | None = None
    diagnosis: Diagnosis | None = None
    cores: int = 1  # granted to this process
    memory_limit_bytes: float = math.inf  # what the tuned pipeline may hold
    randomness_fixed: bool = False  # the script sets a seed or asks for determinism anywhere
    trained_variables: frozenset[str] | None = None  # None: any variable may be changed by training
    partial_read: bool = False  # a consumer stops before one epoch of the data was read
    epochs: int | None = None  # of all training over this dataset; None: the script does not say, or may train again
    steps_per_epoch: int | None = None  # elements of the output that the script asks for in each
    fingerprint: str = ""  # of the pipeline as captured; empty: `pipeline.fingerprint`
    rank: int = 0  # of this worker among those that train together
    cycle_length_in_force: int | None = (
        None  # default cycle length of a serial interleave here; None: `cores`
    )
    cores_believed: int | None = None  # what AUTOTUNE takes the cores to be, where that is more than `cores`
    buffers_granted: int | None = None  # bytes for its buffers, where AUTOTUNE counts on more memory than is granted
    autotuned: AutotuneReading | None = None  # what AUTOTUNE chose for the pipeline as written
    device: str = "cpu"  # what trains: "cpu", "gpu", "tpu"
    iterates_itself: bool = False  # the script's own loop or step takes the elements, no Keras, no strategy
    resuming: tuple[Resuming, ...] = ()  # how the script goes on where an earlier run stopped
    fused: Mapping[str, str] = field(
        default_factory=dict
    )  # node id -> kernel TensorFlow runs it as, where read

    @property
    def default_cycle_length(self) -> int:
        """What TensorFlow takes for a serial interleave without `cycle_length`: the cores it may use."""
        return max(1, self.cycle_length_in_force or self.cores)

    @property
    def identity(self) -> str:
        return self.fingerprint or self.pipeline.fingerprint


@dataclass(frozen=True)
class Rule:
    """One kind of rewrite. `pipetune rules NAME` prints everything but `propose`."""

    name: str  # "parallel-map"
    summary: str  # what it does, one sentence
    legality: str  # when it may be done, in prose
    safety: str  # the safety classes it gives, in prose
    propose: Callable[[RuleContext], Iterator[Rewrite | Silence]]
    turn: int = (
        1  # rules propose in this order, then by name; rewrites of a plan are applied in the same order
    )
