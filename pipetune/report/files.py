"""Files: which the pipeline reads, how fast it wants them, and whether storage is the limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pipetune.core.session import DatasetResult
from pipetune.core.storage import FileUse, Sweep, SweepLevel, SweepReader
from pipetune.report import words
from pipetune.report.blocks import Bar, Bars, Block, Facts, Part, Sentence
from pipetune.report.places import Places
from pipetune.report.words import Fact, Figure, interval

_AT_THE_LIMIT = 0.8  # of what storage delivers: who reads that much waits for it
_CACHE = "the page cache"


def storage_sentence(result: DatasetResult) -> str:
    """That storage is the limit, where it is."""
    use = result.profile.files if result.profile else None
    sentence, is_limit = _limit(use) if use is not None else ("", False)
    return words.sentence(sentence) if is_limit else ""


def files(result: DatasetResult, places: Places) -> Iterator[Block]:
    """Which files are read, how fast, and what storage delivers; nothing where they were not examined."""
    use = result.profile.files if result.profile else None
    if use is None:
        return
    yield Sentence(" ".join(words.sentence(part) for part in (_which(use, places), _limit(use)[0]) if part))
    if not (use.files or use.remote_files or use.opened):
        return
    yield Sentence(words.sentence(_warm(use)), quiet=True)
    if facts := tuple(_facts(use)):
        yield Facts(facts)
    for sweep in use.sweeps:
        yield _sweep(sweep)
    yield from (Sentence(places.sentence(note), quiet=True) for note in use.notes)


def _which(use: FileUse, places: Places) -> str:
    parts = []
    if use.files:
        number = words.count(use.files, "file") if use.complete else f"at least {words.count(use.files, 'file')}"
        kinds = f" ({words.clean(', '.join(use.kinds))})" if use.kinds else ""
        folder = places.file(use.directory)
        parts.append(f"{number}{kinds}, {words.byte_size(use.bytes_total)}" + (f", in {folder}" if folder else ""))
    if use.remote_files:
        schemes = words.clean(words.joined([f"{scheme}://" for scheme in use.remote]))
        parts.append(f"{words.count(use.remote_files, 'name')} under {schemes}, which are not local")
    if use.opened:
        parts.append(f"{words.count(use.opened, 'other file')} seen open while it ran")
    return f"reads {words.joined(parts)}" if parts else "reads no files"


def _limit(use: FileUse) -> tuple[str, bool]:
    """Whether storage is the limit, of the input alone or of the training, in a sentence and as a fact."""
    ceiling, reached, needed = use.storage_bytes_per_second, use.reached, use.needed
    if ceiling is None or reached is None:
        return "", False
    source, what, it = (_CACHE, "reading the files", _CACHE) if _in_memory(use) else ("storage", "storage", "it")
    delivers = f"{source} delivers {_speed(ceiling)}"
    if reached >= _AT_THE_LIMIT * ceiling:
        reads = f"the input alone reads {_speed(reached)}"
        return f"{what} is the limit: {it} delivers {_speed(ceiling)}, and {reads}", True
    if needed is not None and needed > ceiling:
        return f"{delivers}, less than the {_speed(needed)} the model could take: in the end {what} is the limit", True
    wanted = f"the model could take {_speed(needed)}" if needed is not None else f"the input reads {_speed(reached)}"
    return f"{delivers}, {wanted}: {what} is not the limit" if max(needed or 0.0, reached) > 0 else "", False


def _in_memory(use: FileUse) -> bool:
    """Whether no byte comes from storage, whose speed is then not known."""
    return not use.cold and not use.remote and (use.residency.share or 0.0) >= 1


def _warm(use: FileUse) -> str:
    seen = use.residency
    why = f": {words.clean(seen.why)}" if seen.why else ""
    if use.cold:
        if seen.left is None:
            return f"whether the page cache was dropped cannot be seen{why}"
        if seen.why:
            return f"before each window the page cache was to be dropped, but {words.clean(seen.why)}"
        return f"before each window the files were dropped from the page cache ({words.percent(seen.left)} stayed)"
    if seen.share is None:
        return f"whether the files were in memory is not known{why}"
    return f"while measured, {words.percent(seen.share)} of the files was in memory (page cache); --cold drops it"


def _facts(use: FileUse) -> Iterator[Fact]:
    source = _CACHE.capitalize() if _in_memory(use) else "Storage"
    if use.bytes_per_element is not None:
        stored = use.storage_bytes_per_element
        note = "" if stored is None else f"{words.byte_size(stored)} of it from storage"
        yield Fact("Read per element of the output", words.byte_size(use.bytes_per_element), note)
    for label, value, note in (
        ("Needed", use.needed, "so that the model never waits"),
        ("Reached", use.reached, "current input alone"),
        ("Reached in training", use.reached_training, "current pipeline"),
        (f"{source} delivers", use.storage_bytes_per_second, "the files' bytes, nothing done with them"),
    ):
        if value is not None:
            yield Fact(label, _speed(value), note)
    if use.filesystems:
        yield Fact("File system", words.clean(", ".join(use.filesystems)))


def _sweep(sweep: Sweep) -> Bars:
    rates = [_rate(level, sweep.reader) for level in sweep.levels]
    best = max((rate.value or 0.0 for rate in rates), default=0.0) or 1.0
    bars = tuple(
        Bar(
            words.count(level.parallel, "read"),
            rate.text if rate.known else "not measured",
            (Part("input", (rate.value or 0.0) / best),),
            marked=level.parallel == sweep.knee,
        )
        for level, rate in zip(sweep.levels, rates, strict=True)
    )
    bytes_alone = sweep.reader is SweepReader.FILES
    title = "The bytes of the files, without any processing" if bytes_alone else "The source of the pipeline alone"
    return Bars(bars, sentence=f"{title}: {_knee(sweep)}.")


def _knee(sweep: Sweep) -> str:
    cold = " (cold)" if sweep.cold else ""
    last = sweep.levels[-1].parallel
    if last == 1:
        return f"there is one file, so it is read by one reader{cold}; several files could be read at once"
    if sweep.knee is None:
        return f"still rising at {words.count(last, 'parallel read')}{cold}"
    harm = "; more make it slower" if sweep.falling else ""
    if sweep.knee == 1:
        return f"one read at a time is as fast as any number{cold}{harm}"
    return f"from {sweep.knee} parallel reads on, more gain nothing{cold}{harm}"


def _rate(level: SweepLevel, reader: SweepReader) -> Figure:
    """Bytes of files; of the pipeline's own source its elements, whatever it makes of the bytes."""
    if reader is SweepReader.FILES:
        return interval(level.bytes_per_second, _speed)
    found = interval(level.elements_per_second, words.rate)
    size = level.bytes_per_second
    return found if size is None else replace(found, basis=f"{_speed(size.median)}; {found.basis}")


def _speed(value: float) -> str:
    return f"{words.byte_size(value)}/s"
