"""What is said about files and storage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipetune.core.measurement import Interval
from pipetune.core.session import Session
from pipetune.core.session_file import redact
from pipetune.core.storage import FileUse, PageCacheResidency, Sweep, SweepLevel, SweepReader
from pipetune.report.blocks import Bars, Facts
from pipetune.report.html import html
from tests.report import sessions as samples
from tests.report.reading import blocks, ids, sentences, summary_line, summary_text, with_main

MB = 1_000_000.0


def curve(reader: SweepReader, knee: int | None, rates: dict[int, float], **more: Any) -> Sweep:
    levels = tuple(
        SweepLevel(parallel, Interval(rate, 0.9 * rate, 1.1 * rate, 3), Interval(rate / 1e4, rate / 2e4, rate / 5e3, 3))
        for parallel, rate in rates.items()
    )
    return Sweep(reader, levels, knee=knee, ceiling=max(rates.values()), **more)


FOLDER = "/home/ada/photos/data"
OF_FILES = curve(SweepReader.FILES, 2, {1: 200 * MB, 2: 400 * MB, 4: 400 * MB})
OF_SOURCE = curve(SweepReader.SOURCE, None, {1: 60 * MB, 2: 120 * MB, 4: 200 * MB}, node="n1")
USE = FileUse(16, 48_000_000, directory=FOLDER, kinds=(".tfrecord",), filesystems=("ext4",), bytes_per_element=8e5)
USE = replace(USE, storage_bytes_per_element=0.0, needed=12 * MB, reached=9 * MB, reached_training=6 * MB)
USE = replace(USE, residency=PageCacheResidency(0.9), sweeps=(OF_FILES, OF_SOURCE), notes=(f"a note about {FOLDER}",))
WARM = {"residency": PageCacheResidency(1.0)}


def session(use: FileUse = USE, **changes: Any) -> Session:
    return with_main(samples.photos(), "profile", files=replace(use, **changes))


def said_of(**changes: Any) -> list[str]:
    return sentences(session(**changes), "files")


def test_which_files_and_that_storage_is_not_the_limit() -> None:
    which, warm, note = said_of()
    delivers = "Storage delivers 381 MiB/s, the model could take 11.4 MiB/s: storage is not the limit."
    assert which == f"Reads 16 files (.tfrecord), 45.8 MiB, in data. {delivers}"
    assert warm.startswith("While measured, 90 % of the files was in memory") and note == "A note about data."


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reached": 390 * MB}, "Storage is the limit: it delivers 381 MiB/s, and the input alone reads 372 MiB/s."),
        ({"needed": 900 * MB}, "less than the 858 MiB/s the model could take: in the end storage is the limit."),
        ({"needed": None}, "the input reads 8.58 MiB/s: storage is not the limit."),
        (WARM, "cache delivers 381 MiB/s, the model could take 11.4 MiB/s: reading the files is not the limit."),
        ({**WARM, "reached": 390 * MB}, "the page cache delivers 381 MiB/s, and the input alone reads 372 MiB/s."),
        ({**WARM, "remote": ("gs",)}, "the model could take 11.4 MiB/s: storage is not the limit."),
        ({"sweeps": ()}, ""),
        ({"reached": None}, ""),
    ],
)
def test_whether_storage_is_the_limit(changes: dict[str, object], said: str) -> None:
    assert said_of(**changes)[0].endswith(said or "in data.")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cold": True, "residency": PageCacheResidency(1.0, 0.001)}, "dropped from the page cache (0.1 % stayed)."),
        ({"cold": True, "residency": PageCacheResidency(1.0, 1.0, "files on tmpfs are")}, "but files on tmpfs are."),
        ({"cold": True, "residency": PageCacheResidency(why="of the owner")}, "cannot be seen: of the owner."),
        ({"residency": PageCacheResidency(why="the files are empty")}, "is not known: the files are empty."),
        ({"residency": PageCacheResidency(0.25)}, "25 % of the files was in memory (page cache); --cold drops it."),
    ],
)
def test_whether_the_files_were_warm(changes: dict[str, object], said: str) -> None:
    assert said_of(**changes)[1].endswith(said)


def test_storage_is_told_in_the_terminal_only_where_it_is_the_limit() -> None:
    assert "torage" not in summary_text(session())
    assert "Storage is the limit: it delivers 381 MiB/s" in summary_line(session(reached=390 * MB))


def test_a_pipeline_without_files_says_so() -> None:
    made = session(FileUse())
    assert sentences(made, "files") == ["Reads no files."]
    assert not blocks(made, Facts, "files")
    assert "files" not in ids(samples.photos())


def test_remote_names_and_files_seen_open() -> None:
    said = "Reads 120 names under gs:// and s3://, which are not local and 1 other file seen open while it ran."
    assert said_of(files=0, remote=("gs", "s3"), remote_files=120, opened=1, sweeps=())[0].startswith(said)
    assert said_of(complete=False)[0].startswith("Reads at least 16 files")


def test_what_delivers_the_bytes_is_named() -> None:
    for changes, label in (({}, "Storage delivers"), (WARM, "The page cache delivers")):
        (found,) = blocks(session(**changes), Facts, "files")
        assert [fact.text for fact in found.facts if fact.label == label] == ["381 MiB/s"]


def test_where_the_curves_bend() -> None:
    files, source = blocks(session(), Bars, "files")
    assert files.sentence.endswith(": from 2 parallel reads on, more gain nothing.")
    assert [bar.marked for bar in files.bars] == [False, True, False]
    assert [bar.parts[0].share for bar in files.bars] == [0.5, 1.0, 1.0]
    assert files.bars[0].text == "191 MiB/s (172 MiB/s to 210 MiB/s)"
    assert source.sentence.endswith(": still rising at 4 parallel reads.")
    assert source.bars[0].text.startswith("6,000/s")
    falling = curve(SweepReader.FILES, 1, {1: 2 * MB, 2: 1 * MB}, falling=True, cold=True)
    (shown,) = blocks(session(sweeps=(falling,)), Bars, "files")
    assert shown.sentence.endswith(": one read at a time is as fast as any number (cold); more make it slower.")
    alone = curve(SweepReader.SOURCE, 1, {1: 2 * MB})
    (shown,) = blocks(session(sweeps=(alone,)), Bars, "files")
    assert "there is one file, so it is read by one reader;" in shown.sentence


def test_a_confidential_session_keeps_the_folder_back() -> None:
    hidden = redact(session())
    assert "/home/ada" not in html(hidden) and "in withheld" in html(hidden)
