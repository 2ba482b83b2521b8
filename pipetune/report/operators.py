"""The per-operator table: what each step of the pipeline costs, moves and holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipetune.core.pipeline import AUTOTUNE, INFINITE, Node, Value
from pipetune.core.profile import OperatorProfile, Profile, Stage
from pipetune.core.results import Interval
from pipetune.core.session import DatasetResult
from pipetune.report import words
from pipetune.report.places import Places
from pipetune.report.values import Figure, figure, interval

_TUNABLE = frozenset({"num_parallel_calls", "buffer_size", "cycle_length", "num_parallel_reads"})
_SHOWN_ARGUMENTS = (
    "num_parallel_calls",
    "num_parallel_reads",
    "cycle_length",
    "block_length",
    "buffer_size",
    "batch_size",
    "count",
    "drop_remainder",
    "deterministic",
    "reshuffle_each_iteration",
    "shuffle",
    "size",
    "shift",
)


# Left out where they say nothing; `shuffle=True` of list_files is a default few know of and is shown.
_DEFAULTS: Mapping[str, bool] = {"drop_remainder": False, "reshuffle_each_iteration": True}


@dataclass(frozen=True)
class OperatorRow:
    """One operator; costs are of it alone, per element it puts out."""

    node: str
    title: str
    arguments: str
    function: str
    where: str
    stage: str
    cpu: Figure  # microseconds, with an interval where it was measured by differencing
    wall: Figure  # microseconds
    waiting: Figure  # microseconds, of the wall time
    share: Figure  # of the CPU time of the whole input
    wall_share: Figure  # of the wall time of the whole input
    ratio: Figure
    bytes_in: Figure
    bytes_out: Figure
    buffered: Figure
    elements: Figure
    random: bool
    python: bool
    parallelism: str
    bottleneck: bool
    cost_source: str  # "prefix differencing", "runtime model", "" without a cost
    remarks: tuple[str, ...] = ()  # what its function makes inside, what else its line made

    @property
    def stage_letter(self) -> str:
        return self.stage[:1].upper()

    @property
    def flags(self) -> str:
        """What makes a rewrite of it delicate."""
        marks = [("random", self.random), ("Python", self.python), ("bottleneck", self.bottleneck)]
        return ", ".join(name for name, holds in marks if holds)


@dataclass(frozen=True)
class OperatorTable:
    """All operators of one pipeline as written, sources first."""

    rows: tuple[OperatorRow, ...]
    stages: tuple[tuple[str, Figure], ...]  # share of the CPU time per stage
    total: str
    threads: tuple[str, ...] = ()  # operators that share one thread, slowest first
    notes: tuple[str, ...] = ()
    why: str = ""  # why there are no costs


def argument_words(name: str, value: Value) -> str:
    """`num_parallel_calls=AUTOTUNE`, `batch_size=32`."""
    if value == AUTOTUNE and not isinstance(value, bool) and name in _TUNABLE:
        return f"{name}=AUTOTUNE"
    if value == INFINITE and not isinstance(value, bool) and name == "count":
        return "count=infinite"
    return words.clean(f"{name}={value}")


def argument_list(arguments: Mapping[str, Value]) -> str:
    return ", ".join(
        argument_words(name, arguments[name])
        for name in _SHOWN_ARGUMENTS
        if arguments.get(name) is not None and arguments[name] is not _DEFAULTS.get(name)
    )


def operator_table(result: DatasetResult, places: Places) -> OperatorTable:
    """The table of one dataset; without a profile the operators alone, and why."""
    profile = result.profile
    bottleneck = result.diagnosis.bottleneck if result.diagnosis else None
    if profile is None:
        rows = tuple(_row(node, None, places, total=None, wall=None, bottleneck=bottleneck) for node in result.pipeline)
        return OperatorTable(rows=rows, stages=(), total="", why="this dataset was not profiled")
    total = sum(cost for operator in profile.operators if (cost := _cost(operator)) is not None) or None
    wall = sum((operator.visits or 0.0) * (operator.wall_seconds or 0.0) for operator in profile.operators) or None
    rows = tuple(
        _row(node, profile.operator(node.id), places, total=total, wall=wall, bottleneck=bottleneck)
        for node in result.pipeline
    )
    return OperatorTable(
        rows=rows,
        stages=tuple((stage.value, _stage_share(profile, stage, total)) for stage in Stage),
        total=_total_words(profile),
        threads=_threads(result),
        notes=tuple(words.clean(note) for note in profile.notes),
        why="" if total else "the runtime showed no operator's cost",
    )


def _cost(operator: OperatorProfile) -> float | None:
    """CPU seconds per element of the pipeline's output."""
    if operator.cpu_seconds is None or operator.visits is None:
        return None
    return operator.cpu_seconds * operator.visits


def _stage_share(profile: Profile, stage: Stage, total: float | None) -> Figure:
    if total is None:
        return Figure(why="no operator's cost is known")
    cost = sum(_cost(operator) or 0.0 for operator in profile.operators if operator.stage is stage)
    return figure(cost / total, words.percent)


def _total_words(profile: Profile) -> str:
    parts = []
    if profile.input_cpu_seconds is not None:
        parts.append(f"{words.seconds(profile.input_cpu_seconds)} of CPU time")
    if profile.input_wall_seconds is not None:
        parts.append(f"{words.seconds(profile.input_wall_seconds)} of wall time")
    if not parts:
        return ""
    noun = "batch" if profile.examples_per_element > 1 else "element"
    return f"The whole input takes {words.joined(parts)} per {noun} at parallelism 1."


def _threads(result: DatasetResult) -> tuple[str, ...]:
    """Operators between two asynchronous borders run in one thread, so their costs add up."""
    segments = result.diagnosis.sequential_segments if result.diagnosis else ()
    names = [
        [words.clean(result.pipeline[node].title) for node in segment if node in result.pipeline]
        for segment in segments
    ]
    return tuple(f"{words.joined(group)} run one after another in one thread." for group in names if len(group) > 1)


def _remarks(node: Node, operator: OperatorProfile) -> tuple[str, ...]:
    inside = [f"inside: {words.clean(' > '.join(node.inner))}"] if node.inner else []
    if operator.inside:
        shares = [f"{words.clean(name) or 'itself'} {words.percent(share)}" for name, share in operator.inside.items()]
        inside.append(f"of its time, by the runtime's model: {', '.join(shares)}")
    if operator.cpu_seconds is not None and operator.visits == 0:
        inside.append("above a cache: runs in the first epoch only")
    shared = [f"this line made {words.count(node.shared, 'dataset')}"] if node.shared > 1 else []
    return (*inside, *shared)


def _row(
    node: Node,
    operator: OperatorProfile | None,
    places: Places,
    *,
    total: float | None,
    wall: float | None,
    bottleneck: str | None,
) -> OperatorRow:
    unseen = "the runtime shows no such operator"
    seen = operator or OperatorProfile(node=node.id, stage=Stage.TRANSFORM)
    cost = _cost(seen)
    walled = None if seen.wall_seconds is None or seen.visits is None else seen.wall_seconds * seen.visits
    function = node.function
    return OperatorRow(
        node=words.clean(node.id),
        title=words.clean(node.title),
        arguments=argument_list(node.arguments),
        function=words.clean(function.name) if function and not places.confidential else "",
        where=places.location(node.location),
        stage=seen.stage.value if operator else "",
        cpu=_microseconds(seen.cpu_seconds, seen.cpu_interval, why=unseen),
        wall=_microseconds(seen.wall_seconds, None, why=unseen),
        waiting=_microseconds(seen.waiting_seconds, seen.waiting_interval, why=_UNTOLD if cost is not None else unseen),
        share=figure(cost / total if cost is not None and total else None, words.percent, why=unseen),
        wall_share=figure(walled / wall if walled is not None and wall else None, words.percent, why=unseen),
        ratio=figure(seen.ratio, words.significant, why=unseen),
        bytes_in=figure(seen.bytes_in, words.byte_size, why=unseen),
        bytes_out=figure(
            seen.bytes_out if seen.bytes_out is not None else node.element_bytes, words.byte_size, why=unseen
        ),
        buffered=figure(seen.buffered_bytes, words.byte_size, why="it holds no buffer, or none was seen"),
        elements=figure(seen.elements, lambda number: f"{number:,.0f}", why=unseen),
        random=seen.random or bool(function and function.random),
        python=seen.python or bool(function and function.python),
        parallelism="" if seen.parallelism is None else str(seen.parallelism),
        bottleneck=node.id == bottleneck,
        cost_source=seen.cost_source.value if seen.cpu_seconds is not None else "",
        remarks=_remarks(node, seen),
    )


def _microseconds(seconds: float | None, span: Interval | None, *, why: str) -> Figure:
    """Seconds as microseconds, with their interval where there is one."""
    if seconds is None or span is None:
        return figure(None if seconds is None else seconds * 1e6, words.significant, why=why)
    scaled = replace(span, median=seconds * 1e6, low=span.low * 1e6, high=span.high * 1e6)
    return replace(interval(scaled, words.significant), basis=f"{words.count(span.pairs, 'round')}, {span.method}")


_UNTOLD = "the runtime's model cannot tell waiting from working"
