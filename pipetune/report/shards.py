"""Who reads what: the data of an epoch as a band, a row for each worker, and the same in numbers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pipetune.core.distribution import Coverage, ElementIdentity, OriginalSharding, WorkerShare
from pipetune.report import words
from pipetune.report.values import Fact

_TOLD = {
    ElementIdentity.INDEX: "Elements were told apart by a number given to each as it was read.",
    ElementIdentity.DIGEST: "Elements were told apart by their values; equal ones are counted together.",
    ElementIdentity.NAME: "Files were counted, by their names, not what is in them.",
    ElementIdentity.ARITHMETIC: "Nothing was run for this: it follows from how TensorFlow 2.21 divides data.",
}


_MEANINGS = (
    ("once", "the worker gets it; paler, where it gets a part of a stretch"),
    ("read", "it reads that too, and leaves it to others"),
    ("again", "some of it comes more than once"),
    ("never", "comes to no worker"),
)


@dataclass(frozen=True)
class ShardCell:
    """A stretch of the data in a worker's row; places in percent of the width."""

    start: float
    width: float
    share: float  # of the stretch's elements, that this worker gets
    kind: str  # "once", "again" where elements of it come more than once, "never"


@dataclass(frozen=True)
class ShardRow:
    """One worker, or at the end what no worker gets."""

    label: str
    sentence: str
    cells: tuple[ShardCell, ...]
    reads_all: bool = False  # it reads all of the data to get its own part


@dataclass(frozen=True)
class Shards:
    """One number of workers."""

    title: str
    sentence: str
    told: str
    rows: tuple[ShardRow, ...]
    legend: tuple[tuple[str, str], ...]  # kind, what it means: those that are drawn
    borders: tuple[float, ...]  # between files, in percent; () where the stretches are no files
    axis: str  # what the width stands for
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class ShardTable:
    """The numbers of several coverages, a row each; what was not counted shows as a dash."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]  # title, cells


def shard_table(found: Sequence[Shards]) -> ShardTable:
    """All facts of these, in the order in which they are first told."""
    columns = tuple(dict.fromkeys(fact.label for one in found for fact in one.facts))
    cells = [{fact.label: fact.text for fact in one.facts} for one in found]
    return ShardTable(
        columns,
        tuple(
            (one.title, tuple(told.get(column, "-") for column in columns))
            for one, told in zip(found, cells, strict=True)
        ),
    )


@dataclass(frozen=True)
class Division:
    """How the workers of the script's job divide its data, as it is."""

    sentence: str
    shards: Shards | None  # None: it was not counted
    table: ShardTable | None = None


_HOW = {
    "": "Each of {workers} builds the script's pipeline for itself.",
    "FILE": "TensorFlow gives each of {workers} files of its own (auto_shard_policy FILE).",
    "DATA": "Each of {workers} reads all of the data and leaves to the others what is theirs (auto_shard_policy DATA).",
    "OFF": "TensorFlow divides nothing between {workers} (auto_shard_policy OFF).",
}


def division(found: OriginalSharding | None) -> Division | None:
    """What the workers get of the script as it is; None where it has one worker."""
    if found is None:
        return None
    workers = words.count(found.workers, "worker")
    if found.refused:
        return Division(f"TensorFlow cannot divide it between {workers} by {found.policy}: {found.why}.", None)
    if found.coverage is None:
        parts = [f"What each of {workers} gets was not counted.", words.sentence(words.clean(found.why))]
        if found.each_reads_all:
            size = f"{words.count(found.files, 'file')}, {words.byte_size(found.file_bytes or 0)}"
            parts.append(f"Each reads all of {size} (auto_shard_policy {found.policy}).")
        return Division(" ".join(parts), None)
    picture = shards(found.coverage)
    sentence = f"{_HOW[found.policy].format(workers=workers)} {picture.sentence}"
    return Division(sentence, picture, shard_table([picture]))


def shards(found: Coverage, *, title: str = "") -> Shards:
    """The picture of one coverage, and its numbers."""
    ends = [0, *itertools.accumulate(found.cells)]
    total = ends[-1] or 1
    places = [100 * end / total for end in ends]
    workers = [_row(found, index, places) for index in range(len(found.workers))]
    nobody = _nobody(found, places)
    rows = (*workers, *([nobody] if nobody else []))
    drawn = {cell.kind for row in rows for cell in row.cells} | {"read" for row in rows if row.reads_all}
    files = words.count(len(found.cells), "file") if found.by_file else ""
    amount = words.count(found.elements, "file" if found.counted == "files" else "element")
    return Shards(
        title=title or _workers(found),
        sentence=said(found),
        told=_TOLD[found.told_by],
        rows=rows,
        legend=tuple((kind, meaning) for kind, meaning in _MEANINGS if kind in drawn),
        borders=tuple(places[1:-1]) if found.by_file else (),
        axis=f"{amount} in {files}, in the order of their names" if files else f"{amount} in the order of the data",
        facts=facts(found),
    )


def said(found: Coverage) -> str:
    """The coverage in a sentence or two."""
    noun = "file" if found.counted == "files" else "element"
    what = f"the first {words.count(found.elements, noun)}" if found.counted.startswith("first") else ""
    what = what or words.count(found.elements, noun)
    subject, get = _subject(found)
    if found.complete:
        first = f"{subject} {get} {what}, every one once in an epoch"
    else:
        first = f"Of {what} {_amiss(found)}"
        if found.each_everything:
            first += " with the worker that fares worst"
    rest = [first + "."]
    if not found.each_everything and len(found.workers) > 1:
        rest.append(_per_worker(found))
    if found.bytes_read_over_used is not None:
        rest.append(_bytes(found))
    return " ".join(part for part in rest if part)


def facts(found: Coverage) -> tuple[Fact, ...]:
    """What there is to tell besides the picture; nothing that was not counted."""
    rows = [
        Fact("Never", f"{found.never:,}"),
        Fact("Once", f"{found.once:,}"),
        Fact("Twice", f"{found.twice:,}"),
        Fact("More often", f"{found.oftener:,}"),
    ]
    if found.foreign:
        rows.append(Fact("Not of the data", f"{found.foreign:,}"))
    if found.first_out is not None:
        rows.append(Fact("First one out", f"after {words.count(found.first_out, 'step')}"))
    if found.short_batches is not None:
        rows.append(Fact("Short batches", f"{found.short_batches:,}"))
    if len(found.workers) > 1:
        rows.append(Fact("Idle", words.joined([str(index) for index in found.idle_workers]) or "none"))
    if found.read_over_used is not None:
        rows.append(Fact("Read over used", words.ratio(found.read_over_used)))
    if found.bytes_read_over_used is not None:
        rows.append(Fact("Bytes read over used", words.ratio(found.bytes_read_over_used)))
        rows.append(Fact("Bytes read", words.byte_size(found.read_bytes or 0)))
    return tuple(rows)


def _row(found: Coverage, index: int, places: Sequence[float]) -> ShardRow:
    worker = found.workers[index]
    cells = []
    for cell, count in enumerate(worker.cells):
        if count:
            size = found.cells[cell]
            all_of_it = sum(one.cells[cell] for one in found.workers if one.cells)
            again = count if found.each_everything else all_of_it
            kind = "again" if again > size else "once"
            cells.append(ShardCell(places[cell], places[cell + 1] - places[cell], min(1.0, count / size), kind))
    reads_all = bool(worker.read and worker.read > worker.elements and worker.read >= found.elements)
    label = "training process" if found.servers else f"worker {index}"
    return ShardRow(label, _share(worker, reads_all=reads_all), tuple(cells), reads_all)


def _nobody(found: Coverage, places: Sequence[float]) -> ShardRow | None:
    """The stretches of which some elements come to no worker; None where there are none, or none are known."""
    if not found.never or found.each_everything or not all(one.cells for one in found.workers):
        return None
    cells = []
    for cell, size in enumerate(found.cells):
        given = sum(one.cells[cell] for one in found.workers)
        if given < size:
            cells.append(ShardCell(places[cell], places[cell + 1] - places[cell], (size - given) / size, "never"))
    return ShardRow("no worker", words.count(found.never, "element"), tuple(cells)) if cells else None


def _share(worker: WorkerShare, *, reads_all: bool) -> str:
    parts = [words.count(worker.elements, "element")]
    if worker.batches is not None:
        short = f", {worker.short_batches} short" if worker.short_batches else ""
        parts.append(f"{words.count(worker.batches, 'batch')}{short}")
    if reads_all and worker.read is not None:
        parts.append(f"reads {worker.read:,}")
    return "; ".join(parts)


def _per_worker(found: Coverage) -> str:
    noun = "file" if found.counted == "files" else "element"
    if len({(one.elements, one.batches) for one in found.workers}) == 1:
        one = found.workers[0]
        batches = f" in {words.count(one.batches, 'batch')}" if one.batches is not None else ""
        return f"Each gets {words.count(one.elements, noun)}{batches}."
    elements = words.joined([f"{one.elements:,}" for one in found.workers])
    text = f"They get {elements} {noun}s"
    if found.first_out is not None:
        text += f"; the first is out of batches after {words.count(found.first_out, 'step')}"
    return f"{text}."


def _bytes(found: Coverage) -> str:
    """What is read from files, beside what is used of it."""
    read, used = found.read_bytes or 0, found.used_bytes or 0
    who = "The service reads" if found.servers else "They read" if len(found.workers) > 1 else "It reads"
    if read <= used:
        return f"{who} {words.byte_size(read)} of files, all of it used."
    return f"{who} {words.byte_size(read)} of files for {words.byte_size(used)} that are used."


def _amiss(found: Coverage) -> str:
    parts = [
        f"{count:,} {'comes' if count == 1 else 'come'} {often}"
        for count, often in (
            (found.never, "never"),
            (found.once, "once"),
            (found.twice, "twice"),
            (found.oftener, "more often"),
        )
        if count
    ]
    if found.foreign:
        parts.append(f"{found.foreign:,} come that are none of them")
    return words.joined(parts)


def _subject(found: Coverage) -> tuple[str, str]:
    """Who gets the data, and the verb that goes with it."""
    if found.servers:
        of = "each worker of a service of" if found.each_everything else "a service of"
        return f"From {of} {words.count(found.servers, 'worker')} a training process", "gets"
    if found.each_everything:
        return f"Each of {_workers(found)}", "gets"
    return f"{_workers(found)} together", "get"


def _workers(found: Coverage) -> str:
    if found.servers:
        return f"a service of {words.count(found.servers, 'worker')}"
    return words.count(len(found.workers), "worker")
