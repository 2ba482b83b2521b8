"""Who reads what: the picture's places, its colours, and the numbers beside it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipetune.core.distribution import Coverage, ElementIdentity, OriginalSharding, WorkerShare
from pipetune.core.session import DistributedResult, Session
from pipetune.model.coverage import worst_coverage
from pipetune.report.html import html
from pipetune.report.markdown import markdown
from pipetune.report.shards import Shards, division, shard_table, shards
from tests.report import sessions as samples


def of(*workers: Sequence[int], files: Sequence[int] = (), **changes: object) -> Coverage:
    """Eight elements, and which of them each worker gets."""
    given = [[Counter(mine)] for mine in workers]
    found = worst_coverage([Counter(range(8))], given, told_by=ElementIdentity.INDEX, files=files)
    return replace(found, **changes)  # type: ignore[arg-type]


def kinds(found: Shards) -> list[str]:
    """A letter for each cell of each row, in the order of their places; a dot where nothing is drawn."""
    width = 100 / 8
    rows = []
    for row in found.rows:
        letters = {round(cell.start / width): cell.kind[0] for cell in row.cells}
        rows.append("".join(letters.get(place, ".") for place in range(8)))
    return rows


def text_of(found: Shards) -> dict[str, str]:
    return {fact.label: fact.text for fact in found.facts}


def test_a_clean_division() -> None:
    found = shards(of([0, 2, 4, 6], [1, 3, 5, 7]))
    assert kinds(found) == ["o.o.o.o.", ".o.o.o.o"]
    assert found.title == "2 workers" and [row.label for row in found.rows] == ["worker 0", "worker 1"]
    assert found.sentence == ("2 workers together get 8 elements, every one once in an epoch. Each gets 4 elements.")
    assert [kind for kind, _ in found.legend] == ["once"]
    assert text_of(found)["Idle"] == "none"


def test_what_comes_twice_and_what_comes_to_nobody_stands_out() -> None:
    found = shards(of([0, 1, 2, 3], [0, 1, 4, 5]))
    assert kinds(found) == ["aaoo....", "aa..oo..", "......nn"]
    assert found.rows[-1].label == "no worker" and found.rows[-1].sentence == "2 elements"
    assert found.sentence.startswith("Of 8 elements 2 come never, 4 come once and 2 come twice.")
    assert (text_of(found)["Never"], text_of(found)["Once"], text_of(found)["Twice"]) == ("2", "4", "2")
    assert [kind for kind, _ in found.legend] == ["once", "again", "never"]


def test_everything_to_everyone_is_no_mistake_where_it_is_meant() -> None:
    everyone = of(range(8), range(8))
    assert kinds(shards(everyone)) == ["aaaaaaaa"] * 2
    meant = shards(replace(everyone, each_everything=True, twice=0, once=8))
    assert kinds(meant) == ["oooooooo"] * 2
    assert meant.sentence == "Each of 2 workers gets 8 elements, every one once in an epoch."


def test_files_are_drawn_as_long_as_they_are() -> None:
    found = shards(of([0, 1, 2, 3, 4, 5], [6, 7], files=(6, 2)))
    assert [(cell.start, cell.width, cell.share) for row in found.rows for cell in row.cells] == [
        (0, 75, 1), (75, 25, 1)
    ]  # fmt: skip
    assert found.borders == (75,)
    assert found.axis == "8 elements in 2 files, in the order of their names"
    assert "They get 6 and 2 elements." in found.sentence


def test_a_stretch_of_which_a_worker_gets_a_part_is_paler() -> None:
    found = of([0, 2, 4], [1, 3, 5, 6, 7], files=(4, 4))
    assert [cell.share for cell in shards(found).rows[0].cells] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("worker", "said", "reads_all"),
    [
        (WorkerShare(4, 2, 1, 8), "4 elements; 2 batches, 1 short; reads 8", True),
        (WorkerShare(4, 1, 0, 4), "4 elements; 1 batch", False),
        (WorkerShare(0, 0, 0, 0), "0 elements; 0 batches", False),
    ],
)
def test_what_a_worker_is_said_to_get(worker: WorkerShare, said: str, reads_all: bool) -> None:
    row = shards(of([], workers=(worker, WorkerShare(4, 2, 0, 8)))).rows[0]
    assert (row.sentence, row.reads_all) == (said, reads_all)


def test_facts_that_were_not_counted_are_left_out() -> None:
    assert set(text_of(shards(of([0], [1])))) == {"Never", "Once", "Twice", "More often", "Idle"}
    workers = (WorkerShare(4, 2, 1, 8), WorkerShare(0, 0, 0, 8))
    told = text_of(shards(of([], workers=workers, foreign=3)))
    assert told["First one out"] == "after 0 steps" and told["Short batches"] == "1"
    assert told["Idle"] == "1" and told["Read over used"] == "4.00x"
    assert told["Not of the data"] == "3"


def test_how_elements_were_told_apart_is_said() -> None:
    told = {shards(of([0], told_by=identity)).told for identity in ElementIdentity}
    assert len(told) == len(ElementIdentity)


def test_the_page_draws_a_row_for_each_worker() -> None:
    page = html(samples.distributed())
    section = page[page.index('id="distributed"') : page.index('id="machine"')]
    assert "Who reads what" in section
    assert section.count('class="shard"') == 2 + 3 + 4
    assert section.count('class="fill shard-once"') == 3 * 16, "each file is one worker's"
    assert section.count('class="shard-border"') == 15 * 9
    # Of two workers the second one's first file is the second of sixteen.
    assert re.search(r'worker 1.*?<rect class="fill shard-once" x="6.25%" y="2" width="6.25%"', section, re.S)
    assert "2 workers together get 1,920 elements, every one once in an epoch." in section


def test_markdown_has_the_numbers() -> None:
    text = markdown(samples.distributed())
    assert "| worker 0 | 960 elements; 16 batches |" in text
    columns = "Never | Once | Twice | More often | First one out | Short batches | Idle | Read over used"
    assert f"|  | {columns} | Bytes read over used | Bytes read |" in text
    assert "| 3 workers | 0 | 1,920 | 0 | 0 | after 10 steps | 0 | none | 1.00x | 1.00x | 36.6 MiB |" in text


def test_bytes_that_are_read_beside_those_that_are_used() -> None:
    def told(read: int | None, used: int | None, **changes: object) -> Shards:
        workers = [WorkerShare(4, 2, 0, 8, (), read, used)] * (1 if changes.get("servers") else 2)
        return shards(of([], workers=tuple(workers), **changes))

    wasted = told(4096, 1024)
    assert "They read 8.00 KiB of files for 2.00 KiB that are used." in wasted.sentence
    facts = text_of(wasted)
    assert (facts["Read over used"], facts["Bytes read over used"]) == ("2.00x", "4.00x")
    assert facts["Bytes read"] == "8.00 KiB"
    assert "They read 2.00 KiB of files, all of it used." in told(1024, 1024).sentence
    assert "The service reads 1.00 KiB of files, all of it used." in told(1024, 1024, servers=2).sentence
    unknown = told(1024, None)
    assert "read" not in unknown.sentence and "Bytes read" not in text_of(unknown)


def test_the_table_has_a_row_for_each_number_of_workers_and_a_dash_for_what_was_not_counted() -> None:
    batches = tuple(WorkerShare(4, 2, 1, 4) for _ in range(3))
    found = shard_table([shards(of([0, 1], [2, 3])), shards(of([], workers=batches))])
    assert found.columns[:4] == ("Never", "Once", "Twice", "More often") and "Short batches" in found.columns
    (first, second) = found.rows
    short = found.columns.index("Short batches")
    assert first[0] == "2 workers" and first[1][short] == "-"
    assert second[0] == "3 workers" and second[1][short] == "3"
    page = html(samples.distributed())
    section = page[page.index('id="distributed"') : page.index('id="machine"')]
    assert '<th scope="row">4 workers</th><td>0</td><td>1,920</td><td>0</td>' in section


def test_a_session_without_counts_shows_no_picture() -> None:
    session = samples.distributed()
    assert isinstance(session.distributed, DistributedResult)
    bare = replace(session, distributed=replace(session.distributed, coverage=()))
    assert ">Who reads what<" not in html(bare)


def shared(found: OriginalSharding) -> Session:
    session = samples.photos()
    return replace(session, datasets=(replace(session.datasets[0], as_written=found), *session.datasets[1:]))


def test_a_script_of_one_worker_has_no_division() -> None:
    assert division(None) is None
    assert 'id="workers"' not in html(samples.distributed())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (OriginalSharding(2, why="it is too long"), "What each of 2 workers gets was not counted. It is too long."),
        (
            OriginalSharding(2, policy="DATA", why="it is too long", files=9, file_bytes=3 * 2**30),
            "What each of 2 workers gets was not counted. It is too long. Each reads all of 9 files, 3.00 GiB "
            "(auto_shard_policy DATA).",
        ),
        (
            OriginalSharding(2, policy="FILE", why="it is too long", files=9, file_bytes=3 * 2**30),
            "What each of 2 workers gets was not counted. It is too long.",
        ),
        (
            OriginalSharding(4, policy="FILE", why="it finds 3 files", refused=True),
            "TensorFlow cannot divide it between 4 workers by FILE: it finds 3 files.",
        ),
    ],
)
def test_a_division_that_was_not_counted_says_why(found: OriginalSharding, said: str) -> None:
    view = division(found)
    assert view is not None and view.shards is None and view.sentence == said
    for text in (html(shared(found)), markdown(shared(found)).replace("\\", "")):
        assert said in text


def test_a_script_whose_workers_all_read_everything_shows_it() -> None:
    found = OriginalSharding(2, of(range(8), range(8), files=(4, 4)))
    page = html(shared(found))
    section = page[page.index('id="workers"') : page.index('id="patch"')]
    assert "Each of 2 workers builds the script&#39;s pipeline for itself. Of 8 elements 8 come twice." in section
    assert section.count('class="fill shard-again"') == 4 and "some of it comes more than once" in section
    assert '<a href="#workers">' in page


@pytest.mark.parametrize("policy", ["", "FILE", "DATA", "OFF"])
def test_how_the_data_is_divided_is_said(policy: str) -> None:
    view = division(OriginalSharding(2, of([0, 1, 2, 3], [4, 5, 6, 7]), policy))
    assert view is not None and "2 workers" in view.sentence and policy in view.sentence
    assert view.sentence.endswith("every one once in an epoch. Each gets 4 elements.")


def test_a_service_is_read_by_one() -> None:
    served = of(range(8), workers=(WorkerShare(8, 2, 0, None, (8,)),), servers=2)
    found = shards(served)
    assert found.title == "a service of 2 workers" and found.rows[0].label == "training process"
    assert found.sentence == (
        "From a service of 2 workers a training process gets 8 elements, every one once in an epoch."
    )
    assert "Idle" not in text_of(found)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (OriginalSharding(2, of(range(8), range(8)), "OFF"), "TensorFlow divides nothing between 2 workers"),
        (OriginalSharding(2, why="the data is too long"), "What each of 2 workers gets was not counted."),
    ],
)
def test_the_form_stands_beside_the_script_as_it_is(found: OriginalSharding, said: str) -> None:
    session = samples.distributed()
    assert isinstance(session.distributed, DistributedResult)
    page = html(replace(session, distributed=replace(session.distributed, as_written=found)))
    section = page[page.index('id="distributed"') : page.index('id="machine"')]
    assert "The script as it is</h4>" in section and said in section
    assert ('class="fill shard-again"' in section) is (found.coverage is not None)
    text = markdown(replace(session, distributed=replace(session.distributed, as_written=found)))
    assert f"**The script as it is**: {said}" in text.replace("\\", "")
