"""The distributed module, and who reads what: the picture's places, its colours, and the numbers beside it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity, ModuleCheck, OriginalSharding, WorkerShare
from pipetune.core.session import DistributedResult, Session
from pipetune.model.coverage import worst_coverage
from pipetune.report.blocks import Bands, Listing
from pipetune.report.distribution import bands, counts, coverage_sentence, coverage_table, division_sentence
from pipetune.report.html import html
from tests.report import sessions as samples
from tests.report.reading import blocks, ids, sentences, table, texts, with_main, with_part


def of(*workers: Sequence[int], files: Sequence[int] = (), **changes: object) -> Coverage:
    """Eight elements, and which of them each worker gets."""
    given = [[Counter(mine)] for mine in workers]
    found = worst_coverage([Counter(range(8))], given, told_by=ElementIdentity.INDEX, files=files)
    return replace(found, **changes)  # type: ignore[arg-type]


def kinds(found: Coverage) -> list[str]:
    """A letter for each cell of each row, in the order of their places; a dot where nothing is drawn."""
    rows = []
    for row in bands(found).rows:
        letters = {round(start * 8): kind[0] for start, _, _, kind in row.parts}
        rows.append("".join(letters.get(place, ".") for place in range(8)))
    return rows


def test_a_clean_division() -> None:
    found, said = of([0, 2, 4, 6], [1, 3, 5, 7]), "2 workers together get 8 elements, every one once in an epoch."
    assert kinds(found) == ["o.o.o.o.", ".o.o.o.o"]
    assert [row.label for row in bands(found).rows] == ["worker 0", "worker 1"]
    assert coverage_sentence(found) == f"{said} Each gets 4 elements."
    assert [kind for kind, _ in bands(found).legend] == ["once"]
    assert counts(found)["Idle"] == "none"


def test_what_comes_twice_and_what_comes_to_nobody_stands_out() -> None:
    found = of([0, 1, 2, 3], [0, 1, 4, 5])
    assert kinds(found) == ["aaoo....", "aa..oo..", "......nn"]
    nobody = bands(found).rows[-1]
    assert (nobody.label, nobody.sentence) == ("no worker", "2 elements")
    assert coverage_sentence(found).startswith("Of 8 elements 2 come never, 4 come once and 2 come twice.")
    assert (counts(found)["Never"], counts(found)["Once"], counts(found)["Twice"]) == ("2", "4", "2")
    assert [kind for kind, _ in bands(found).legend] == ["once", "again", "never"]


def test_everything_to_everyone_is_no_mistake_where_it_is_meant() -> None:
    everyone = of(range(8), range(8))
    assert kinds(everyone) == ["aaaaaaaa"] * 2
    meant = replace(everyone, each_everything=True, twice=0, once=8)
    assert kinds(meant) == ["oooooooo"] * 2
    assert coverage_sentence(meant) == "Each of 2 workers gets 8 elements, every one once in an epoch."


def test_files_are_drawn_as_long_as_they_are() -> None:
    coverage = of([0, 1, 2, 3, 4, 5], [6, 7], files=(6, 2))
    found = bands(coverage)
    assert [part[:3] for row in found.rows for part in row.parts] == [(0, 0.75, 1), (0.75, 0.25, 1)]
    assert found.borders == (0.75,)
    assert found.caption.startswith("From left to right: 8 elements in 2 files, in the order of their names.")
    assert "They get 6 and 2 elements." in coverage_sentence(coverage)


def test_a_stretch_of_which_a_worker_gets_a_part_is_paler() -> None:
    found = bands(of([0, 2, 4], [1, 3, 5, 6, 7], files=(4, 4)))
    assert [share for _, _, share, _ in found.rows[0].parts] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("worker", "sentence", "reads_all"),
    [
        (WorkerShare(4, 2, 1, 8), "4 elements; 2 batches, 1 short; reads 8", True),
        (WorkerShare(4, 1, 0, 4), "4 elements; 1 batch", False),
        (WorkerShare(0, 0, 0, 0), "0 elements; 0 batches", False),
    ],
)
def test_what_a_worker_is_said_to_get(worker: WorkerShare, sentence: str, reads_all: bool) -> None:
    row = bands(of([], workers=(worker, WorkerShare(4, 2, 0, 8)))).rows[0]
    assert (row.sentence, row.reads_all) == (sentence, reads_all)


def test_facts_that_were_not_counted_are_left_out() -> None:
    assert set(counts(of([0], [1]))) == {"Never", "Once", "Twice", "More often", "Idle"}
    workers = (WorkerShare(4, 2, 1, 8), WorkerShare(0, 0, 0, 8))
    told = counts(of([], workers=workers, foreign=3))
    assert told["First one out"] == "after 0 steps" and told["Short batches"] == "1"
    assert told["Idle"] == "1" and told["Read over used"] == "4.00x"
    assert told["Not of the data"] == "3"


def drawn(session: Session) -> str:
    page = html(session)
    return page[page.index('id="distributed"') : page.index('id="details"')]


def test_the_page_draws_a_row_for_each_worker() -> None:
    section = drawn(samples.distributed())
    assert section.count('class="band-row"') == 2 + 3 + 4
    assert section.count('class="fill band-once"') == 3 * 16, "each file is one worker's"
    assert section.count('class="border"') == 15 * 9
    # Of two workers the second one's first file is the second of sixteen.
    assert re.search(r'worker 1.*?<rect class="fill band-once" x="6.25%" y="2" width="6.25%"', section, re.S)
    assert "2 workers together get 1,920 elements, every one once in an epoch." in section


def test_bytes_that_are_read_beside_those_that_are_used() -> None:
    def told(read: int | None, used: int | None, **changes: object) -> Coverage:
        workers = [WorkerShare(4, 2, 0, 8, (), read, used)] * (1 if changes.get("servers") else 2)
        return of([], workers=tuple(workers), **changes)

    wasted = told(4096, 1024)
    assert "They read 8.00 KiB of files for 2.00 KiB that are used." in coverage_sentence(wasted)
    numbers = counts(wasted)
    assert (numbers["Read over used"], numbers["Bytes read over used"]) == ("2.00x", "4.00x")
    assert numbers["Bytes read"] == "8.00 KiB"
    assert "They read 2.00 KiB of files, all of it used." in coverage_sentence(told(1024, 1024))
    assert "The service reads 1.00 KiB of files, all of it used." in coverage_sentence(told(1024, 1024, servers=2))
    unknown = told(1024, None)
    assert "read" not in coverage_sentence(unknown) and "Bytes read" not in counts(unknown)


def test_the_table_has_a_row_for_each_number_of_workers_and_a_dash_for_what_was_not_counted() -> None:
    batches = tuple(WorkerShare(4, 2, 1, 4) for _ in range(3))
    found = coverage_table([("", of([0, 1], [2, 3]), ""), ("", of([], workers=batches), "")])
    columns = [column.title for column in found.columns]
    assert columns[:5] == ["Who", "Never", "Once", "Twice", "More often"]
    short = columns.index("Short batches")
    (first, second) = found.rows
    assert texts(first)[0] == "2 workers" and not texts(first)[short] and first.cells[short].why
    assert texts(second)[0] == "3 workers" and texts(second)[short] == "3"


def test_counted_files_are_no_elements() -> None:
    found = of([0, 1, 2], [3, 4], counted="files")
    assert coverage_table([("", found, "")]).caption == "An epoch, in files"
    assert coverage_table([("", found, ""), ("", of([0]), "")]).caption == "An epoch, in files and elements"
    assert [row.sentence for row in bands(found).rows] == ["3 files", "2 files", "3 files"]


def test_a_session_without_counts_shows_no_picture() -> None:
    bare = with_part(samples.distributed(), "distributed", coverage=())
    assert not blocks(bare, Bands) and "shares" not in ids(bare)
    assert [one.label for one in blocks(bare, Listing, "module")] == ["distributed_input.py"]


def shared(found: OriginalSharding) -> Session:
    return with_main(samples.photos(), as_written=found)


def test_a_script_of_one_worker_has_no_division() -> None:
    assert division_sentence(None) == ""
    assert "distributed" not in ids(samples.photos())


TOO_LONG = OriginalSharding(2, why="it is too long")
LONG_FILES = replace(TOO_LONG, files=9, file_bytes=3 * 2**30)
NOT_COUNTED = "What each of 2 workers gets was not counted. It is too long."
READ_ALL = f"{NOT_COUNTED} Each reads all of 9 files, 3.00 GiB (auto_shard_policy DATA)."
REFUSED = OriginalSharding(4, policy="FILE", why="it finds 3 files", refused=True)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (TOO_LONG, NOT_COUNTED),
        (replace(LONG_FILES, policy="DATA"), READ_ALL),
        (replace(LONG_FILES, policy="FILE"), NOT_COUNTED),
        (REFUSED, "TensorFlow cannot divide it between 4 workers by FILE: it finds 3 files."),
    ],
)
def test_a_division_that_was_not_counted_says_why(found: OriginalSharding, sentence: str) -> None:
    assert division_sentence(found) == sentence
    assert sentences(shared(found), "distributed") == [sentence]
    assert not blocks(shared(found), Bands)


def test_a_script_whose_workers_all_read_everything_shows_it() -> None:
    section = drawn(shared(OriginalSharding(2, of(range(8), range(8), files=(4, 4)))))
    assert "Each of 2 workers builds the script&#39;s pipeline for itself. Of 8 elements 8 come twice." in section
    assert section.count('class="fill band-again"') == 4 and "some of it comes more than once" in section


@pytest.mark.parametrize("policy", ["", "FILE", "DATA", "OFF"])
def test_how_the_data_is_divided_is_said(policy: str) -> None:
    sentence = division_sentence(OriginalSharding(2, of([0, 1, 2, 3], [4, 5, 6, 7]), policy))
    assert "2 workers" in sentence and policy in sentence
    assert sentence.endswith("every one once in an epoch. Each gets 4 elements.")


def test_a_service_is_read_by_one() -> None:
    served = of(range(8), workers=(WorkerShare(8, 2, 0, None, (8,)),), servers=2)
    assert bands(served).rows[0].label == "training process"
    said = "From a service of 2 workers a training process gets 8 elements, every one once in an epoch."
    assert coverage_sentence(served) == said
    assert texts(coverage_table([("", served, "")]).rows[0])[0] == "a service of 2 workers"
    assert "Idle" not in counts(served)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (OriginalSharding(2, of(range(8), range(8)), "OFF"), "TensorFlow divides nothing between 2 workers"),
        (OriginalSharding(2, why="the data is too long"), "What each of 2 workers gets was not counted."),
    ],
)
def test_the_form_stands_beside_the_script_as_it_is(found: OriginalSharding, sentence: str) -> None:
    both = with_part(samples.distributed(), "distributed", as_written=found)
    (said_of_it,) = (one for one in sentences(both) if one.startswith("The script as it"))
    assert sentence in said_of_it
    pictures = [row for block in blocks(both, Bands) for row in block.rows]
    again = any(kind == "again" for row in pictures for *_, kind in row.parts)
    assert again is (found.coverage is not None)


# -- the module


def of_module(module: DistributedResult) -> list[str]:
    return sentences(replace(samples.photos(), distributed=module), "distributed")


def test_distributed_coverage():
    whole, broken = samples.distributed(), samples.hostile()
    rows = [texts(row) for row in table(whole, "distributed").rows]
    assert sentences(whole, "distributed")[0].startswith("Every element once per epoch with 2, 3 and 4 workers")
    assert [(row[4], row[-1]) for row in rows] == [("yes", "yes"), ("no", "yes"), ("yes", "yes")]
    assert texts(table(broken, "distributed").rows[0])[2] == "1"
    assert sentences(broken, "distributed")[0].startswith("Not every element")
    assert whole.distributed is not None
    for counted, sentence in (
        ("files", "Every file is read by one of 2, 3 and 4 workers"),
        ("first elements", "Each of the first 96 elements once per epoch with 2, 3 and 4 workers"),
    ):
        checks = tuple(replace(check, counted=counted, elements=96) for check in whole.distributed.checks)
        assert of_module(replace(whole.distributed, checks=checks))[0].startswith(sentence)


def test_a_distributed_form_that_was_not_written_says_why_first():
    refused = DistributedResult("tpu", "", "", notes=("map at train.py:9 runs Python code.", "Say it otherwise."))
    assert of_module(refused) == ["Not written. map at train.py:9 runs Python code.", "Say it otherwise."]


def test_a_distributed_form_of_which_each_worker_reads_everything():
    checks = (ModuleCheck(2, "everything", elements=24, missing=0, duplicated=0),)
    form = DistributedResult("service", "x = 1", "out/distributed.py", checks=checks, companions=("out/serve.py",))
    found = of_module(form)
    assert found[0].startswith("Every element once per epoch from each of 2 workers")
    assert "Next to it: serve.py." in found
    uncounted = of_module(replace(form, checks=(ModuleCheck(2),)))
    assert uncounted[0].startswith("Which elements come was not counted")
