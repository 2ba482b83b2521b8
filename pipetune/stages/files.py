"""The files that a pipeline reads: their sizes, and how fast they are read from cache and from storage."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pipetune.core.measurement import RunFailed
from pipetune.core.pipeline import Node
from pipetune.core.profile import OperatorProfile, Profile
from pipetune.core.results import StoredPrefix
from pipetune.core.storage import FileUse, Sweep, SweepReader
from pipetune.core.time_plan import FILE_READS, READ_SWEEPS, TimePlan
from pipetune.measure import files, source_reads
from pipetune.pipelines.element_counting import count_elements
from pipetune.rewrites.cache_places import best_position, describe_saved_dataset, epochs_to_break_even, storage_rate
from pipetune.stages.study import Study, rule_context

_FEWEST_SECONDS = 0.8  # below that no sweep is run
_NOTABLE_SHARE = 0.05  # of the input's time: reading in parallel saves less than that where it takes less
_SLOW_FACTOR = 2.5  # on the time if single reads are slow, by judgement: with less, windows hold too few elements
_OBSERVED = 0.2  # share of the time in which the running pipeline is watched
_IDLE_BYTES = 512  # per second: what a process reads even if it reads no data
_SHARD = re.compile(r"-\d+-of-\d+$")  # after the suffix, as in the file names of TensorFlow Datasets
_MIN_STORAGE_SHARE = 0.5  # with less than this share from storage, most of a cold window was warm


def measure_files(study: Study, profile: Profile) -> Profile:
    """Returns the profile, also in the session, with the files the pipeline reads. Takes a small part of the budget.

    Sweeps of parallel reads are run only if reading may limit the input, since plans then depend on them: always that
    of the pipeline's own source, and that of the files alone unless all of them are in memory.
    """
    runner, settings, source = study.runner, study.settings, study.subject.source
    named, node = runner.files, source_reads.reading_operator(source)
    folders = {os.path.dirname(os.path.abspath(path)) for path in named.paths}
    use = FileUse(
        files=len(named.paths),
        bytes_total=sum(map(_size, named.paths)),
        complete=named.complete,
        directory=os.path.commonpath(folders) if folders else "",
        kinds=_kinds(named.paths),
        remote=tuple(scheme for scheme, _ in named.remote),
        remote_files=sum(count for _, count in named.remote),
        cold=settings.cold,
        filesystems=files.filesystems(named.paths),
    )
    if use.files or use.remote or any(map(_may_read, source.pipeline)):
        seconds = _seconds(study.time_plan, profile.operator(node.id) if node is not None else None)
        with study.journal.phase("files", "reading the files"):
            if use.files:
                use = replace(use, residency=files.residency(named.paths, cold=settings.cold))
            use = _with_observed_reads(study, use, profile, seconds=_OBSERVED * seconds)
            if (use.files or node is not None) and _reading_may_limit(use, profile, node):
                readers = tuple(SweepReader) if _storage_may_limit(use) else (SweepReader.SOURCE,)
                use = _with_sweeps(study, use, profile, node, readers=readers, seconds=(1 - _OBSERVED) * seconds)
            maps = (node.function for node in source.pipeline if node.op == "map")
            if use.has_many_small_files and any(one is not None and one.reads_files for one in maps):
                use = replace(use, small=files.compare(named.paths, folder=study.settings.out))
    return study.store_profile(replace(profile, files=use))


def sweep_reads(study: Study, profile: Profile) -> Profile:
    """Returns the profile, also in the session, with the sweeps that were not needed before, if time is left."""
    use, node = profile.files, source_reads.reading_operator(study.subject.source)
    if use is None or not (use.files or node is not None):
        return profile
    readers = tuple(SweepReader)
    if _reading_may_limit(use, profile, node):  # what plans depend on was tried before
        readers = () if _storage_may_limit(use) else (SweepReader.FILES,)
    if not readers:
        return profile
    seconds = study.time_plan.seconds_for(READ_SWEEPS)
    if seconds < _FEWEST_SECONDS:
        return profile
    with study.journal.phase("files", "reading the files at several parallelisms"):
        use = _with_sweeps(study, use, profile, node, readers=readers, seconds=seconds)
    return study.store_profile(replace(profile, files=use))


def _reading_may_limit(use: FileUse, profile: Profile, node: Node | None) -> bool:
    """Whether reading may limit the input: it takes a notable share of the time, or not all files are in memory."""
    reader, input_seconds = profile.operator(node.id) if node is not None else None, profile.input_wall_seconds
    if reader is None or reader.wall_seconds is None or reader.visits is None or not input_seconds:
        return True
    if use.cold or use.remote or (use.residency.share is not None and use.residency.share < 1):
        return True
    return reader.visits * reader.wall_seconds > _NOTABLE_SHARE * input_seconds


def _storage_may_limit(use: FileUse) -> bool:
    """Whether files may be read from storage; where all are in memory, the rate of reading them says nothing of it."""
    return use.cold or bool(use.remote) or use.residency.share is None or use.residency.share < 1


def _seconds(time_plan: TimePlan, reader: OperatorProfile | None) -> float:
    """Returns the time for this step; more for a slow source, as parallel reads help where reads wait."""
    slow = reader is not None and (reader.wall_seconds or 0.0) > source_reads.SLOW_SECONDS
    return (_SLOW_FACTOR if slow else 1.0) * time_plan.seconds_for(FILE_READS)


def _with_observed_reads(study: Study, use: FileUse, profile: Profile, *, seconds: float) -> FileUse:
    """Returns `use` with the bytes that the pipeline reads per element, and the corresponding rates."""
    runner = study.runner
    runner.drop_file_caches()
    try:
        with runner.measuring():
            seen = source_reads.observe(runner.cut.source.dataset, seconds=max(0.1, seconds))
    except RunFailed as failure:
        return replace(use, notes=(*use.notes, str(failure)))
    size = seen.bytes_per_element
    if size is not None and size * seen.elements < _IDLE_BYTES * seen.seconds:
        size = None
    consumer = profile.consumer
    bound = study.settings.step_time_seconds or consumer.bound_seconds
    notes = list(use.notes)
    if use.cold and size and (seen.storage_bytes_per_element or 0.0) < _MIN_STORAGE_SHARE * size:
        notes.append("the files are read repeatedly within a window: only the first read came from storage")
    return replace(
        use,
        bytes_per_element=size,
        storage_bytes_per_element=seen.storage_bytes_per_element,
        opened=len(seen.opened_files - {os.path.realpath(path) for path in runner.files.paths}),
        needed=_rate(size, bound),
        reached=_rate(size, consumer.input_seconds),
        reached_training=_rate(size, consumer.real_seconds),
        notes=tuple(notes),
    )


def _with_sweeps(
    study: Study, use: FileUse, profile: Profile, node: Node | None, *, readers: Sequence[SweepReader], seconds: float
) -> FileUse:
    """Returns `use` with the sweeps of these readers that finish in time; `seconds` are for those of all readers."""
    if seconds < _FEWEST_SECONDS:
        return replace(use, notes=(*use.notes, "the budget is too short for a sweep of parallel reads"))
    before = study.runner.drop_file_caches if use.cold else None
    paths, seed = study.runner.files.paths, study.settings.seed
    sweeps: dict[SweepReader, Callable[[float], Sweep | None]] = {}
    if paths:
        sweeps[SweepReader.FILES] = lambda most: files.sweep_files(paths, limit_seconds=most, seed=seed, before=before)
    if node is not None:
        sweeps[SweepReader.SOURCE] = lambda most: source_reads.sweep_source(
            study.subject.source, node, profile.operator(node.id), limit_seconds=most, seed=seed, before=before
        )
    with study.runner.measuring():
        found = [sweeps[reader](seconds / len(sweeps)) for reader in readers if reader in sweeps]
    late = ("a sweep of parallel reads did not finish in time",) if None in found else ()
    done = tuple(one for one in found if one is not None)
    return replace(use, sweeps=(*use.sweeps, *done), notes=(*use.notes, *late))


def _may_read(node: Node) -> bool:
    """Whether an operator may read files that are not listed: in Python code, or in a function that computes a name."""
    function = node.function
    return (
        node.op in ("from_generator", "opaque")
        or source_reads.opens_readers(node)
        or (function is not None and (function.python or function.reads_files))
    )


def _rate(size: float | None, seconds: float | None) -> float | None:
    """Bytes per second; None where either is unknown."""
    return None if size is None or not seconds else size / seconds


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _kinds(paths: Sequence[str]) -> tuple[str, ...]:
    """Returns the most common suffixes of the files."""
    suffixes = (os.path.splitext(_SHARD.sub("", path))[1].lower() for path in paths)
    return tuple(suffix for suffix, _ in Counter(filter(None, suffixes)).most_common(3))


_COUNT_SECONDS = 5.0  # by judgement: data that takes longer to count has an unknown number of elements


def stored_prefix(study: Study) -> StoredPrefix | None:
    """Returns where storing the elements saves most; None if nothing repeats, or if their size is unknown."""
    profile, diagnosis = study.journal.result.profile, study.journal.result.diagnosis
    if profile is None or diagnosis is None:
        return None
    if profile.cardinality is None:  # without trials the elements were not counted
        with study.runner.measuring():
            counted = count_elements(study.subject.source, limit_seconds=_COUNT_SECONDS)
        profile = replace(profile, cardinality=counted)
    context = rule_context(study, profile, diagnosis)
    place = best_position(context)
    if place is None:
        return None
    return StoredPrefix(
        place.node.id,
        place.size_bytes,
        describe_saved_dataset(context, place),
        seconds_to_make=place.saved_seconds_per_epoch,
        storage_bytes_per_second=storage_rate(context),
        epochs_to_pay=epochs_to_break_even(context, place, before_training=True),
    )
