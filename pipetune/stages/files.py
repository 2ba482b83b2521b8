"""After the verdict: which files the pipeline reads, how fast they can be read, and whether that is the limit."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile, Profile
from pipetune.core.settings import Settings
from pipetune.core.storage import FileUse, Sweep
from pipetune.stages.study import Study
from pipetune.tf.measure import cold, file_reads, reading, small_files, source_reads

_SHARE = 0.08  # of the budget, for all of this step
_MOST_SECONDS = 5.0
_ALONE_SECONDS = 2.0  # without trials
_FEWEST_SECONDS = 0.8  # below that no sweep is run
_SLOW_FACTOR = 2.5
_OBSERVED = 0.2  # share of the time in which the running pipeline is watched
_NOTHING_BYTES = 512  # per second: what a process reads even if it reads no data
_SHARD = re.compile(r"-\d+-of-\d+$")  # after the suffix, as in the file names of TensorFlow Datasets
_READ_AGAIN = 0.5  # with less than this share from storage, most of a cold window was warm


def measure_files(study: Study, profile: Profile) -> Profile:
    """Returns the profile, also in the session, with the files the pipeline reads. Takes a small part of the budget."""
    runner, settings, source = study.runner, study.settings, study.subject.source
    named, node = runner.files, source_reads.source_of(source)
    use = FileUse(
        files=len(named.paths),
        bytes_total=sum(map(_size, named.paths)),
        complete=named.complete,
        directory=_common_folder(named.paths),
        kinds=_kinds(named.paths),
        remote=tuple(scheme for scheme, _ in named.remote),
        remote_files=sum(count for _, count in named.remote),
        cold=settings.cold,
        filesystems=cold.filesystems(named.paths),
    )
    if use.files or use.remote or any(map(_may_read, source.pipeline)):
        seconds = _seconds(settings, profile.operator(node.id) if node is not None else None)
        with study.journal.phase("files", "reading the files at several parallelisms"):
            if use.files:
                use = replace(use, residency=cold.residency(named.paths, cold=settings.cold))
            use = _watched(study, use, profile, seconds=_OBSERVED * seconds)
            if use.files or node is not None:
                use = _swept(study, use, profile, node, seconds=(1 - _OBSERVED) * seconds)
            if use.many_small and any(map(_opens_one, source.pipeline)):
                use = replace(use, small=small_files.compare(named.paths, folder=study.settings.out))
    profile = replace(profile, files=use)
    runner.profile = profile
    study.journal.dataset(profile=profile)
    return profile


def _seconds(settings: Settings, reader: OperatorProfile | None) -> float:
    """Returns the time for this step; more for a slow source, as parallel reads help where reads wait."""
    slow = reader is not None and (reader.wall_seconds or 0.0) > source_reads.SLOW_SECONDS
    seconds = min(_MOST_SECONDS, _SHARE * settings.budget_seconds) if settings.trials else _ALONE_SECONDS
    return (_SLOW_FACTOR if slow else 1.0) * seconds / (5 if settings.quick else 1)


def _watched(study: Study, use: FileUse, profile: Profile, *, seconds: float) -> FileUse:
    """Returns `use` with the bytes that the pipeline reads per element, and the corresponding rates."""
    runner = study.runner
    runner.make_cold()
    try:
        seen = reading.observe(runner.source.dataset, seconds=max(0.1, seconds))
    except RunFailed as failure:
        return replace(use, notes=(*use.notes, str(failure)))
    finally:
        runner.restore()
    size = seen.bytes_per_element
    if size is not None and size * seen.elements < _NOTHING_BYTES * seen.seconds:
        size = None
    consumer = profile.consumer
    bound = study.settings.step_time_seconds or consumer.bound_seconds
    notes = list(use.notes)
    if use.cold and size and (seen.storage_bytes_per_element or 0.0) < _READ_AGAIN * size:
        notes.append("the files are read again and again in a window: only the first time they came from storage")
    return replace(
        use,
        bytes_per_element=size,
        storage_bytes_per_element=seen.storage_bytes_per_element,
        opened=len(seen.opened - {os.path.realpath(path) for path in runner.files.paths}),
        needed=_rate(size, bound),
        reached=_rate(size, consumer.input_seconds),
        reached_training=_rate(size, consumer.real_seconds),
        notes=tuple(notes),
    )


def _swept(
    study: Study, use: FileUse, profile: Profile, node: Node | None, *, seconds: float
) -> FileUse:
    """Returns `use` with the sweeps that finish in time."""
    if seconds < _FEWEST_SECONDS:
        return replace(use, notes=(*use.notes, "the budget is too short for a sweep of parallel reads"))
    before = study.runner.make_cold if use.cold else None
    paths, seed = study.runner.files.paths, study.settings.seed
    sweeps: list[Callable[[float], Sweep | None]] = []
    if paths:
        sweeps.append(
            lambda limit: file_reads.sweep_files(paths, limit_seconds=limit, seed=seed, before=before)
        )
    if node is not None:
        sweeps.append(
            lambda limit: source_reads.sweep_source(
                study.subject.source,
                node,
                profile.operator(node.id),
                limit_seconds=limit,
                seed=seed,
                before=before,
            )
        )
    found = [sweep(seconds / len(sweeps)) for sweep in sweeps]
    study.runner.restore()
    late = ("a sweep of parallel reads could not be brought to its end in time",) if None in found else ()
    return replace(use, sweeps=tuple(one for one in found if one is not None), notes=(*use.notes, *late))


def _may_read(node: Node) -> bool:
    """Whether an operator may read files that are not listed: in Python code, or in a function that computes a name."""
    function = node.function
    return (
        node.op in ("from_generator", "opaque")
        or source_reads.opens_readers(node)
        or (function is not None and (function.python or function.reads_files))
    )


def _opens_one(node: Node) -> bool:
    """Whether this map opens a file for each element."""
    return node.op == "map" and node.function is not None and node.function.reads_files


def _rate(size: float | None, seconds: float | None) -> float | None:
    """Bytes per second; None where either is unknown."""
    return None if size is None or not seconds else size / seconds


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _common_folder(paths: Sequence[str]) -> str:
    try:
        return os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    except ValueError:  # no paths
        return ""


def _kinds(paths: Sequence[str], most: int = 3) -> tuple[str, ...]:
    """Returns the most common suffixes of the files."""

    def suffixes() -> Iterator[str]:
        for path in paths:
            suffix = os.path.splitext(_SHARD.sub("", path))[1].lower()
            if suffix:
                yield suffix

    return tuple(suffix for suffix, _ in Counter(suffixes()).most_common(most))
