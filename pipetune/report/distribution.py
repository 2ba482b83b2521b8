"""Distributed training: how the data reach the replicas, the module, and who reads what with it and without it.

Who reads what is a picture, the data of an epoch as a band with a row for each worker, and the same in numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pipetune.core.distribution import (
    COORDINATOR,
    FUNCTION,
    PIPELINE_PER_PROCESS,
    Coverage,
    ElementIdentity,
    InputDistribution,
    InputSkew,
    ModuleCheck,
    OriginalSharding,
    WorkerShare,
)
from pipetune.core.pipeline import SERVICE, Pipeline
from pipetune.core.session import DatasetResult, DistributedResult, Session
from pipetune.report import words
from pipetune.report.blocks import Band, Bands, Block, Cell, Column, Listing, Row, Section, Sentence, Table, numbers
from pipetune.report.places import Places

_DISTINGUISHED_BY = {
    ElementIdentity.INDEX: "Elements were distinguished by a number given to each as it was read.",
    ElementIdentity.DIGEST: "Elements were distinguished by their values; equal ones are counted together.",
    ElementIdentity.NAME: "Files were counted, by their names, not what is in them.",
    ElementIdentity.ARITHMETIC: "Nothing was run for this: it follows from how TensorFlow 2.21 divides data.",
}

_MEANINGS = (
    ("once", "the worker gets it; paler, where it gets a part of a stretch"),
    ("read", "it reads that too, and leaves it to others"),
    ("again", "some of it comes more than once"),
    ("never", "comes to no worker"),
)

_HOW = {
    "": "Each of {workers} builds the script's pipeline for itself.",
    "FILE": "TensorFlow gives each of {workers} files of its own (auto_shard_policy FILE).",
    "DATA": "Each of {workers} reads all of the data and leaves to the others their part (auto_shard_policy DATA).",
    "OFF": "TensorFlow divides nothing between {workers} (auto_shard_policy OFF).",
}


def distribution(session: Session, places: Places) -> Section | None:
    """The written module; without one, how the workers of the script's job divide its data; None without either."""
    form = session.distributed
    if form is not None:
        title = f"Distributed training: {words.clean(form.kind)}"
        return Section("distributed", title, tuple(_form(form, places)), parts=tuple(_parts(form, places)))
    result = session.main_dataset
    division = result.as_written if result is not None else None
    if division is None:
        return None
    sentence = division_sentence(division)
    blocks: Iterable[Block] = (Sentence(sentence),)
    if division.coverage is not None:
        blocks = coverage_blocks([("current", division.coverage, sentence)])
    return Section("distributed", "Who reads what", tuple(blocks))


def _form(form: DistributedResult, places: Places) -> Iterator[Block]:
    unwritten = f"Not written. {places.sentence(form.notes[0])}" if not form.file and form.notes else ""
    yield Sentence(f"{unwritten or _checked_sentence(form)} {places.file(form.file)}".strip())
    yield from (Sentence(places.sentence(line)) for line in form.advice)
    if form.companions:
        beside = words.joined([Path(name).name for name in form.companions])
        yield Sentence(f"Next to it: {words.clean(beside)}.", quiet=True)
    for note in form.notes if form.file else form.notes[1:]:
        yield Sentence(places.sentence(note), quiet=True)
    if form.checks:
        counted = numbers("Elements", "Missing", "Duplicated", "Equal batches", "Dropped", "Filled", "Each once")
        yield Table("One epoch over all workers", (Column("Workers"), *counted), tuple(map(_check, form.checks)))
    if form.as_written is not None and form.as_written.coverage is None:
        yield Sentence(f"The script as it is: {division_sentence(form.as_written)}")


def _parts(form: DistributedResult, places: Places) -> Iterator[Section]:
    found = [("", coverage, coverage_sentence(coverage)) for coverage in form.coverage]
    current = form.as_written
    if current is not None and current.coverage is not None:
        sentence = f"The script as it is: {division_sentence(current)}"
        found.append(("the script as it is", current.coverage, sentence))
    if found:
        yield Section("shares", "Who reads what", tuple(coverage_blocks(found)), folded=True)
    if form.module:
        module = Listing(places.foreign(form.module, lines=True), words.clean(Path(form.file).name) or "module")
        yield Section("module", "The module", (module,), folded=True)


def _check(check: ModuleCheck) -> Row:
    known = check.missing is not None and check.duplicated is not None
    covered = (not check.missing and not check.duplicated) if known else None
    state = {True: Cell("yes", chip="good"), False: Cell("no", chip="bad"), None: Cell(why="not checked")}[covered]
    counts = (check.elements, check.missing, check.duplicated, check.equal_batches, check.dropped, check.filled)
    return Row((Cell(f"{check.workers:,}"), *map(_count, counts), state))


def _count(value: int | None) -> Cell:
    if value is None:
        return Cell(why="not checked")
    return Cell(("no", "yes")[value] if isinstance(value, bool) else f"{value:,}")


def _checked_sentence(form: DistributedResult) -> str:
    covered = [check for check in form.checks if check.missing == 0 and check.duplicated == 0]
    counts = words.joined([f"{check.workers:,}" for check in covered])
    if not form.checks:
        return "Its coverage was not checked."
    if len(covered) < len(form.checks):
        if all(check.missing is None for check in form.checks):
            return "Which elements come was not counted: see the table."
        return "Not every element comes exactly once per epoch: see the table."
    if all(check.everything for check in form.checks):
        return f"Every element once per epoch from each of {counts} workers, checked by running them."
    if all(check.counted == "files" for check in form.checks):
        return f"Every file is read by one of {counts} workers, checked in process; the elements were not counted."
    every = "Every element"
    if any(check.counted == "first elements" for check in form.checks):
        every = f"Each of the first {max(check.elements or 0 for check in form.checks):,} elements"
    return f"{every} once per epoch with {counts} workers, checked in process."


# -- how a strategy takes a dataset to its replicas, and how far apart the inputs of its workers are


def between(result: DatasetResult) -> str:
    """All that stands between the script's operators and the training step; '' where nothing does."""
    parts = [_service(result.pipeline), handover(result.handover), skew(result.skew)]
    return " ".join(part for part in parts if part)


def _service(pipeline: Pipeline) -> str:
    if not any(node.op == "opaque" and node.label == SERVICE for node in pipeline):
        return ""
    return (
        "The tf.data service delivers it: the operators in front of distribute run on the service's workers, and are "
        "not seen here."
    )


def handover(found: InputDistribution | None) -> str:
    """What stands between the dataset and the training step; '' where nothing does."""
    if found is None:
        return ""
    strategy = words.clean(found.strategy)
    if found.how == PIPELINE_PER_PROCESS:
        return f"{strategy} trains in {found.workers} processes, each of which builds a pipeline of its own."
    if found.how == COORDINATOR:
        return (
            f"{strategy} builds the dataset again on each of its {found.workers} workers, by {COORDINATOR}: nothing is "
            "divided or sharded."
        )
    if found.how == FUNCTION:
        to = f"to {_replicas(found)}, by {FUNCTION}"
        return f"{strategy} takes what the script's function makes {to}: {_whole(found)}"
    return f"{strategy} takes the dataset to {_replicas(found)}, by {found.how}: {_divided(found)}."


def _replicas(found: InputDistribution) -> str:
    replicas = words.count(found.replicas, "replica")
    return f"{replicas} of {found.workers} workers" if found.workers > 1 else replicas


def _divided(found: InputDistribution) -> str:
    parts = []
    if found.workers > 1 and found.policy:
        parts.append(f"it is sharded over the workers by auto_shard_policy {words.clean(found.policy)}")
    if not found.shares:
        parts.append("no batch is divided")
    elif found.batch is None:
        # By all replicas, those of other workers too (`tf.distribute`, `_LegacyRebatchDataset`).
        parts.append(f"each batch is divided by {found.replicas}" if found.replicas > 1 else "no batch is divided")
    elif len(set(found.shares)) == 1:
        parts.append(f"each global batch of {found.batch:,} is divided into {found.shares[0]:,} for each replica")
    else:
        sizes = [f"{size:,}" for size in found.shares]
        parts.append(f"each global batch of {found.batch:,} is divided into {words.joined(sizes)}")
    if found.prefetched:
        parts.append(f"{found.prefetched} element{'s are' if found.prefetched != 1 else ' is'} prefetched behind it")
    return ", and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _whole(found: InputDistribution) -> str:
    size = found.batch
    batch = f"its batches of {size:,}, {size * found.replicas:,} in a training step" if size else "its elements"
    return f"each replica gets {batch}; nothing is divided, sharded or prefetched for it."


def skew(found: InputSkew | None) -> str:
    """What the slowest worker's input takes beside the others'; '' where a process trains alone."""
    if found is None:
        return ""
    parts = [_apart(found)]
    for one in found.inputs:
        if not one.step_seconds:
            why = words.sentence(words.clean(one.why))
            parts.append(f"The input of worker {one.worker} was not measured: {why}")
    return " ".join(part for part in parts if part)


def _apart(found: InputSkew) -> str:
    slowest, ratio, first = found.slowest, found.ratio, found.first_batch_spread_seconds
    if slowest is None or ratio is None:
        return ""
    fastest = min(one.seconds for one in found.measured_inputs)
    text = (
        f"Input skew: each alone, the inputs of {len(found.measured_inputs)} workers take {words.seconds(fastest)} to "
        f"{words.seconds(slowest.seconds)} a step"
    )
    if found.is_certain:
        text += f", worker {slowest.worker} {words.ratio(ratio)} the median, and every step waits for it"
    else:
        text += ", no further apart than the rounds of one worker"
    if first is not None:
        text += f"; the last worker's first batch comes {words.seconds(first)} after the first's"
    return f"{text}."


# -- who reads what


def division_sentence(found: OriginalSharding | None) -> str:
    """How the workers of the script's job divide its data as it is; "" where it has one worker."""
    if found is None:
        return ""
    workers = words.count(found.workers, "worker")
    if found.refused:
        return f"TensorFlow cannot divide it between {workers} by {found.policy}: {found.why}."
    if found.coverage is None:
        parts = [f"What each of {workers} gets was not counted.", words.sentence(words.clean(found.why))]
        if found.each_reads_all:
            size = f"{words.count(found.files, 'file')}, {words.byte_size(found.file_bytes or 0)}"
            parts.append(f"Each reads all of {size} (auto_shard_policy {found.policy}).")
        return " ".join(parts)
    return f"{_HOW[found.policy].format(workers=workers)} {coverage_sentence(found.coverage)}"


def coverage_blocks(found: Sequence[tuple[str, Coverage, str]]) -> Iterator[Block]:
    """Pictures of coverages, no picture twice, and a table of all of them: of one at least.

    Args:
        found: a title for the table, the coverage, and the sentence above its picture.
    """
    seen: list[object] = []
    for _, coverage, sentence in found:
        picture = bands(coverage)
        drawn = [row.parts for row in picture.rows]
        if drawn not in seen:
            seen.append(drawn)
            yield Sentence(sentence)
            yield picture
    yield coverage_table(found)


def bands(found: Coverage) -> Bands:
    """The picture of one coverage: a row for each worker."""
    ends = [0, *itertools.accumulate(found.cells)]
    total = ends[-1] or 1
    places = [end / total for end in ends]
    workers = [_row(found, index, places) for index in range(len(found.workers))]
    nobody = _nobody(found, places)
    rows = (*workers, *([nobody] if nobody else []))
    drawn = {kind for row in rows for *_, kind in row.parts} | {"read" for row in rows if row.reads_all}
    files = words.count(len(found.cells), "file") if found.by_file else ""
    amount = words.count(found.elements, _noun(found))
    axis = f"{amount} in {files}, in the order of their names" if files else f"{amount} in the order of the data"
    return Bands(
        rows=rows,
        legend=tuple((kind, meaning) for kind, meaning in _MEANINGS if kind in drawn),
        borders=tuple(places[1:-1]) if found.by_file else (),
        caption=f"From left to right: {axis}. {_DISTINGUISHED_BY[found.told_by]}",
    )


def coverage_table(found: Sequence[tuple[str, Coverage, str]]) -> Table:
    """The numbers of these coverages, a row each; what was not counted shows as a dash."""
    known = [(title or _workers(coverage), counts(coverage)) for title, coverage, _ in found]
    columns = tuple(dict.fromkeys(label for _, texts in known for label in texts))
    rows = []
    for title, texts in known:
        cells = (Cell(texts[column]) if column in texts else Cell(why="it was not counted") for column in columns)
        rows.append(Row((Cell(title), *cells)))
    units = words.joined(list(dict.fromkeys(f"{_noun(coverage)}s" for _, coverage, _ in found)))
    return Table(f"An epoch, in {units}", (Column("Who"), *numbers(*columns)), tuple(rows))


def coverage_sentence(found: Coverage) -> str:
    """The coverage in a sentence or two."""
    what = ("the first " if found.counted.startswith("first") else "") + words.count(found.elements, _noun(found))
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


def counts(found: Coverage) -> dict[str, str]:
    """What there is to tell besides the picture, by its title; nothing that was not counted."""
    often = {"Never": found.never, "Once": found.once, "Twice": found.twice, "More often": found.oftener}
    texts = {title: f"{number:,}" for title, number in often.items()}
    if found.foreign:
        texts["Not of the data"] = f"{found.foreign:,}"
    if found.first_out is not None:
        texts["First one out"] = f"after {words.count(found.first_out, 'step')}"
    if found.short_batches is not None:
        texts["Short batches"] = f"{found.short_batches:,}"
    if len(found.workers) > 1:
        texts["Idle"] = words.joined([str(index) for index in found.idle_workers]) or "none"
    if found.read_over_used is not None:
        texts["Read over used"] = words.ratio(found.read_over_used)
    if found.bytes_read_over_used is not None:
        texts["Bytes read over used"] = words.ratio(found.bytes_read_over_used)
        texts["Bytes read"] = words.byte_size(found.read_bytes or 0)
    return texts


def _row(found: Coverage, index: int, places: Sequence[float]) -> Band:
    worker = found.workers[index]
    parts = []
    for cell, count in enumerate(worker.cells):
        if count:
            size = found.cells[cell]
            all_of_it = sum(one.cells[cell] for one in found.workers if one.cells)
            again = count if found.each_everything else all_of_it
            kind = "again" if again > size else "once"
            parts.append((places[cell], places[cell + 1] - places[cell], min(1.0, count / size), kind))
    reads_all = bool(worker.read and worker.read > worker.elements and worker.read >= found.elements)
    label = "training process" if found.servers else f"worker {index}"
    return Band(label, _share(worker, _noun(found), reads_all=reads_all), tuple(parts), reads_all)


def _noun(found: Coverage) -> str:
    return "file" if found.counted == "files" else "element"


def _nobody(found: Coverage, places: Sequence[float]) -> Band | None:
    """The stretches of which some elements come to no worker; None where there are none, or none are known."""
    if not found.never or found.each_everything or not all(one.cells for one in found.workers):
        return None
    parts = []
    for cell, size in enumerate(found.cells):
        given = sum(one.cells[cell] for one in found.workers)
        if given < size:
            parts.append((places[cell], places[cell + 1] - places[cell], (size - given) / size, "never"))
    return Band("no worker", words.count(found.never, _noun(found)), tuple(parts)) if parts else None


def _share(worker: WorkerShare, noun: str, *, reads_all: bool) -> str:
    parts = [words.count(worker.elements, noun)]
    if worker.batches is not None:
        short = f", {worker.short_batches} short" if worker.short_batches else ""
        parts.append(f"{words.count(worker.batches, 'batch')}{short}")
    if reads_all and worker.read is not None:
        parts.append(f"reads {worker.read:,}")
    return "; ".join(parts)


def _per_worker(found: Coverage) -> str:
    noun = _noun(found)
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
    counted = ((found.never, "never"), (found.once, "once"), (found.twice, "twice"), (found.oftener, "more often"))
    parts = [f"{count:,} {'comes' if count == 1 else 'come'} {often}" for count, often in counted if count]
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
