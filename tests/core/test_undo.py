"""An undo journal: whatever a script does to files, they are as they were once it has ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from pipetune.core import file_events, restoration, undo
from tests.files import writes
from tests.files.journal import Journal

TIMES = 4
LATER = restoration._LATE_SECONDS + 1.0


def in_another_process(work: Callable[[], object]) -> int:
    """Does `work` in a process that ends without unwinding; its exit status."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def recording(folder: Path) -> Iterator[undo.UndoJournal]:
    journal = Journal(str(folder))
    file_events.tell(journal)
    try:
        yield journal
    finally:
        file_events.tell(None)
        journal._ended.set()
        os.close(journal._lines)  # no other test is to find a file open for writing


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    folder = tmp_path / "journals"
    folder.mkdir()
    return folder


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "file").write_text("precious")
    return folder


def restored(journals: Path) -> restoration.Restoration:
    return restoration.restore(str(journals))


def test_every_kind_of_writing_is_undone(tmp_path: Path, journals: Path) -> None:
    base = tmp_path / "own"
    kinds = writes.prepared(base, native=False)
    before = writes.trees(base, kinds)

    def script() -> None:
        with recording(journals) as journal:
            writer = writes.Writer(base, native=False)
            journal.begin(journal.mark())
            for _ in range(TIMES):
                for name in kinds:
                    writer.change(name)
            journal.close()

    assert in_another_process(script) == 0
    assert len(kinds) > 40 and set(writes.lost(base, before)) == set(kinds)
    done = restored(journals)
    assert writes.lost(base, before) == {}
    assert done.left == done.failed == done.unknown == []


def test_nothing_is_recorded_before_a_loop_and_what_it_did_is_its_own(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        (own / "made before").write_text("its own")
        (own / "file").write_text("its own")
        journal.begin(journal.mark())
        (own / "file").write_text("of the loop")
        journal.close()
    assert restored(journals).restored == [str(own / "file")]
    assert (own / "file").read_text() == (own / "made before").read_text() == "its own"


def test_what_a_loop_did_before_it_was_known_to_train_is_undone(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        journal.mark()
        (own / "file").write_text("of a preview")
        training = journal.mark()
        (own / "file").write_text("of the first steps")
        (own / "new").write_text("of the first steps")
        journal.mark()  # an evaluation in between
        (own / "file").write_text("of more steps")
        assert journal.begin(training) == ()
        (own / "file").write_text("of windows")
        journal.close()
    restored(journals)
    assert (own / "file").read_text() == "of a preview" and not (own / "new").exists()


@pytest.mark.parametrize("loops", [1, undo.MOST_GENERATIONS + 3])
def test_a_script_killed_before_anything_trained_may_have_been_in_its_last_loop(
    own: Path, journals: Path, loops: int
) -> None:
    with recording(journals) as journal:
        for loop in range(loops):
            (own / "file").write_text(f"before loop {loop}")
            journal.mark()
            (own / "file").write_text(f"of loop {loop}")
    copies = [path for path in journals.iterdir() if path.suffix != ".jsonl"]
    assert len(copies) == min(loops, undo.MOST_GENERATIONS), "no more are kept"
    restored(journals)
    assert (own / "file").read_text() == f"before loop {loops - 1}"


def test_a_script_that_did_not_train_keeps_what_it_did(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        journal.mark()
        (own / "file").write_text("of a loop")
        journal.discard()
        (own / "new").write_text("afterwards")
    done = restored(journals)
    assert done.restored == done.removed == []
    assert (own / "file").read_text() == "of a loop" and (own / "new").exists()


def test_a_process_that_is_killed_leaves_enough_to_go_by(own: Path, journals: Path) -> None:
    def script() -> None:
        with recording(journals) as journal:
            journal.begin(journal.mark())
            (own / "file").write_text("of the loop")
            (own / "new").mkdir()
            (own / "new" / "deep").write_text("of the loop")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(script) == -signal.SIGKILL
    done = restored(journals)
    assert (done.restored, done.removed) == ([str(own / "file")], [str(own / "new")])
    assert writes.tree(own).keys() == {"file"} and (own / "file").read_text() == "precious"


def changed_by_somebody_else(file: Path) -> None:
    """Another state, with times of long ago, as tools that copy leave them."""
    file.write_text("somebody else's")
    os.utime(file, (1, 1))


@pytest.mark.parametrize("closed", [True, False])
def test_what_somebody_else_has_changed_since_is_left_and_the_copy_named(
    own: Path, journals: Path, closed: bool
) -> None:
    (own / "other").write_text("precious too")
    with recording(journals) as journal:
        journal.begin(journal.mark())
        for name in ("file", "other", "new", "made"):
            (own / name).write_text("of the loop")
        (own / "folder").mkdir()
        (own / "folder" / "a").write_text("of the loop")
        journal._ended.set()
        if closed:
            journal.close()
    for path in journals.glob("*.jsonl"):  # it ended a while ago
        os.utime(path, (time.time() - LATER, time.time() - LATER))
    changed_by_somebody_else(own / "file")
    changed_by_somebody_else(own / "new")
    changed_by_somebody_else(own / "folder" / "b")
    done = restored(journals)
    left = dict(done.left)
    assert {str(own / "file"), str(own / "new"), str(own / "folder" / "b")} <= set(left)
    assert Path(left[str(own / "file")]).read_text() == "precious"
    assert left[str(own / "new")] == "", "there was nothing before"
    assert (own / "file").read_text() == (own / "new").read_text() == "somebody else's"
    if closed:  # by its last states the script's own changes are known whenever that is
        assert (own / "other").read_text() == "precious too" and not (own / "made").exists()
        assert [path.name for path in (own / "folder").iterdir()] == ["b"]


def test_a_log_is_cut_to_what_it_was_and_stays_the_same_file(own: Path, journals: Path) -> None:
    watching = open(own / "file")  # noqa: SIM115 - as `tail -f` does
    inode = (own / "file").stat().st_ino
    with recording(journals) as journal:
        journal.begin(journal.mark())
        for _ in range(3):
            with open(own / "file", "a") as stream:
                stream.write("of the loop")
        journal.close()
    copies = [path for path in journals.iterdir() if path.suffix != ".jsonl"]
    assert copies == [], "however long it is, it need not be copied"
    restored(journals)
    assert (own / "file").read_text() == watching.read() == "precious"
    assert (own / "file").stat().st_ino == inode
    watching.close()


def test_what_is_changed_in_place_keeps_its_other_names_and_its_owner(own: Path, journals: Path) -> None:
    os.link(own / "file", own / "other name")
    os.chmod(own / "file", 0o640)
    before = writes.tree(own)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        (own / "file").write_text("of the loop")
        os.chmod(own / "file", 0o600)
        journal.close()
    restored(journals)
    assert writes.tree(own) == before
    assert os.path.samefile(own / "file", own / "other name")


def long_ago(journals: Path) -> None:
    """No sign of the process for minutes: what has changed since is somebody else's."""
    for journal in journals.glob("*.jsonl"):
        os.utime(journal, (0, 0))


def test_other_names_of_what_is_put_back_or_removed_are_not_somebody_elses(own: Path, journals: Path) -> None:
    (own / "log").write_text("first")
    before = writes.tree(own)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        (own / "file").write_text("of the loop")
        os.link(own / "file", own / "another name of file")
        (own / "new").write_text("of the loop")
        os.link(own / "new", own / "another name of new")
        os.link(own / "new", own / "a third")
        os.link(own / "log", own / "another name of log")
        with (own / "log").open("a") as stream:
            stream.write("of the loop")
        journal.close()
    long_ago(journals)
    done = restored(journals)
    assert (done.left, done.failed) == ([], []) and writes.tree(own) == before


@pytest.mark.parametrize(("silent_seconds", "own_change"), [(10, True), (600, False)])
def test_whoever_saw_a_killed_process_end_knows_until_when_changes_are_its_own(
    own: Path, journals: Path, silent_seconds: int, own_change: bool
) -> None:
    def killed() -> None:
        with recording(journals) as journal:
            journal.begin(journal.mark())
            (own / "file").write_text("of the loop")
            os.kill(os.getpid(), signal.SIGKILL)

    in_another_process(killed)
    now = time.time()
    for journal in journals.glob("*.jsonl"):
        os.utime(journal, (now - silent_seconds, now - silent_seconds))
    done = restoration.restore(str(journals), ended=now)
    assert (done.restored == [str(own / "file")]) is own_change and bool(done.left) is not own_change


def test_what_changes_once_the_states_are_final_is_somebody_elses_whoever_saw_the_end(
    own: Path, journals: Path
) -> None:
    with recording(journals) as journal:
        journal.begin(journal.mark())
        (own / "file").write_text("of the loop")
        journal.close()
    long_ago(journals)
    (own / "file").write_text("somebody else's")
    (left,) = restoration.restore(str(journals), ended=time.time()).left
    assert left[0] == str(own / "file") and (own / "file").read_text() == "somebody else's"


def test_a_change_is_a_sign_of_life_where_the_thread_that_gives_them_comes_late(
    own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo.UndoJournal, "_give_signs", lambda _self: None)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        (own / "file").write_text("of the loop")
        long_ago(journals)
        journal._signed = 0.0
        (own / "file").write_text("of the next step")
        assert max(path.stat().st_mtime for path in journals.glob("*.jsonl")) > time.time() - 60.0
        journal.close()


class Held(BaseException):
    """Stands for a thread that goes no further."""


def hold(path: str) -> None:
    raise Held(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("of the loop"),
        lambda file: file.unlink(),
        lambda file: file.rename(f"{file}.old"),
        lambda file: os.replace(file.with_name("another file"), file),
        lambda file: os.truncate(file, 0),
    ],
)
def test_what_is_too_large_to_be_copied_is_not_changed(
    own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(undo, "MOST_BYTES", 7)
    (own / "another file").write_text("precious too")
    before = writes.tree(own)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        journal.on_full = hold
        with pytest.raises(Held, match="file"):
            change(own / "file")
        with open(own / "file", "a") as stream:
            stream.write("only its length is kept")
        journal.close()
    done = restored(journals)
    assert writes.tree(own) == before and done.failed == []


def test_what_was_too_large_before_the_loop_was_known_to_train_is_named(
    own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "MOST_BYTES", 7)
    with recording(journals) as journal:
        loop = journal.mark()
        (own / "file").write_text("of the first steps")
        assert journal.begin(loop) == (str(own / "file"),)
        journal.close()
    done = restored(journals)
    assert done.failed == [(str(own / "file"), "", "it was too large to be copied")]


def test_what_nobody_told_of_is_found_by_comparing_the_folder(own: Path, journals: Path) -> None:
    """A child process writes, as a library in C might."""
    (own / "other").write_text("precious too")
    with recording(journals) as journal:
        (own / "known").write_text("before the loop: a folder that the script writes to")
        journal.begin(journal.mark())
        subprocess.run(["sh", "-c", "echo more >> other; echo new > new; rm known"], cwd=own, check=True)
        (own / "file").write_text("of the loop")
        journal.close()
    done = restored(journals)
    found = [path for path in done.unknown if path.startswith(str(own))]  # not what the tests themselves print into
    assert found == [str(own / name) for name in ("known", "new", "other")]
    assert done.restored == [str(own / "file")]


def test_temporary_files_of_the_script_go_and_folders_to_keep_stay(own: Path, journals: Path) -> None:
    def script() -> None:
        with recording(journals) as journal:
            held = tempfile.TemporaryDirectory(dir=own), tempfile.NamedTemporaryFile(dir=own)  # noqa: SIM115
            made = [tempfile.mkdtemp(), tempfile.mkstemp()[1], *(one.name for one in held)]
            Path(made[0], "a").write_text("a")
            Path(tempfile.mkdtemp(dir=own, prefix="run-"), "b").write_text("b")
            (own / "made").write_text("\n".join(made))
            journal.begin(journal.mark())
            assert set(journal.temporaries) == set(made)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(script) == -signal.SIGKILL
    made = (own / "made").read_text().split("\n")
    assert all(map(os.path.exists, made))
    restored(journals)
    assert len(made) == 4 and not any(map(os.path.exists, made))
    assert [path.name for path in own.glob("run-*/*")] == ["b"]


def test_of_two_processes_of_one_job_the_earliest_state_counts(own: Path, journals: Path) -> None:
    def worker(text: str) -> Callable[[], None]:
        def script() -> None:
            with recording(journals) as journal:
                journal.begin(journal.mark())
                (own / "file").write_text(text)
                (own / "new").write_text(text)
                journal.close()

        return script

    assert in_another_process(worker("of the first")) == 0
    assert in_another_process(worker("of the second")) == 0
    done = restored(journals)
    assert (own / "file").read_text() == "precious" and not (own / "new").exists() and done.left == []


def test_a_child_process_of_the_script_is_its_own_business(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        journal.begin(journal.mark())
        child = multiprocessing.get_context("fork").Process(target=(own / "made by a child").write_text, args=("a",))
        child.start()
        child.join()
        journal.close()
    assert restored(journals).removed == [] and (own / "made by a child").exists()


def test_putting_back_goes_on_where_it_was_interrupted(own: Path, journals: Path) -> None:
    names = [f"file-{number}" for number in range(5)]
    for name in names:
        (own / name).write_text("precious")
    before = writes.tree(own)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        for name in names:
            (own / name).write_text("of the loop, and longer than before")
        journal.close()
    for path in journals.glob("*.jsonl"):  # it ended a while ago: what is half put back looks like somebody else's
        os.utime(path, (time.time() - LATER, time.time() - LATER))

    put_back, times = restoration._put_content, [0]

    def killed_at_the_third(*arguments: object) -> None:
        times[0] += 1
        if times[0] == 3:
            Path(str(arguments[0])).write_text("half of it")
            os._exit(9)
        put_back(*arguments)  # type: ignore[arg-type]

    def script() -> None:
        restoration._put_content = killed_at_the_third
        restored(journals)

    assert in_another_process(script) == 9
    assert writes.tree(own) != before
    done = restored(journals)
    assert writes.tree(own) == before and done.left == []


def test_a_restoration_that_was_killed_leaves_no_copy_beside_the_file(own: Path, journals: Path) -> None:
    before = writes.tree(own)
    with recording(journals) as journal:
        journal.begin(journal.mark())
        (own / "file").unlink()
        journal.close()

    def script() -> None:
        os.replace = lambda *_arguments, **_more: os._exit(9)
        restored(journals)

    assert in_another_process(script) == 9
    assert len(writes.tree(own)) == 1 and writes.tree(own) != before, "the copy, under a name of its own"
    restored(journals)
    assert writes.tree(own) == before


# -- folders of journals


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "pipetune" / "undo"


KILLED = """
import os, signal, subprocess, sys, time
from pipetune.core import file_events, restoration, undo
with restoration.folder() as folder:
    marked = {**os.environ, restoration.VARIABLE: folder}
    started = subprocess.Popen(["sleep", "600"], env=marked, start_new_session=True)
    worker = os.fork()
    if worker == 0:
        journal = undo.UndoJournal(folder)
        file_events.tell(journal)
        journal.begin(journal.mark())
        open(sys.argv[1], "w").write("of the loop")
        print(started.pid, flush=True)
        time.sleep(600)
    signal.pause()
"""


def recovered() -> list[restoration.Restoration]:
    """What is restored once all processes of a killed command are gone: here, and not there, they share its lock."""
    end = time.monotonic() + 20
    while not (found := list(restoration.recover())) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@contextmanager
def command(file: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command with a worker that has changed `file`, and a process that has left its group."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        yield process, int(process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_the_next_command_puts_back_what_a_killed_one_left(own: Path, state: Path) -> None:
    with command(own / "file") as (process, started):
        assert list(restoration.recover()) == [], "it is at work"
        assert (own / "file").read_text() == "of the loop"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        (done,) = recovered()
        assert done.restored == [str(own / "file")] and (own / "file").read_text() == "precious"
        assert list(state.iterdir()) == [] and list(restoration.recover()) == []
        assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


def test_a_copy_that_the_user_was_told_of_stays(own: Path, state: Path) -> None:
    with command(own / "file") as (process, _):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (left,) = state.iterdir()
    for path in left.glob("*.jsonl"):
        os.utime(path, (time.time() - LATER, time.time() - LATER))
    changed_by_somebody_else(own / "file")
    (done,) = recovered()
    ((path, copy),) = done.left
    assert path == str(own / "file") and Path(copy).read_text() == "precious"
    assert list(restoration.recover()) == [], "once is enough"
    assert {path.name for path in left.iterdir()} == {Path(copy).name, "kept"}


@pytest.mark.parametrize("reported", [[], ["7-0"]])
@pytest.mark.parametrize("lock", [["lock"], []])
def test_what_a_command_killed_while_it_cleared_has_left_goes_with_the_next(
    state: Path, reported: list[str], lock: list[str]
) -> None:
    left = state / "folder"
    left.mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    for name in ("7.jsonl", "7-0", "7-1", "progress", *lock):
        (left / name).write_text("")
    (left / "kept").write_text("\n".join(reported))
    assert list(restoration.recover()) == [], "everything had been put back"
    assert {path.name for path in left.iterdir()} == {*reported, "kept"} if reported else not left.exists()
    assert list(restoration.recover()) == []


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path: Path, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "planted").mkdir()
    state.chmod(0o777)
    assert list(restoration.recover()) == []
    with restoration.folder() as folder:
        assert folder and not folder.startswith(str(state)), "the next place is taken"
        assert Path(folder).stat().st_mode & 0o077 == 0
    assert (state / "planted").exists() and not Path(folder).exists()


def test_a_folder_that_is_just_being_made_is_left_alone(state: Path) -> None:
    (state / "young").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    assert list(restoration.recover()) == [] and (state / "young").exists()


def test_where_no_folder_can_be_made_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(restoration, "roots", lambda: (tmp_path / "file" / "a", tmp_path / "file" / "b"))
    with restoration.folder() as folder:
        assert folder == "" and undo.journal_in(folder) is None
        assert restoration.restore(folder) == restoration.Restoration()
    assert list(restoration.recover()) == []
