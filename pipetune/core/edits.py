"""The closed set of edits, and the rewrites and plans made of them.

An edit says what changes, never how: `core/editing.py` applies it to a Pipeline (the run-time emitter replays
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
    """Put a new operator directly behind `after`; its id is `id`."""

    after: str
    op: str
    id: str
    arguments: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Remove:
    """Take operator `node` (one input) out."""

    node: str


@dataclass(frozen=True)
class Move:
    """Take operator `node` (one input) out and put it back directly behind `after`."""

    node: str
    after: str


@dataclass(frozen=True)
class SetOption:
    """Set a field of `tf.data.Options` on the output, by dotted name ("deterministic")."""

    name: str
    value: Value


@dataclass(frozen=True)
class ReplaceFunction:
    """Call the function of operator `node` in another form; what it is traced as then has this digest."""

    node: str
    form: FunctionForm
    digest: str
    first: tuple[str, ...] = ()  # the maps directly above whose functions it calls before its own, uppermost first


@dataclass(frozen=True)
class ReplaceSource:
    """Let `node`, which puts out the rows of arrays, put out their numbers, and gather the rows behind `after`.

    Operators above `node` that nobody else reads go: what they made of the rows is gathered too.

    The map that gathers them is the operator `gather`; what its function is traced as has this digest. With `windows`
    it is those of the rows that start at the numbers.
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
"""What the id of a map that calls the first part of a function begins with."""


@dataclass(frozen=True)
class SplitFunction:
    """Cut the function of the map `node` in two: a map directly above it calls the first part, `node` the second."""

    node: str
    cut: Cut

    @property
    def head(self) -> str:
        """The id of the map that calls the first part."""
        return f"{HEAD}@{self.node}"


@dataclass(frozen=True)
class ReplaceOperator:
    """Call operator `op` in place of `node`, with the function that `node` has, if it has one."""

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
    """Whether edits can change values or order, so that only compared values allow them.

    Reading ahead, copying to a device, a number of parallel calls (of a function that runs in order), threads and
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
    """What a rewrite may change, from nothing to the numbers. A plan has the worst class of its rewrites."""

    EXACT = 0  # same elements, same order, same randomness element by element, every epoch
    STATISTICAL = 1  # other draws, or another shuffle order, from the same distribution
    REORDERS = 2  # same elements per epoch, other order or epoch borders
    APPROXIMATE = 3  # numbers differ within a stated tolerance


class Consent(enum.StrEnum):
    """What `--allow` can grant."""

    STATISTICAL = "statistical"
    REORDER = "reorder"
    APPROXIMATE = "approximate"
    PYTHON_PARALLEL = "python-parallel"
    FILE_CACHE = "file-cache"


@dataclass(frozen=True)
class Rewrite:
    """One legal change a rule proposes: the edits, and what they may change."""

    rule: str
    node: str  # the operator it is about
    safety: Safety
    edits: tuple[Edit, ...]
    summary: str  # what it does, one sentence for the report
    needs: frozenset[Consent] = frozenset()  # consent beyond the safety class
    group: str = ""  # rewrites of one group exclude each other
    reproducible: bool = True  # the order and the draws are the same from run to run, if they were
    epochs_kept: bool = True  # every element once per epoch, epochs apart
    notes: tuple[str, ...] = ()
    predicted_bytes: float = 0.0  # memory it adds
    equal_is_enough: bool = False  # worth an offer where it is measured not slower
    only_training: bool = False  # what it gains shows inside a training step, never in the input alone

    @functools.cached_property
    def key(self) -> str:
        """Names the rewrite within a session."""
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
    """Why a rule proposes nothing at an operator where a reader might expect it to."""

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
        """Names what the plan does within a session, whatever it is called."""
        return "+".join(rewrite.key for rewrite in self.rewrites) or self.name

    @property
    def safety(self) -> Safety:
        return max((rewrite.safety for rewrite in self.rewrites), default=Safety.EXACT)

    @property
    def only_training(self) -> bool:
        """Whether some of its gain shows inside a training step only."""
        return any(rewrite.only_training for rewrite in self.rewrites)

    def with_rewrite(self, rewrite: Rewrite) -> Plan:
        """This plan and `rewrite`, which replaces one of the same group."""
        kept = tuple(old for old in self.rewrites if not rewrite.group or old.group != rewrite.group)
        return Plan(self.name, (*kept, rewrite))

    def without(self, rewrite: Rewrite) -> Plan:
        return Plan(self.name, tuple(old for old in self.rewrites if old.key != rewrite.key))
