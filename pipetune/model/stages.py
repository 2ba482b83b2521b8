"""Cuts a pipeline into what runs in one thread and what runs in several.

Synchronous operators between two asynchronous borders (prefetch, parallel map, parallel interleave, parallel
batch, the consumer) run in one thread: a segment. With TensorFlow's default optimisations a stateless serial
map becomes parallel, a map is fused with the batch behind it, and the output is prefetched, whatever the
script says. Beside the operators' own work a thread spends time on handing elements over, on starting parallel
calls, and the consumer's on taking elements in Python (`core.overheads`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipetune.core.functions import FunctionForm
from pipetune.core.operators import Count, facts
from pipetune.core.overheads import IDEAL, Overheads
from pipetune.core.parts import price_of_part
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline
from pipetune.core.profile import OperatorProfile, Profile

OVERHEAD_SECONDS = 1e-6
"""What handing an element through an operator costs at least; taken for operators the profile never saw."""

RUNTIME = ""
"""In place of a node's id: work of the runtime between operators, or of the consumer."""

_DEFAULT_OPTIONS = ("experimental_optimization.apply_default_optimizations", "autotune.enabled")


@dataclass(frozen=True)
class Work:
    """What one operator costs per element of the pipeline's output."""

    node: str
    seconds: float  # of a thread's time, waiting included
    cpu_seconds: float


@dataclass(frozen=True)
class Segment:
    """Operators in one thread (`parallelism` 1), or one parallel operator with the batch fused into it."""

    work: tuple[Work, ...]
    parallelism: float = 1.0
    parallel: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(work.node for work in self.work if work.node != RUNTIME))

    @property
    def seconds(self) -> float:
        """Seconds of one thread per element of the output."""
        return sum(work.seconds for work in self.work)

    @property
    def rate(self) -> float:
        """Elements of the output per second it allows."""
        return self.parallelism / self.seconds if self.seconds > 0 else float("inf")


def defaults_apply(pipeline: Pipeline) -> bool:
    """Whether TensorFlow's default optimisations are on for it."""
    return all(pipeline.options.get(name) is not False for name in _DEFAULT_OPTIONS)


def visits(pipeline: Pipeline, profile: Profile) -> dict[str, float]:
    """Elements each operator puts out per element of the pipeline's output.

    As measured; for operators an edit put in, and those that now get what another dropped before, what the operator
    behind them takes in.
    """
    found: dict[str, float] = {}
    spared = _spared(pipeline, profile)
    for node in reversed(pipeline.nodes):
        measured = profile.operator(node.id)
        as_measured = not _on_batches(node) and node.id not in spared
        if measured is not None and measured.visits is not None and as_measured:
            found[node.id] = measured.visits
            continue
        below = pipeline.consumers(node.id)
        found[node.id] = sum(found[other.id] * elements_taken(other, profile) for other in below) if below else 1.0
    return found


def _spared(pipeline: Pipeline, profile: Profile) -> frozenset[str]:
    """Operators that get fewer elements than when they were measured: one that drops some was moved above them."""
    written = {one.node: place for place, one in enumerate(profile.operators)}
    return frozenset(
        below.id
        for node in pipeline
        if node.id in written and facts(node.op).count is Count.FEWER and not facts(node.op).batches
        for below in pipeline.downstream(node.id)
        if written.get(below.id, written[node.id]) < written[node.id]
    )


def _on_batches(node: Node) -> bool:
    """Whether an edit has its function called on batches: it stands elsewhere, and costs something else."""
    return node.function is not None and node.function.called_on_batches


def share_kept(node: Node, measured: OperatorProfile | None) -> float | None:
    """The measured share of its cost that a function keeps that decodes images otherwise."""
    form = node.function.form if node.function is not None else FunctionForm.AS_TRACED
    return measured.cropping_share if measured is not None and form is FunctionForm.DECODE_AND_CROP else None


def elements_taken(node: Node, profile: Profile) -> float:
    """Elements taken in per element put out."""
    measured = profile.operator(node.id)
    if measured is not None and measured.ratio is not None:
        return measured.ratio
    size = node.argument("batch_size")
    return float(size) if facts(node.op).batches and isinstance(size, int) and size > 0 else 1.0


def cut(
    pipeline: Pipeline,
    profile: Profile,
    cores: float,
    *,
    defaults_on: bool | None = None,
    overheads: Overheads = IDEAL,
) -> tuple[Segment, ...]:
    """The segments and parallel operators of a pipeline, sources first; the last is the consumer's thread.

    Whatever stands above a cache costs nothing: rates are those of the later epochs. Branches that meet (zip,
    choose) run in the thread of the operator where they meet.

    Args:
        cores: what AUTOTUNE may use; granted to the process, not what the host has.
        defaults_on: whether TensorFlow's default optimisations are on; None reads the pipeline's options.
    """
    on = defaults_apply(pipeline) if defaults_on is None else defaults_on
    counts = visits(pipeline, profile)
    # What the map that gathers rows was measured to cost includes all that hands their numbers on.
    elsewhere = behind_cache(pipeline) | pipeline.numbered
    working = _working_share(profile)
    segments: list[Segment] = []
    threads: dict[str, _Thread] = {}  # by node: the thread that it still stands in

    def close(thread: _Thread, more: Iterable[Work] = ()) -> None:
        """A thread ends at a border: what it does per element of the output, waking other threads included."""
        work = (*thread.work, *more)
        # It wakes another for each element at most, and no more often than it comes by.
        waking = min(thread.crossings * overheads.wake_seconds, sum(part.seconds for part in work))
        if work:
            segments.append(Segment((*work, *_runtime(waking + thread.crossings * overheads.buffer_seconds))))

    for node in pipeline:
        above = _joined(threads.pop(name) for name in node.inputs if name in threads)
        count = counts[node.id]
        if node.id in elsewhere:
            threads[node.id] = _Thread()
            continue
        work = _together(
            _work(one, priced_at(one, pipeline, profile), count, overheads.spin_seconds, working)
            for one in _called(node)
        )
        fuses = on and _map_fuses(node, pipeline)
        each = work.seconds / count if count else 0.0
        beyond, busy = overheads.of_call(each, fused=fuses)
        calls = _runtime(count * beyond, count * busy) if node.op != "interleave" else ()
        parallelism = _parallelism(node, cores, on)
        fused = _fused_with(node, segments, pipeline) if on else None
        if fused is not None:
            into = segments[fused]
            segments[fused] = Segment((*into.work, work), into.parallelism, into.parallel)
            threads[node.id] = _Thread((), count)
        elif parallelism is not None:
            close(above)
            segments.append(Segment((work, *calls), parallelism, True))
            # An interleave reads on in its threads, no call for each element; but taking one from them costs.
            taking = _Thread(_runtime(count * overheads.interleave_seconds))
            threads[node.id] = taking if node.op == "interleave" else _Thread((), count)
        elif node.op == "prefetch":
            close(_Thread(above.work, above.crossings + count))
            threads[node.id] = _Thread((), count)
        elif fuses:
            close(above, (work, *calls))
            threads[node.id] = _Thread()
        else:
            threads[node.id] = _Thread((*above.work, work), above.crossings)
    last = threads.get(pipeline.output.id, _Thread())
    if on and last.work:  # TensorFlow puts a prefetch behind what is not asynchronous
        close(_Thread(last.work, last.crossings + 1))
        last = _Thread((), 1.0)
    close(last, _runtime(overheads.next_seconds))
    return tuple(segments)


@dataclass(frozen=True)
class _Thread:
    """Operators that run in one thread so far, and elements it takes from or puts into buffers, per output."""

    work: tuple[Work, ...] = ()
    crossings: float = 0.0


def _joined(threads: Iterable[_Thread]) -> _Thread:
    found = tuple(threads)
    return _Thread(tuple(work for one in found for work in one.work), sum(one.crossings for one in found))


def _runtime(seconds: float, cpu_seconds: float | None = None) -> tuple[Work, ...]:
    """Work of the runtime, if there is any; without `cpu_seconds` all of it keeps a processor busy."""
    return (Work(RUNTIME, seconds, seconds if cpu_seconds is None else cpu_seconds),) if seconds > 0 else ()


def _working_share(profile: Profile) -> float:
    """The share of its CPU time at parallelism 1 that the input worked, where waiting was not measured apart.

    In one thread no more work is done than time passes: the rest are idle threads that looked for work, and what
    taking the elements cost is none of the operators'.
    """
    cpu, wall = profile.input_cpu_seconds, profile.input_wall_seconds
    if profile.overheads is None or not cpu or not wall:
        return 1.0
    return min(1.0, max(0.1, (min(cpu, wall) - profile.overheads.next_seconds) / cpu))


def priced_at(node: Node, pipeline: Pipeline, profile: Profile) -> OperatorProfile | None:
    """The price of an operator: of a map that gathers rows that of the source that has them, of a part of a function
    its share of what the whole was measured to cost.
    """
    if node.function is not None and node.function.part_of:
        return price_of_part(node.id, node.function, profile)
    return profile.operator(pipeline.source_of(node.id).id if node.gathers else node.id)


def _called(node: Node) -> tuple[Node, ...]:
    """The operator, and those whose functions an edit has it call too, as they were measured."""
    first = node.function.first if node.function is not None else ()
    return (node, *(replace(node, id=name, function=None) for name in first))


def _together(work: Iterable[Work]) -> Work:
    """What operators take that became one: the first of them."""
    parts = tuple(work)
    return Work(parts[0].node, sum(part.seconds for part in parts), sum(part.cpu_seconds for part in parts))


def _work(node: Node, measured: OperatorProfile | None, count: float, spin_seconds: float, working: float) -> Work:
    """What an operator takes per element of the output, of its thread and of the processors.

    Where waiting was measured apart, the time of its thread less the waiting is work; CPU time beyond that is of
    other threads: kernels that use several, or, up to `spin_seconds` a call, threads that looked for work.
    """
    if measured is not None and measured.on_batch_seconds is not None and _on_batches(node):
        return Work(node.id, count * measured.on_batch_seconds, count * measured.on_batch_seconds)
    share = share_kept(node, measured)
    if share is not None:
        work = _work(replace(node, function=None), measured, count, spin_seconds, working)
        return Work(node.id, share * work.seconds, share * work.cpu_seconds)
    if measured is None or measured.cpu_seconds is None:
        waiting = measured.wall_seconds if measured is not None and measured.wall_seconds is not None else 0.0
        return Work(node.id, count * max(waiting, OVERHEAD_SECONDS), count * OVERHEAD_SECONDS)
    if measured.waiting_seconds is None or measured.wall_seconds is None:
        cpu_seconds = working * measured.cpu_seconds
        return Work(node.id, count * max(cpu_seconds, working * (measured.wall_seconds or 0.0)), count * cpu_seconds)
    beyond = measured.cpu_seconds - measured.wall_seconds
    cpu_seconds = measured.cpu_seconds - min(max(0.0, beyond), spin_seconds)
    return Work(node.id, count * measured.wall_seconds, count * cpu_seconds)


def _parallelism(node: Node, cores: float, defaults_on: bool) -> float | None:
    """Threads of a parallel operator; None for one that runs in the thread of its consumer."""
    argument = facts(node.op).parallel_argument
    value = node.argument(argument) if argument else None
    if value is None:
        automatic = defaults_on and node.op == "map" and node.function is not None and node.function.stateless
        return max(1.0, cores) if automatic else None
    limit = float("inf")
    cycle = node.argument("cycle_length")
    if node.op == "interleave" and isinstance(cycle, int) and cycle > 0:
        limit = float(cycle)
    wanted = max(1.0, cores) if value == AUTOTUNE or not isinstance(value, int) else float(value)
    return min(wanted, limit)


def _map_fuses(node: Node, pipeline: Pipeline) -> bool:
    """A map that is fused with the batch right behind it: also where it stays serial, a border to what follows.

    A serial one is none to what stands above: it makes one call at a time, and asks for the next element when that has
    ended (measured: two maps that wait 4 ms each take 8.4 ms per element).
    """
    below = pipeline.consumers(node.id)
    return node.op == "map" and len(below) == 1 and _plain_batch(below[0])


def fused(pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """Pairs of a map and the batch that TensorFlow's default optimisations make one operator of it with."""
    if not defaults_apply(pipeline):
        return ()
    return tuple(
        (node.id, pipeline.consumers(node.id)[0].id) for node in pipeline if _map_fuses(node, pipeline)
    )


def _plain_batch(node: Node) -> bool:
    return node.op == "batch" and node.argument("num_parallel_calls") is None


def _fused_with(node: Node, segments: list[Segment], pipeline: Pipeline) -> int | None:
    """The position of the map a batch is fused into."""
    if not _plain_batch(node) or len(node.inputs) != 1 or pipeline[node.inputs[0]].op != "map":
        return None
    return next(
        (position for position, segment in enumerate(segments) if node.inputs[0] in segment.nodes), None
    )


def behind_cache(pipeline: Pipeline) -> frozenset[str]:
    """Operators that run in the first epoch only, because every way to the output passes a cache."""
    needed = {pipeline.output.id}
    for node in reversed(pipeline.nodes):
        if node.id in needed and node.op != "cache":
            needed |= set(node.inputs)
    return frozenset(node.id for node in pipeline if node.id not in needed)
