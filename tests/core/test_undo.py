"""The undo journal: all changes of a script to files are reverted when it has ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from pipetune.core import file_events, restoration, undo
from tests.files import writes
from tests.files.journal import Journal

TIMES = 4
LATER = restoration._LATE_SECONDS + 1.0


def in_another_process(work: Callable[[], object]) -> int:
    """Runs `work` in a process that ends without unwinding; returns its exit status."""
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
def recording(folder: Path, *, ignored_files: Iterable[str] = ()) -> Iterator[undo.UndoJournal]:
    journal = Journal(str(folder), ignored_files=ignored_files)
    file_events.set_journal(journal)
    try:
        yield journal
    finally:
        file_events.set_journal(None)
        journal._ended.set()
        os.close(journal._lines)  # so that no other test finds a file open for writing


@contextmanager
def in_training(folder: Path, *, ignored_files: Iterable[str] = ()) -> Iterator[undo.UndoJournal]:
    """Records what is done in it as steps of training, after which the script ends."""
    with recording(folder, ignored_files=ignored_files) as journal:
        journal.confirm_training(journal.begin_generation())
        yield journal
        journal.close()


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


def test_every_kind_of_write_is_undone(tmp_path: Path, journals: Path) -> None:
    base = tmp_path / "own"
    kinds = writes.prepared(base, native=False)
    before = writes.trees(base, kinds)

    def script() -> None:
        with recording(journals) as journal:
            writer = writes.Writer(base, native=False)
            journal.confirm_training(journal.begin_generation())
            for _ in range(TIMES):
                for name in kinds:
                    writer.change(name)
            journal.close()

    assert in_another_process(script) == 0
    assert len(kinds) > 40 and set(writes.lost(base, before)) == set(kinds)
    done = restored(journals)
    assert writes.lost(base, before) == {}
    assert done.left_alone == done.failed == done.unexplained == []


def test_changes_before_training_are_kept(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        (own / "made before").write_text("its own")
        (own / "file").write_text("its own")
        journal.confirm_training(journal.begin_generation())
        (own / "file").write_text("of the loop")
        journal.close()
    assert restored(journals).restored == [str(own / "file")]
    assert (own / "file").read_text() == (own / "made before").read_text() == "its own"


def test_file_that_others_have_open_is_left_alone(own: Path, journals: Path) -> None:
    """The history of a notebook: its kernel writes it while a cell is measured."""
    history = own / "history"
    with history.open("w") as opened:
        opened.write("before")
        opened.flush()
        with in_training(journals, ignored_files=[str(history)]):
            opened.write(" and meanwhile")
            opened.flush()
            (own / "file").write_text("of the loop")
        assert restored(journals).restored == [str(own / "file")]
    assert history.read_text() == "before and meanwhile"


def test_process_that_goes_on_keeps_no_file_of_the_journal(journals: Path) -> None:
    journal = undo.UndoJournal(str(journals))
    opened = f"/proc/self/fd/{journal._lines}"
    assert os.readlink(opened).startswith(str(journals))
    journal.discard()
    journal.release()
    assert not os.path.exists(opened)


def test_changes_of_loop_before_training_is_confirmed_are_undone(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        journal.begin_generation()
        (own / "file").write_text("of a preview")
        training = journal.begin_generation()
        (own / "file").write_text("of the first steps")
        (own / "new").write_text("of the first steps")
        journal.begin_generation()  # an evaluation in between
        (own / "file").write_text("of more steps")
        assert journal.confirm_training(training) == ()
        (own / "file").write_text("of windows")
        journal.close()
    restored(journals)
    assert (own / "file").read_text() == "of a preview" and not (own / "new").exists()


def test_changes_of_loop_with_a_preview_in_each_step_are_undone(own: Path, journals: Path) -> None:
    before = writes.tree(own)
    with recording(journals) as journal:
        loop = journal.begin_generation()
        for step in range(30):
            (own / "file").write_text(f"step {step}")
            (own / f"new {step}").write_text("of the loop")
            journal.begin_generation()
        journal.confirm_training(loop)
        journal.close()
    restored(journals)
    assert writes.tree(own) == before


@pytest.mark.parametrize("loops", [1, undo.MAX_GENERATIONS + 3])
def test_changes_of_last_loop_are_undone_if_script_is_killed_before_training(
    own: Path, journals: Path, loops: int
) -> None:
    with recording(journals) as journal:
        for loop in range(loops):
            (own / "file").write_text(f"before loop {loop}")
            journal.begin_generation()
            (own / "file").write_text(f"of loop {loop}")
    copies = [path for path in journals.iterdir() if path.suffix != ".jsonl"]
    assert len(copies) == min(loops, undo.MAX_GENERATIONS), "no more are kept"
    restored(journals)
    assert (own / "file").read_text() == f"before loop {loops - 1}"


def test_discarded_journal_keeps_changes(own: Path, journals: Path) -> None:
    with recording(journals) as journal:
        journal.begin_generation()
        (own / "file").write_text("of a loop")
        made = tempfile.mkdtemp()
        journal.discard()
        (own / "new").write_text("afterwards")
    done = restored(journals)
    assert done.restored == done.removed == []
    os.rmdir(made)
    assert (own / "file").read_text() == "of a loop" and (own / "new").exists()


def test_changes_of_killed_process_are_undone(own: Path, journals: Path) -> None:
    def script() -> None:
        with in_training(journals):
            (own / "file").write_text("of the loop")
            (own / "new").mkdir()
            (own / "new" / "deep").write_text("of the loop")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(script) == -signal.SIGKILL
    done = restored(journals)
    assert (done.restored, done.removed) == ([str(own / "file")], [str(own / "new")])
    assert writes.tree(own).keys() == {"file"} and (own / "file").read_text() == "precious"


def last_heartbeat(journals: Path, seconds: float) -> None:
    """The process gave its last sign so long ago: what changed since then is another program's."""
    then = time.time() - seconds
    for journal in journals.glob("*.jsonl"):
        os.utime(journal, (then, then))


def changed_by_somebody_else(file: Path) -> None:
    """Changes the content and sets an old modification time, as copying tools do."""
    file.write_text("somebody else's")
    os.utime(file, (1, 1))


@pytest.mark.parametrize("closed", [True, False])
def test_later_changes_by_others_are_kept_and_copy_is_reported(own: Path, journals: Path, closed: bool) -> None:
    (own / "other").write_text("precious too")
    with recording(journals) as journal:
        journal.confirm_training(journal.begin_generation())
        for name in ("file", "other", "new", "made"):
            (own / name).write_text("of the loop")
        (own / "folder").mkdir()
        (own / "folder" / "a").write_text("of the loop")
        journal._ended.set()
        if closed:
            journal.close()
    last_heartbeat(journals, LATER)
    changed_by_somebody_else(own / "file")
    changed_by_somebody_else(own / "new")
    changed_by_somebody_else(own / "folder" / "b")
    done = restored(journals)
    left = dict(done.left_alone)
    assert {str(own / "file"), str(own / "new"), str(own / "folder" / "b")} <= set(left)
    assert Path(left[str(own / "file")]).read_text() == "precious"
    assert left[str(own / "new")] == "", "there was nothing before"
    assert (own / "file").read_text() == (own / "new").read_text() == "somebody else's"
    if closed:  # the journal's final states identify the script's own changes at any time
        assert (own / "other").read_text() == "precious too" and not (own / "made").exists()
        assert [path.name for path in (own / "folder").iterdir()] == ["b"]


def test_appended_log_is_truncated_in_place(own: Path, journals: Path) -> None:
    watching = open(own / "file")  # noqa: SIM115 - as `tail -f` does
    inode = (own / "file").stat().st_ino
    with in_training(journals):
        for _ in range(3):
            with open(own / "file", "a") as stream:
                stream.write("of the loop")
    copies = [path for path in journals.iterdir() if path.suffix != ".jsonl"]
    assert copies == [], "however long it is, it need not be copied"
    restored(journals)
    assert (own / "file").read_text() == watching.read() == "precious"
    assert (own / "file").stat().st_ino == inode
    watching.close()


def test_restored_file_keeps_hard_links_and_mode(own: Path, journals: Path) -> None:
    os.link(own / "file", own / "other name")
    os.chmod(own / "file", 0o640)
    before = writes.tree(own)
    with in_training(journals):
        (own / "file").write_text("of the loop")
        os.chmod(own / "file", 0o600)
    restored(journals)
    assert writes.tree(own) == before
    assert os.path.samefile(own / "file", own / "other name")


def test_hard_link_to_a_file_that_is_written_and_replaced_is_restored(own: Path, journals: Path) -> None:
    os.link(own / "file", own / "other name")
    before = writes.tree(own)
    with in_training(journals):
        (own / "file").write_text("of the loop")
        (own / "new").write_text("of the loop, too")
        os.replace(own / "new", own / "file")
    done = restored(journals)
    assert writes.tree(own) == before and (done.left_alone, done.failed) == ([], [])
    assert os.path.samefile(own / "file", own / "other name")


def test_hard_links_made_by_script_are_not_attributed_to_others(own: Path, journals: Path) -> None:
    (own / "log").write_text("first")
    before = writes.tree(own)
    with in_training(journals):
        (own / "file").write_text("of the loop")
        os.link(own / "file", own / "another name of file")
        (own / "new").write_text("of the loop")
        os.link(own / "new", own / "another name of new")
        os.link(own / "new", own / "a third")
        os.link(own / "log", own / "another name of log")
        with (own / "log").open("a") as stream:
            stream.write("of the loop")
    last_heartbeat(journals, 600)
    done = restored(journals)
    assert (done.left_alone, done.failed) == ([], []) and writes.tree(own) == before


@pytest.mark.parametrize(("silent_seconds", "own_change"), [(10, True), (600, False)])
def test_end_time_limits_which_changes_belong_to_killed_process(
    own: Path, journals: Path, silent_seconds: int, own_change: bool
) -> None:
    def killed() -> None:
        with in_training(journals):
            (own / "file").write_text("of the loop")
            os.kill(os.getpid(), signal.SIGKILL)

    in_another_process(killed)
    last_heartbeat(journals, silent_seconds)
    done = restoration.restore(str(journals), ended=time.time())
    assert (done.restored == [str(own / "file")]) is own_change and bool(done.left_alone) is not own_change


def test_change_after_final_states_is_kept_with_known_end_time(own: Path, journals: Path) -> None:
    with in_training(journals):
        (own / "file").write_text("of the loop")
    last_heartbeat(journals, 600)
    (own / "file").write_text("somebody else's")
    (left,) = restoration.restore(str(journals), ended=time.time()).left_alone
    assert left[0] == str(own / "file") and (own / "file").read_text() == "somebody else's"


def test_change_counts_as_heartbeat(own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo.UndoJournal, "_send_heartbeats", lambda _self: None)
    with in_training(journals) as journal:
        (own / "file").write_text("of the loop")
        last_heartbeat(journals, 600)
        journal._last_heartbeat = 0.0
        (own / "file").write_text("of the next step")
        assert max(path.stat().st_mtime for path in journals.glob("*.jsonl")) > time.time() - 60.0


class Held(BaseException):
    """Stands for a thread that is blocked."""


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
def test_change_of_too_large_file_is_blocked(
    own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object]
) -> None:
    monkeypatch.setattr(undo, "MAX_COPIED_BYTES", 7)
    (own / "another file").write_text("precious too")
    before = writes.tree(own)
    with in_training(journals) as journal:
        journal.on_too_large = hold
        with pytest.raises(Held, match="file"):
            change(own / "file")
        with open(own / "file", "a") as stream:
            stream.write("only its length is kept")
    done = restored(journals)
    assert writes.tree(own) == before and done.failed == []


def fill_disk(left: int) -> None:
    """Lets no file of this process become larger than `left` bytes."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # pytest's is a file too
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, left))


@pytest.mark.parametrize("left", [0, 2000])
def test_no_file_is_changed_without_a_record_on_a_full_disk(own: Path, journals: Path, left: int) -> None:
    files = [own / f"file {number}" for number in range(40)]
    for file in files:
        file.write_text("precious")

    def script() -> None:
        if not left:
            fill_disk(left)
            assert undo.open_journal(str(journals)) is None
            return
        with recording(journals) as journal:
            journal.confirm_training(journal.begin_generation())
            journal.on_too_large = hold
            fill_disk(left)
            for file in files:
                with contextlib.suppress(Held, undo.TooLarge):
                    file.write_text("changed")

    assert in_another_process(script) == 0
    restored(journals)
    assert {file.read_text() for file in files} == {"precious"}


def test_script_writes_on_before_training_if_the_disk_of_the_journal_is_full(own: Path, journals: Path) -> None:
    def script() -> None:
        with recording(journals):
            fill_disk(2000)
            for number in range(80):
                (own / f"file {number}").write_text("its own")
            os.rmdir(tempfile.mkdtemp())

    assert in_another_process(script) == 0
    assert len(list(own.glob("file ?*"))) == 80


def test_changes_of_a_script_that_ran_to_its_end_are_kept_on_a_full_disk(own: Path, journals: Path) -> None:
    def script() -> None:
        with recording(journals) as journal:
            journal.begin_generation()
            (own / "new").write_text("its own")
            fill_disk(os.fstat(journal._lines).st_size)
            journal.discard()

    assert in_another_process(script) == 0
    restored(journals)
    assert (own / "new").read_text() == "its own"


def test_files_are_restored_on_a_full_disk(own: Path, journals: Path) -> None:
    with in_training(journals):
        (own / "file").write_text("of the loop")
        (own / "new").write_text("of the loop")

    def command() -> None:
        fill_disk(len("precious"))
        restored(journals)

    assert in_another_process(command) == 0
    assert (own / "file").read_text() == "precious" and not (own / "new").exists()


@pytest.mark.parametrize(("mode", "text"), [("w", "of the first steps"), ("r+", "")])
def test_too_large_file_is_reported_if_it_changed(
    own: Path, journals: Path, monkeypatch: pytest.MonkeyPatch, mode: str, text: str
) -> None:
    monkeypatch.setattr(undo, "MAX_COPIED_BYTES", 7)
    with recording(journals) as journal:
        loop = journal.begin_generation()
        with open(own / "file", mode) as stream:
            stream.write(text)
        assert journal.confirm_training(loop) == (str(own / "file"),)
        journal.close()
    failed = [(str(own / "file"), "", "it was too large to back up")] if text else []
    assert restored(journals).failed == failed


@contextmanager
def piped(path: Path) -> Iterator[None]:
    """Lets a process that the shell might have started together with this one write into a file."""
    with subprocess.Popen(["tee", path], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as beside:
        assert beside.stdin is not None
        beside.stdin.write(b"so far")
        beside.stdin.flush()
        while not path.exists() or not path.stat().st_size:
            time.sleep(0.01)
        yield


@contextmanager
def redirected(stream: int, path: Path) -> Iterator[None]:
    """Lets this process write what it writes to a stream into a file."""
    kept = os.dup(stream)
    with path.open("a") as file:
        os.dup2(file.fileno(), stream)
    try:
        yield
    finally:
        os.dup2(kept, stream)
        os.close(kept)


def test_unrecorded_changes_are_found_by_comparing_folder(own: Path, journals: Path) -> None:
    """A child process writes, as a C library might; the command's own output is no change, redirected or piped."""
    (own / "other").write_text("precious too")
    (own / "output").write_text("")
    with recording(journals) as journal:
        (own / "known").write_text("before the loop: a folder that the script writes to")
        journal.confirm_training(journal.begin_generation())
        subprocess.run(
            ["sh", "-c", "echo more >> other; echo x > output; echo new > new; rm known"], cwd=own, check=True
        )
        (own / "file").write_text("of the loop")
        journal.close()
    with redirected(2, own / "output"), piped(own / "log"):
        done = restored(journals)
    found = [path for path in done.unexplained if path.startswith(str(own))]  # not those of the tests' output
    assert found == [str(own / name) for name in ("known", "new", "other")]
    assert done.restored == [str(own / "file")]


@pytest.mark.parametrize("may_train_before", [False, True])
def test_what_a_second_process_of_the_script_changes_before_it_trains_is_explained(
    own: Path, journals: Path, may_train_before: bool
) -> None:
    def script() -> None:
        with recording(journals) as journal:
            if may_train_before:
                journal.begin_generation()
            (own / "records").write_text("again")
            journal.confirm_training(journal.begin_generation())
            journal.close()

    with recording(journals) as journal:
        (own / "records").write_text("prepared")
        journal.confirm_training(journal.begin_generation())
        (own / "file").write_text("of the loop")
        assert in_another_process(script) == 0
        journal.close()
    done = restored(journals)
    assert (done.unexplained, done.restored) == ([], [str(own / "file")])
    assert (own / "records").read_text() == "again"


def test_temporary_files_of_killed_script_are_removed(own: Path, journals: Path) -> None:
    def script() -> None:
        with recording(journals) as journal:
            held = tempfile.TemporaryDirectory(dir=own), tempfile.NamedTemporaryFile(dir=own)  # noqa: SIM115
            made = [tempfile.mkdtemp(), tempfile.mkstemp()[1], *(one.name for one in held)]
            Path(made[0], "a").write_text("a")
            Path(tempfile.mkdtemp(dir=own, prefix="run-"), "b").write_text("b")
            (own / "made").write_text("\n".join(made))
            journal.confirm_training(journal.begin_generation())
            assert set(journal.temporary_paths) == set(made)
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_another_process(script) == -signal.SIGKILL
    made = (own / "made").read_text().split("\n")
    assert all(map(os.path.exists, made))
    restored(journals)
    assert len(made) == 4 and not any(map(os.path.exists, made))
    assert [path.name for path in own.glob("run-*/*")] == ["b"]


def test_earliest_state_of_two_processes_is_restored(own: Path, journals: Path) -> None:
    def script(text: str) -> None:
        with in_training(journals):
            (own / "file").write_text(text)
            (own / "new").write_text(text)

    for text in ("of the first", "of the second"):
        assert in_another_process(partial(script, text)) == 0
    done = restored(journals)
    assert (own / "file").read_text() == "precious" and not (own / "new").exists() and done.left_alone == []


def test_changes_of_forked_child_are_not_recorded(own: Path, journals: Path) -> None:
    with in_training(journals):
        child = multiprocessing.get_context("fork").Process(target=(own / "made by a child").write_text, args=("a",))
        child.start()
        child.join()
    assert restored(journals).removed == [] and (own / "made by a child").exists()


def test_interrupted_restoration_is_resumed(own: Path, journals: Path) -> None:
    names = [f"file-{number}" for number in range(5)]
    for name in names:
        (own / name).write_text("precious")
    before = writes.tree(own)
    with in_training(journals):
        for name in names:
            (own / name).write_text("of the loop, and longer than before")
    last_heartbeat(journals, LATER)  # half-restored files look like changes by others

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
    assert writes.tree(own) == before and done.left_alone == []


def test_killed_restoration_leaves_no_temporary_copy(own: Path, journals: Path) -> None:
    before = writes.tree(own)
    with in_training(journals):
        (own / "file").unlink()

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
with restoration.journal_folder() as folder:
    marked = {**os.environ, restoration.UNDO_VARIABLE: folder}
    started = subprocess.Popen(["sleep", "600"], env=marked, start_new_session=True)
    worker = os.fork()
    if worker == 0:
        journal = undo.UndoJournal(folder)
        file_events.set_journal(journal)
        journal.confirm_training(journal.begin_generation())
        open(sys.argv[1], "w").write("of the loop")
        print(started.pid, flush=True)
        time.sleep(600)
    signal.pause()
"""


def recovered() -> list[restoration.Restoration]:
    """The restorations once all processes of a killed command have exited; they share the command's lock."""
    end = time.monotonic() + 20
    while not (found := list(restoration.recover())) and time.monotonic() < end:
        time.sleep(0.02)
    return found


@contextmanager
def command(file: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command with a worker that has changed `file` and a process that has left its process group."""
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


def test_next_command_restores_files_of_killed_command(own: Path, state: Path) -> None:
    with command(own / "file") as (process, started):
        assert list(restoration.recover()) == [], "it is at work"
        assert (own / "file").read_text() == "of the loop"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        (done,) = recovered()
        assert done.restored == [str(own / "file")] and (own / "file").read_text() == "precious"
        assert list(state.iterdir()) == [] and list(restoration.recover()) == []
        assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE


def test_folder_of_a_command_that_ends_meanwhile_is_left_to_it(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a folder and its lock, the command that has it may end and remove it."""
    lock = restoration.fcntl.flock
    with contextlib.ExitStack() as ending:
        folder = ending.enter_context(restoration.journal_folder())

        def ends_first(descriptor: int, operation: int) -> None:
            monkeypatch.setattr(restoration.fcntl, "flock", lock)
            ending.close()
            lock(descriptor, operation)

        monkeypatch.setattr(restoration.fcntl, "flock", ends_first)
        os.utime(folder, (time.time() - LATER, time.time() - LATER))
        assert list(restoration.recover()) == []
    assert list(state.iterdir()) == []


def test_reported_copy_is_kept(own: Path, state: Path) -> None:
    with command(own / "file") as (process, _):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    (left,) = state.iterdir()
    last_heartbeat(left, LATER)
    changed_by_somebody_else(own / "file")
    (done,) = recovered()
    ((path, copy),) = done.left_alone
    assert path == str(own / "file") and Path(copy).read_text() == "precious"
    assert list(restoration.recover()) == [], "once is enough"
    assert {path.name for path in left.iterdir()} == {Path(copy).name, "kept"}


@pytest.mark.parametrize("reported", [[], ["7-0"]])
@pytest.mark.parametrize("lock", [["lock"], []])
def test_leftovers_of_command_killed_during_cleanup_are_removed(
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


def test_folder_writable_by_others_is_not_trusted(tmp_path: Path, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "planted").mkdir()
    state.chmod(0o777)
    assert list(restoration.recover()) == []
    with restoration.journal_folder() as folder:
        assert folder and not folder.startswith(str(state)), "the next place is taken"
        assert Path(folder).stat().st_mode & 0o077 == 0
    assert (state / "planted").exists() and not Path(folder).exists()


def test_new_folder_without_lock_is_kept(state: Path) -> None:
    (state / "young").mkdir(parents=True, mode=0o700)
    state.chmod(0o700)
    assert list(restoration.recover()) == [] and (state / "young").exists()


def test_no_journal_where_no_folder_can_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(restoration, "journal_roots", lambda: (tmp_path / "file" / "a", tmp_path / "file" / "b"))
    with restoration.journal_folder() as folder:
        assert folder == "" and undo.open_journal(folder) is None
        assert restoration.restore(folder) == restoration.Restoration()
    assert list(restoration.recover()) == []
