"""The closed set of edits, and the rewrites and plans composed of them.

An edit states what changes, not how: `core/editing.py` applies it to a Pipeline (the run-time emitter replays
the result), `source/` applies it to the user's source.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipetune.core.functions import Cut, FunctionForm, Windows
from pipetune.core.pipeline import Value


@dataclass(frozen=True)
class SetArgument:
    """Give argument `name` of operator `node` the value `value`."""

    node: str
    name: str
    value: Value


@dataclass(frozen=True)
class Insert:
    """Insert a new operator with this `id` directly downstream of `after`."""

    after: str
    op: str
    id: str
    arguments: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Remove:
    """Remove operator `node`, which has one input."""

    node: str


@dataclass(frozen=True)
class Move:
    """Move operator `node`, which has one input, to directly downstream of `after`."""

    node: str
    after: str


@dataclass(frozen=True)
class SetOption:
    """Set a field of `tf.data.Options` on the output, by its dotted name ("autotune.cpu_budget")."""

    name: str
    value: Value


@dataclass(frozen=True)
class ReplaceFunction:
    """Call the function of operator `node` in another variant; `digest` is that of the function traced in this way."""

    node: str
    form: FunctionForm
    digest: str
    first: tuple[str, ...] = ()  # ids of fused upstream maps, most upstream first: it calls their functions first


@dataclass(frozen=True)
class ReplaceSource:
    """Let `node`, which outputs the rows of arrays, output row indices, and gather the rows after `after`.

    Operators upstream of `node` without another consumer are removed: the gathering does their work, too.

    The map that gathers is the operator `gather`; `digest` is that of its traced function. With `windows`, it gathers
    the windows of rows that start at the indices.
    """

    node: str
    after: str
    digest: str
    windows: Windows | None = None

    @property
    def gather(self) -> str:
        """The id of the map that gathers the rows."""
        return f"gather@{self.node}"


HEAD = "head"
"""Prefix of the id of a map that calls the first part of a function."""


@dataclass(frozen=True)
class SplitFunction:
    """Split the function of the map `node`: a new map directly upstream calls the first part, `node` the second."""

    node: str
    cut: Cut

    @property
    def head(self) -> str:
        """The id of the map that calls the first part."""
        return f"{HEAD}@{self.node}"


@dataclass(frozen=True)
class ReplaceOperator:
    """Replace `node` by the operator `op`, which gets the function of `node` if there is one."""

    node: str
    op: str
    arguments: Mapping[str, Value] = field(default_factory=dict)


Edit = (
    SetArgument
    | Insert
    | Remove
    | Move
    | SetOption
    | ReplaceFunction
    | ReplaceSource
    | ReplaceOperator
    | SplitFunction
)


_THREADS = frozenset({"autotune.cpu_budget", "autotune.ram_budget", "threading.private_threadpool_size"})


def needs_proof(edits: Iterable[Edit]) -> bool:
    """Whether the edits can change values or order, so that the data must be compared before they are allowed.

    Prefetching, copying to a device, the number of parallel calls (of a function that runs in order), threads and
    budgets cannot.
    """
    for edit in edits:
        match edit:
            case Insert(op="prefetch" | "copy_to_device") | SetArgument(name="num_parallel_calls"):
                continue
            case SetOption(name=name) if name in _THREADS:
                continue
            case _:
                return True
    return False


class Safety(enum.IntEnum):
    """What a rewrite may change, from nothing to values. A plan has the worst class of its rewrites."""

    EXACT = 0  # same elements, same order, same random numbers for each element, in every epoch
    STATISTICAL = 1  # different draws, or a different shuffle order, from the same distribution
    REORDERS = 2  # same elements per epoch, different order or epoch boundaries
    APPROXIMATE = 3  # values differ within a stated tolerance


class Consent(enum.StrEnum):
    """Values of `--allow`."""

    STATISTICAL = "statistical"
    REORDER = "reorder"
    APPROXIMATE = "approximate"
    PYTHON_PARALLEL = "python-parallel"
    FILE_CACHE = "file-cache"


@dataclass(frozen=True)
class Rewrite:
    """One legal change proposed by a rule: its edits, and what they may change in the data."""

    rule: str
    node: str  # id of the operator it applies to
    safety: Safety
    edits: tuple[Edit, ...]
    summary: str  # what it does, one sentence for the report
    needs: frozenset[Consent] = frozenset()  # consent needed in addition to that for the safety class
    group: str = ""  # rewrites of the same group exclude each other
    reproducible: bool = True  # order and draws stay identical from run to run, if they were before
    epochs_kept: bool = True  # every element occurs once per epoch, and epochs do not mix
    notes: tuple[str, ...] = ()
    predicted_bytes: float = 0.0  # additional memory
    equal_is_enough: bool = False  # needs no speedup: offered if measured to be not slower
    only_training: bool = False  # its gain is visible only in a training step, not in the input alone

    @functools.cached_property
    def key(self) -> str:
        """Identifies the rewrite within a session."""
        values: list[object] = []
        for edit in self.edits:
            match edit:
                case SetArgument(value=value) | SetOption(value=value):
                    values.append(value)
                case Insert(after=after, arguments=arguments):
                    values += [*([after] if after != self.node else []), *arguments.values()]
                case ReplaceOperator(arguments=arguments):
                    values += arguments.values()
                case Move(after=after):
                    values.append(after)
        return f"{self.rule}@{self.node}" + ("=" + ",".join(map(str, values)) if values else "")


@dataclass(frozen=True)
class Silence:
    """Why a rule does not propose a rewrite for an operator where one might be expected."""

    rule: str
    node: str
    why: str


@dataclass(frozen=True)
class Plan:
    """Rewrites applied together, in order."""

    name: str
    rewrites: tuple[Rewrite, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return tuple(edit for rewrite in self.rewrites for edit in rewrite.edits)

    @functools.cached_property
    def key(self) -> str:
        """Identifies the plan within a session by its rewrites, independent of its name."""
        return "+".join(rewrite.key for rewrite in self.rewrites) or self.name

    @property
    def safety(self) -> Safety:
        return max((rewrite.safety for rewrite in self.rewrites), default=Safety.EXACT)

    @property
    def only_training(self) -> bool:
        """Whether part of its gain is visible only in a training step."""
        return any(rewrite.only_training for rewrite in self.rewrites)

    def with_rewrite(self, rewrite: Rewrite) -> Plan:
        """Returns the plan with `rewrite` added; it replaces a rewrite of the same group."""
        kept = tuple(old for old in self.rewrites if not rewrite.group or old.group != rewrite.group)
        return Plan(self.name, (*kept, rewrite))

    def without(self, rewrite: Rewrite) -> Plan:
        return Plan(self.name, tuple(old for old in self.rewrites if old.key != rewrite.key))
