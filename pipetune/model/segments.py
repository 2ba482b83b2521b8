"""Splits a pipeline into segments: operators that share one thread, and parallel operators; what its caches leave to
the first epoch, and how long it takes until they are full.

Synchronous operators between two asynchronous boundaries (prefetch, parallel map, parallel interleave, parallel
batch, the consumer) run in one thread: a segment. With TensorFlow's default optimizations a stateless serial
map becomes parallel, a map is fused with the batch that follows it, and the output is prefetched, whatever the
script says. Besides the operators' own work, a thread spends time on passing elements on and on starting parallel
calls, and the consumer's thread on taking elements in Python (`Overheads`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pipetune.core.element_counts import element_bytes
from pipetune.core.machine import IDEAL, Overheads
from pipetune.core.operators import CountEffect, operator_facts, runs_pass
from pipetune.core.pipeline import AUTOTUNE, Node, Pipeline, passes_components
from pipetune.core.profile import OperatorProfile, Profile, part_costs
from pipetune.core.time_plan import CACHE_SECONDS

_REPEATABLE = frozenset(
    {"batch", "cache", "copy_to_device", "enumerate", "map", "padded_batch", "prefetch", "prefetch_to_device", "repeat",
     "shard", "shuffle", "skip", "take", "unbatch", "with_options", "zip"}
)  # fmt: skip
"""Operators that take from endless data what they take from as many elements. `unique` and `filter` may find no other
element in it, `concatenate` never comes to its second dataset, and `assert_cardinality` raises."""


def upstream_of_cache(pipeline: Pipeline) -> frozenset[str]:
    """Returns the operators that run in the first epoch only: every path to the output passes through a cache."""
    needed = {pipeline.output.id}
    for node in reversed(pipeline.nodes):
        if node.id in needed and node.op != "cache":
            needed |= set(node.inputs)
    return frozenset(node.id for node in pipeline if node.id not in needed)


def added_caches(edited: Pipeline, original: Pipeline) -> tuple[str, ...]:
    """Returns the ids of the caches that edits have added."""
    return tuple(node.id for node in edited if node.op == "cache" and node.id not in original)


def may_hold_part(pipeline: Pipeline, cache: str) -> bool:
    """Whether a part of the elements, repeated endlessly, may stand for all of them in a cache, given its id."""
    below = pipeline.downstream(cache)
    return not pipeline[cache].argument("filename") and all(node.op in _REPEATABLE for node in below)


def seconds_to_fill(edited: Pipeline, original: Pipeline, epoch_seconds: float | None) -> float | None:
    """Returns how long the caches that edits have added take to be filled for measuring; None if that is unknown.

    Args:
        edited: the edited pipeline.
        original: the pipeline before.
        epoch_seconds: what a pass over all elements takes; None if that is unknown.
    """
    added = added_caches(edited, original)
    if not added:
        return 0.0
    if all(may_hold_part(edited, cache) for cache in added):
        return CACHE_SECONDS if epoch_seconds is None else min(epoch_seconds, CACHE_SECONDS)
    return epoch_seconds


OVERHEAD_SECONDS = 1e-6
"""Minimum cost of passing one element through an operator; used for operators that were not profiled."""

_HANDED_TO_BATCH = 0.3
"""Of `Overheads.buffer_seconds`: what an element costs that a parallel batch takes in one thread and copies in another.
Measured: 0.5 us of 1.7 us, for elements of 100 bytes and of 1 KB."""

RUNTIME = ""
"""Used in place of a node id for work of the runtime between operators, or of the consumer."""

_DEFAULT_OPTIONS = ("experimental_optimization.apply_default_optimizations", "autotune.enabled")


@dataclass(frozen=True)
class Work:
    """Cost of one operator per element of the pipeline's output."""

    node: str
    seconds: float  # thread time, waiting included
    cpu_seconds: float


@dataclass(frozen=True)
class Segment:
    """Operators in one thread (`parallelism` 1), or one parallel operator including a batch fused into it."""

    work: tuple[Work, ...]
    parallelism: float = 1.0
    parallel: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node ids of the operators, sources first."""
        return tuple(dict.fromkeys(work.node for work in self.work if work.node != RUNTIME))

    @property
    def seconds(self) -> float:
        """Thread time per element of the output."""
        return sum(work.seconds for work in self.work)

    @property
    def rate(self) -> float:
        """Maximum rate that the segment allows, in elements of the output per second."""
        return self.parallelism / self.seconds if self.seconds > 0 else float("inf")


def defaults_apply(pipeline: Pipeline) -> bool:
    """Whether TensorFlow's default optimizations are on for the pipeline."""
    return all(pipeline.options.get(name) is not False for name in _DEFAULT_OPTIONS)


def visits(pipeline: Pipeline, profile: Profile) -> dict[str, float]:
    """Returns the elements that each operator outputs per element of the pipeline's output, by node id.

    Uses the measured numbers where they still hold. For operators that an edit inserted, that are called on batches, or
    that get fewer elements than when measured (`_with_fewer_elements`), uses what their consumers take in.
    """
    found: dict[str, float] = {}
    spared = _with_fewer_elements(pipeline, profile)
    for node in reversed(pipeline.nodes):
        measured = profile.operator(node.id)
        as_measured = not _on_batches(node) and node.id not in spared
        if measured is not None and measured.visits is not None and as_measured:
            found[node.id] = measured.visits
            continue
        below = pipeline.consumers(node.id)
        found[node.id] = sum(found[other.id] * inputs_per_output(other, profile) for other in below) if below else 1.0
    return found


def _with_fewer_elements(pipeline: Pipeline, profile: Profile) -> frozenset[str]:
    """Operators that get fewer elements than when measured: one that drops elements was moved upstream of them."""
    written = {one.node: place for place, one in enumerate(profile.operators)}
    return frozenset(
        below.id
        for node in pipeline
        if node.id in written
        and operator_facts(node.op).count is CountEffect.FEWER
        and not operator_facts(node.op).batches
        for below in pipeline.downstream(node.id)
        if written.get(below.id, written[node.id]) < written[node.id]
    )


def _on_batches(node: Node) -> bool:
    """Whether an edit calls the function on batches: the operator then has another position and another cost."""
    return node.function is not None and node.function.called_on_batches


def remaining_cost_share(node: Node, measured: OperatorProfile | None) -> float | None:
    """Returns the measured share of the cost that the variant of the function has; None if it was not measured."""
    shares = measured.variant_shares if measured is not None else None
    return shares.get(node.function.form) if shares and node.function is not None else None


def inputs_per_output(node: Node, profile: Profile) -> float:
    """Returns the number of input elements per output element of an operator."""
    measured = profile.operator(node.id)
    if measured is not None and measured.ratio is not None:
        return measured.ratio
    size = node.argument("batch_size")
    return float(size) if operator_facts(node.op).batches and isinstance(size, int) and size > 0 else 1.0


def split_into_segments(
    pipeline: Pipeline, profile: Profile, cores: float, *, overheads: Overheads = IDEAL
) -> tuple[Segment, ...]:
    """Returns the segments and parallel operators of a pipeline, sources first; the last is the consumer's thread.

    Operators upstream of a cache cost nothing: rates are those of the epochs after the first. Branches that join (zip,
    choose) run in the thread of the operator that joins them.

    Args:
        pipeline: the original pipeline, or one with edits applied.
        profile: costs of the original pipeline.
        cores: cores that AUTOTUNE may use: those available to the process, not those of the host.
        overheads: costs of the runtime on this machine; by default none.
    """
    on = defaults_apply(pipeline)
    counts = visits(pipeline, profile)
    # The measured cost of the map that gathers rows includes the operators that pass the row indices to it.
    outside = upstream_of_cache(pipeline) | pipeline.row_index_operators
    working = _useful_cpu_share(profile)
    segments: list[Segment] = []
    threads: dict[str, _Thread] = {}  # by node: the thread it runs in, until that is closed

    def close(thread: _Thread, more: Iterable[Work] = ()) -> None:
        """Ends a thread at a boundary and records its work per output element, including waking other threads."""
        work = (*thread.work, *more)
        # At most one wake-up for each element, and never more time than the thread's own work takes.
        waking = min(thread.crossings * overheads.wake_seconds, sum(part.seconds for part in work))
        if work:
            segments.append(Segment((*work, *_runtime(waking + thread.crossings * overheads.buffer_seconds))))

    for node in pipeline:
        above = _join_threads(threads.pop(name) for name in node.inputs if name in threads)
        count = counts[node.id]
        if node.id in outside:
            threads[node.id] = _Thread()
            continue
        if on and runs_pass(pipeline.options, "noop_elimination") and passes_components(node):
            threads[node.id] = above
            continue
        parts = (
            _work(one, operator_cost(one, pipeline, profile), count, overheads.spin_seconds, working)
            for one in _with_fused_operators(node)
        )
        work = _sum_work(parts, node, profile)
        fuses = on and _map_fuses(node, pipeline)
        each = work.seconds / count if count else 0.0
        beyond, busy = overheads.extra_call_seconds(each, fused=fuses)
        calls = _runtime(count * beyond, count * busy) if node.op != "interleave" else ()
        parallelism = _parallelism(node, cores, on and runs_pass(pipeline.options, "map_parallelization"))
        fused = _fused_with(node, segments, pipeline) if on else None
        if fused is not None:
            into = segments[fused]
            segments[fused] = Segment((*into.work, work), into.parallelism, into.parallel)
            threads[node.id] = _Thread((), count)
        elif parallelism is not None:
            rows = count * inputs_per_output(node, profile) if node.op == "batch" else 0.0
            close(above, _runtime(rows * _HANDED_TO_BATCH * overheads.buffer_seconds))
            # An interleave's threads read ahead without a call per element, but only one at a time hands an element on,
            # and taking it costs as much. (Measured with 2 threads: elements of 16 and 129 us take 13 and 71 us.)
            handing = count * overheads.interleave_seconds if node.op == "interleave" else 0.0
            calls = (*calls, *_runtime(parallelism * handing, 0.0))
            segments.append(Segment((work, *calls), parallelism, True))
            threads[node.id] = _Thread(_runtime(handing)) if node.op == "interleave" else _Thread((), count)
        elif node.op == "prefetch":
            close(_Thread(above.work, above.crossings + count))
            threads[node.id] = _Thread((), count)
        elif fuses:
            close(above, (work, *calls))
            threads[node.id] = _Thread()
        else:
            threads[node.id] = _Thread((*above.work, work), above.crossings)
    last = threads.get(pipeline.output.id, _Thread())
    if on and last.work:  # TensorFlow appends a prefetch to an output that is not asynchronous
        close(_Thread(last.work, last.crossings + 1))
        last = _Thread((), 1.0)
    # A thread that is faster than the consumer waits for it at each element, and the consumer has to wake it.
    # (Measured: taking batches from a cache takes 18 us, behind a prefetch 46 us, however large its buffer is.)
    waited_for = not last.work and bool(segments) and segments[-1].rate * overheads.next_seconds > 1
    close(last, _runtime(overheads.next_seconds + (overheads.notify_seconds if waited_for else 0.0)))
    return tuple(segments)


@dataclass(frozen=True)
class _Thread:
    """A thread under construction: its work, and elements it moves into or out of buffers, per output element."""

    work: tuple[Work, ...] = ()
    crossings: float = 0.0


def _join_threads(threads: Iterable[_Thread]) -> _Thread:
    found = tuple(threads)
    return _Thread(tuple(work for one in found for work in one.work), sum(one.crossings for one in found))


def _runtime(seconds: float, cpu_seconds: float | None = None) -> tuple[Work, ...]:
    """Work of the runtime, if there is any; without `cpu_seconds` all of the time is CPU time."""
    return (Work(RUNTIME, seconds, seconds if cpu_seconds is None else cpu_seconds),) if seconds > 0 else ()


def _useful_cpu_share(profile: Profile) -> float:
    """The share of the input's CPU time at parallelism 1 that was work, where waiting was not measured separately.

    One thread cannot do more work than wall time passes: the rest is idle threads that spun for work. The cost of
    taking the elements belongs to the consumer, not to the operators. Differences contain neither: then all is work, of
    operators whose cost is the runtime's, too, for that is the time on their own clocks.
    """
    if any(one.waiting_seconds is not None for one in profile.operators):
        return 1.0
    cpu, wall = profile.input_cpu_seconds, profile.input_wall_seconds
    if profile.overheads is None or not cpu or not wall:
        return 1.0
    return min(1.0, max(0.1, (min(cpu, wall) - profile.overheads.next_seconds) / cpu))


def operator_cost(node: Node, pipeline: Pipeline, profile: Profile) -> OperatorProfile | None:
    """Returns the measured cost of an operator; None if it was not measured.

    For a map that gathers rows, this is the cost of the source that holds them; for a part of a function that was split
    in two, its share of the cost of the whole function.
    """
    if node.function is not None and node.function.part_of:
        return part_costs(node.id, node.function, profile)
    measured = profile.operator(pipeline.source_of(node.id).id if node.gathers_rows else node.id)
    if node.op != "shuffle" or measured is None or measured.cpu_seconds is None:
        return measured
    share = _shuffled_share(node, measured, pipeline, profile)
    least = min(OVERHEAD_SECONDS, measured.cpu_seconds)
    cpu_seconds = least + share * (measured.cpu_seconds - least)
    lost = measured.cpu_seconds - cpu_seconds
    return replace(measured, cpu_seconds=cpu_seconds, wall_seconds=max(0.0, (measured.wall_seconds or 0.0) - lost))


def _shuffled_share(node: Node, measured: OperatorProfile, pipeline: Pipeline, profile: Profile) -> float:
    """Returns the share of a shuffle's cost beyond passing elements on that is left where the shuffle is now.

    It is that of memory: a map that fills a large buffer writes each element where none has been for long, and a batch
    reads it from there (measured: 10 us for 3 KB in a buffer of 13 MB). So it grows with the bytes, and elements that a
    cache holds take none of it.
    """
    above = pipeline[node.inputs[0]]
    while operator_facts(above.op).same_elements and above.op != "cache":
        above = pipeline[above.inputs[0]]
    if above.op == "cache":
        return 1.0 if profile.operator(above.id) is not None else 0.0
    size = element_bytes(pipeline, profile, above.id)
    return min(1.0, size / measured.bytes_out) if size is not None and measured.bytes_out else 1.0


def _with_fused_operators(node: Node) -> tuple[Node, ...]:
    """The operator, and the operators whose functions were fused into its own, as they were measured."""
    function = node.function
    if function is None or not function.first:
        return (node,)
    names = (node.id, *function.first)
    forms = (function.called_forms[-1], *function.called_forms[:-1])
    return tuple(
        replace(node, id=name, function=replace(function, form=form, first=(), called_forms=()))
        for name, form in zip(names, forms, strict=True)
    )


def _sum_work(work: Iterable[Work], node: Node, profile: Profile) -> Work:
    """Adds up the work of operators fused into `node`, of which the measured share remains, as work of the first."""
    measured = remaining_cost_share(node, profile.operator(node.id)) if node.function and node.function.first else None
    share, parts = 1.0 if measured is None else min(1.0, measured), tuple(work)
    seconds, cpu_seconds = sum(part.seconds for part in parts), sum(part.cpu_seconds for part in parts)
    return Work(parts[0].node, share * seconds, share * cpu_seconds)


def _work(node: Node, measured: OperatorProfile | None, count: float, spin_seconds: float, working: float) -> Work:
    """Thread time and CPU time that an operator takes per element of the output, for which it outputs `count` elements.

    Where waiting was measured separately, CPU time beyond the wall time is that of other threads: kernels that use
    several threads, or, up to `spin_seconds` per call, idle threads that spun for work. The latter is not counted.
    Elsewhere the share `working` of the CPU time is work.
    """
    if measured is not None and measured.on_batch_seconds is not None and _on_batches(node):
        return Work(node.id, count * measured.on_batch_seconds, count * measured.on_batch_seconds)
    share = remaining_cost_share(node, measured)
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


def _parallelism(node: Node, cores: float, automatic: bool) -> float | None:
    """Threads of a parallel operator, with `automatic` also of a stateless map; None in the thread of its consumer."""
    calls = parallel_calls(node, cores)
    if not calls:
        stateless_map = node.op == "map" and node.function is not None and node.function.stateless
        made_parallel = automatic and stateless_map and node.argument("synchronous") is not True
        return max(1.0, cores) if made_parallel else None
    cycle = node.argument("cycle_length")
    if node.op == "interleave" and isinstance(cycle, int) and cycle > 0:
        return min(calls, float(cycle))
    return calls


def parallel_calls(node: Node, cores: float) -> float:
    """Returns the parallel calls of an operator that are in flight; 0 for a serial one."""
    name = operator_facts(node.op).parallel_argument or "num_parallel_calls"
    # That of `tf.data.experimental` is always parallel: it has a thread for each reader.
    value = node.argument("cycle_length" if node.op == "parallel_interleave" else name)
    if value is None:
        return 0.0
    return max(1.0, cores) if value == AUTOTUNE or not isinstance(value, int) else float(value)


def _map_fuses(node: Node, pipeline: Pipeline) -> bool:
    """Whether a map is fused with the batch that directly follows it: a boundary to what is downstream, even if serial.

    A serial one is no boundary to what is upstream: it makes one call at a time, and requests the next element when the
    call has ended (measured: two maps that wait 4 ms each take 8.4 ms per element).
    """
    below = pipeline.consumers(node.id)
    return node.op == "map" and len(below) == 1 and _plain_batch(below[0])


def fused_map_batch_pairs(pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """Returns the node ids of each map and the batch that TensorFlow's default optimizations fuse it with."""
    if not defaults_apply(pipeline):
        return ()
    return tuple((node.id, pipeline.consumers(node.id)[0].id) for node in pipeline if _map_fuses(node, pipeline))


def _plain_batch(node: Node) -> bool:
    return node.op == "batch" and node.argument("num_parallel_calls") is None


def _fused_with(node: Node, segments: list[Segment], pipeline: Pipeline) -> int | None:
    """The index in `segments` of the map that a batch is fused into; None if there is none."""
    if not _plain_batch(node) or len(node.inputs) != 1 or pipeline[node.inputs[0]].op != "map":
        return None
    return next((position for position, segment in enumerate(segments) if node.inputs[0] in segment.nodes), None)
