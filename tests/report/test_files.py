"""What is said about files and storage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipetune.core import codec
from pipetune.core.redaction import redact
from pipetune.core.results import Interval
from pipetune.core.session import Session
from pipetune.core.storage import FileUse, PageCacheResidency, Sweep, SweepLevel, SweepReader
from pipetune.report.files import FilesView
from pipetune.report.html import html
from pipetune.report.markdown import markdown
from pipetune.report.terminal import summary_text
from pipetune.report.view import make_view
from tests.report import sessions as samples

MB = 1_000_000.0


def curve(reader: SweepReader, knee: int | None, rates: dict[int, float], **more: object) -> Sweep:
    levels = tuple(
        SweepLevel(parallel, Interval(rate, 0.9 * rate, 1.1 * rate, 3), Interval(rate / 1e4, rate / 2e4, rate / 5e3, 3))
        for parallel, rate in rates.items()
    )
    return Sweep(reader, levels, knee=knee, ceiling=max(rates.values()), **more)  # type: ignore[arg-type]


USE = FileUse(
    files=16,
    bytes_total=48_000_000,
    directory="/home/ada/photos/data",
    kinds=(".tfrecord",),
    filesystems=("ext4",),
    bytes_per_element=8e5,
    storage_bytes_per_element=0.0,
    needed=12 * MB,
    reached=9 * MB,
    reached_training=6 * MB,
    residency=PageCacheResidency(share=1.0),
    sweeps=(
        curve(SweepReader.FILES, 2, {1: 200 * MB, 2: 400 * MB, 4: 400 * MB}),
        curve(SweepReader.SOURCE, None, {1: 60 * MB, 2: 120 * MB, 4: 200 * MB}, node="n1"),
    ),
    notes=("a note about /home/ada/photos/data",),
)


def session(use: FileUse | None) -> Session:
    made = samples.photos()
    first, *others = made.datasets
    assert first.profile is not None
    profile = replace(first.profile, files=use)
    return replace(made, datasets=(replace(first, profile=profile), *others))


def view(**changes: object) -> FilesView:
    shown = make_view(session(replace(USE, **changes))).main  # type: ignore[arg-type]
    assert shown is not None and shown.files is not None
    return shown.files


def test_which_files_and_that_storage_is_not_the_limit() -> None:
    shown = view()
    assert shown.which == "Reads 16 files (.tfrecord), 45.8 MiB, in data."
    assert shown.limit == "Storage delivers 381 MiB/s, the model could take 11.4 MiB/s: storage is not the limit."
    assert shown.line == f"{shown.which} {shown.limit}"
    assert shown.warm.startswith("While measured, 100 % of the files was in memory")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reached": 390 * MB}, "Storage is the limit: it delivers 381 MiB/s, and the input alone reads 372 MiB/s."),
        ({"needed": 900 * MB}, "less than the 858 MiB/s the model could take: in the end storage is the limit."),
        ({"needed": None}, "the input reads 8.58 MiB/s: storage is not the limit."),
        ({"sweeps": ()}, ""),
        ({"reached": None}, ""),
    ],
)
def test_whether_storage_is_the_limit(changes: dict[str, object], said: str) -> None:
    assert view(**changes).limit.endswith(said) and bool(view(**changes).limit) == bool(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"cold": True, "residency": PageCacheResidency(1.0, 0.001)},
            "were dropped from the page cache (0.1 % stayed).",
        ),
        ({"cold": True, "residency": PageCacheResidency(1.0, 1.0, "files on tmpfs are")}, "but files on tmpfs are."),
        ({"cold": True, "residency": PageCacheResidency(why="of the owner")}, "cannot be seen: of the owner."),
        ({"residency": PageCacheResidency(why="the files are empty")}, "is not known: the files are empty."),
        ({"residency": PageCacheResidency(0.25)}, "25 % of the files was in memory (page cache); --cold drops it."),
    ],
)
def test_whether_the_files_were_warm(changes: dict[str, object], said: str) -> None:
    assert view(**changes).warm.endswith(said)


def test_a_pipeline_without_files_says_so_and_nothing_in_the_terminal() -> None:
    made = session(FileUse())
    shown = make_view(made).main
    assert shown is not None and shown.files is not None
    assert shown.files.which == "Reads no files." and shown.files.line == "" and shown.files.warm == ""
    assert "Reads no files" not in summary_text(made) and "Reads no files." in html(made)


def test_remote_names_and_files_seen_open() -> None:
    shown = view(files=0, remote=("gs", "s3"), remote_files=120, opened=1, sweeps=())
    assert shown.which == (
        "Reads 120 names under gs:// and s3://, which are not local and 1 other file seen open while it ran."
    )
    assert view(complete=False).which.startswith("Reads at least 16 files")


def test_where_the_curves_bend() -> None:
    files, source = view().sweeps
    assert files.sentence == "From 2 parallel reads on, more gain nothing."
    assert [row.knee for row in files.rows] == [False, True, False]
    assert [row.width for row in files.rows] == [50.0, 100.0, 100.0]
    assert files.rows[0].rate.text == "191 MiB/s (172 MiB/s to 210 MiB/s)"
    assert source.sentence == "Still rising at 4 parallel reads."
    assert source.rows[0].rate.text.startswith("6,000/s")
    falling = curve(SweepReader.FILES, 1, {1: 2 * MB, 2: 1 * MB}, falling=True, cold=True)
    (shown,) = view(sweeps=(falling,)).sweeps
    assert shown.sentence == "One read at a time is as fast as any number (cold); more make it slower."
    (alone,) = view(sweeps=(curve(SweepReader.SOURCE, 1, {1: 2 * MB}),)).sweeps
    assert alone.sentence.startswith("There is one file, so it is read by one reader;")


def test_every_format_shows_it() -> None:
    made = session(USE)
    assert "storage is not the limit" in " ".join(summary_text(made).split())
    assert all(len(line) <= 80 for line in summary_text(made).splitlines() if "storage" in line)
    page = html(made)
    assert 'id="files"' in page and 'href="#files"' in page and "more gain nothing" in page
    assert "more gain nothing" in markdown(made)
    assert 'id="files"' not in html(samples.photos())


def test_a_confidential_session_keeps_the_folder_back() -> None:
    hidden = redact(session(USE))
    assert "/home/ada" not in html(hidden) and "in withheld" in html(hidden)


def test_the_value_comes_back_from_a_file() -> None:
    assert codec.decode(FileUse, codec.encode(USE)) == USE
    assert USE.storage_bytes_per_second == 400 * MB
    assert FileUse().storage_bytes_per_second is None
