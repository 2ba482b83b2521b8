"""The page cache of given files: reading and dropping it, and the reasons why that may fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipetune.measure import files

SIZE = 3 << 20


@pytest.fixture
def written(tmp_path: Path) -> str:
    """A file whose pages are clean and in memory."""
    path = tmp_path / "data.bin"
    with open(path, "wb") as stream:
        stream.write(os.urandom(SIZE))
        stream.flush()
        os.fsync(stream.fileno())
    return str(path)


def test_dropping_evicts_pages_and_keeps_the_file(written: str) -> None:
    content = Path(written).read_bytes()
    modified = os.stat(written).st_mtime_ns
    found = files.residency([written], cold=True)
    assert found.share == 1.0 and found.left is not None
    if files.filesystem(written) in ("tmpfs", "ramfs"):
        assert found.left == 1.0 and "never be cold" in found.why
    else:
        assert found.left < files.MOST_RESIDENT_SHARE or "stayed" in found.why
    assert os.stat(written).st_mtime_ns == modified
    assert Path(written).read_bytes() == content
    assert files.count_resident([written]).share == 1.0


def test_only_the_given_files_are_dropped(written: str, tmp_path: Path) -> None:
    other = tmp_path / "other.bin"
    other.write_bytes(os.urandom(SIZE))
    files.drop_from_page_cache([written])
    assert files.count_resident([str(other)]).share == 1.0


def test_file_just_read_is_resident_and_a_warm_look_drops_nothing(written: str) -> None:
    Path(written).read_bytes()
    found = files.residency([written], cold=False)
    assert found.share == 1.0 and found.left is None and found.why == ""
    pages = files.count_resident([written])
    assert pages.share == 1.0
    assert pages.pages == -(-SIZE // os.sysconf("SC_PAGE_SIZE"))


def test_file_on_tmpfs_is_never_cold() -> None:
    folder = Path("/dev/shm")
    if files.filesystem(str(folder / "x")) != "tmpfs" or not os.access(folder, os.W_OK):
        pytest.skip("no tmpfs here")
    path = folder / f"pipetune-test-{os.getpid()}"
    path.write_bytes(b"x" * SIZE)
    try:
        found = files.residency([str(path)], cold=True)
    finally:
        path.unlink()
    assert found.left == 1.0 and found.why == "files on tmpfs are held in memory and can never be cold"


def test_empty_missing_or_no_files_are_explained(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    assert files.count_resident([str(empty)]).share is None
    assert files.residency([str(empty)], cold=True).why == "the files are empty"
    gone = files.count_resident([str(tmp_path / "gone")])
    assert gone.unreadable == 1 and gone.share is None
    assert "could not be opened" in files.residency([str(tmp_path / "gone")], cold=False).why
    files.drop_from_page_cache([str(tmp_path / "gone")])
    assert "names no local file" in files.residency([], cold=True).why


def test_files_of_another_owner_are_hidden(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(written).st_uid + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    pages = files.count_resident([written])
    assert pages.hidden == 1 and pages.share is None
    assert "owner" in files.residency([written], cold=True).why


@pytest.mark.parametrize(
    ("kind", "resident", "why"),
    [("ext4", 40, "40 % of the pages stayed"), ("fuse.gcsfuse", 0, "fuse.gcsfuse has its own cache")],
)
def test_why_files_are_not_cold_is_reported(
    kind: str, resident: int, why: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "filesystem", lambda path: kind)
    monkeypatch.setattr(files, "count_resident", lambda paths, **_: files.Pages(pages=100, resident=resident))
    assert files.residency([written], cold=True).why.startswith(why)


def test_page_cache_functions_keep_to_their_time_limit(written: str) -> None:
    assert files.count_resident([written], limit_seconds=-1).pages == 0
    files.drop_from_page_cache([written], limit_seconds=-1)
    assert files.count_resident([written]).share == 1.0


def test_file_system_is_that_of_the_longest_matching_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:5 / /data rw shared:1 - nfs4 server:/x rw\n"
        "3 1 0:6 / /data/my\\040disk rw - xfs /dev/sdb rw\n"
        "4 1 0:7 / /database rw - zfs pool rw\n"
    )
    named = {path: files.filesystem(path, mounts) for path in ("/x", "/data/a", "/data/my disk/a", "/database/a")}
    assert named == {"/x": "ext4", "/data/a": "nfs4", "/data/my disk/a": "xfs", "/database/a": "zfs"}
    assert files.filesystem("/x", tmp_path / "none") == ""
