"""Results folders: each run keeps its own files, and the folder shows the files of one finished run."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core import session_file
from pipetune.core.session import Session
from pipetune.core.settings import Command, Settings
from pipetune.supervisor import results_folder
from pipetune.supervisor.results_folder import Results, ResultsFolder, default_results_folder, results_folder_of
from pipetune.supervisor.target import Target, module_target
from tests.core.sessions import session

FILES = {"distributed.py", "plan.json", "report.html", "script.log", "session.json", "tuned.patch"}


def measured(number: int, *, status: str = "done") -> Session:
    """A session that is identified by its seed."""
    return replace(session(), command=replace(session().command, options=Settings(seed=number)), status=status)


def run(out: Path, number: int, *, status: str = "done") -> Results:
    results = Results(out).with_new_run()
    results.write_all(measured(number, status=status))
    return results


def shown(out: Path) -> object:
    return session_file.load(out).command.options.seed


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()} - {"runs", "latest"}


@pytest.fixture(params=["links", "copies"])
def links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file system has links."""

    def refuse(*_arguments: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    if request.param == "copies":
        monkeypatch.setattr(os, "symlink", refuse)
    return bool(request.param == "links")


def test_folder_shows_last_finished_run_and_each_run_keeps_its_files(out: Path, links: bool) -> None:
    first = run(out, 1)
    assert names(out) == FILES and shown(out) == 1
    (first.folder / "serve.py").write_text("")  # not all runs have this file
    first.publish()
    second = run(out, 2)
    assert names(out) == FILES and shown(out) == 2
    assert (out / "session.json").is_symlink() is links
    assert [shown(one.folder) for one in (first, second)] == [1, 2]
    assert (first.folder / "serve.py").exists()


def test_unfinished_run_does_not_replace_finished_run(out: Path, links: bool) -> None:
    """B2: a failed run with `--device gpu` had replaced an earlier session."""
    run(out, 1, status="failed")
    assert shown(out) == 1, "there is nothing better, and what was measured is to be found"
    run(out, 2)
    patch = (out / "tuned.patch").read_text()
    for number, status in enumerate(("failed", "interrupted", "no-dataset"), start=3):
        unfinished = run(out, number, status=status)
        assert shown(out) == 2 and (out / "tuned.patch").read_text() == patch != ""
        assert session_file.load(unfinished.folder).status == status
        assert ResultsFolder(out).newer_unfinished_run() == unfinished.folder
    run(out, 6)
    assert shown(out) == 6 and ResultsFolder(out).newer_unfinished_run() is None


def test_concurrent_runs_have_different_folders(out: Path) -> None:
    """F12: the next steps of the first run had named the patch of the second."""
    first, second = Results(out).with_new_run(), Results(out).with_new_run()
    assert first.folder != second.folder
    second.write_all(measured(2))
    first.write_all(measured(1))
    assert shown(out) == 1, "the last that finished"
    assert [shown(one.folder) for one in (first, second)] == [1, 2]


def test_reader_never_sees_files_of_two_runs(out: Path) -> None:
    finished = [run(out, number) for number in (1, 2)]
    for number, one in enumerate(finished, start=1):
        (one.folder / "tuned.patch").write_text(str(number))
    over, mixed = threading.Event(), []

    def read() -> None:
        while not over.is_set():
            latest = (out / "latest").resolve()  # readers of several files resolve it first
            pair = shown(latest), (latest / "tuned.patch").read_text()
            alone = shown(out)
            if str(pair[0]) != pair[1] or alone not in (1, 2):
                mixed.append(pair)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        finished[number % 2].publish()
    over.set()
    reader.join()
    assert not mixed


def test_foreign_files_are_kept(out: Path, links: bool) -> None:
    out.mkdir()
    mine = {"tuned.patch": "mine", "applied.json": "{}", "latest.txt": "", "model.keras": "weights"}
    for name, text in mine.items():
        (out / name).write_text(text)
    (out / "originals").mkdir()
    results = Results(out).with_new_run()
    assert results.write_all(measured(1)) == ("tuned.patch",)
    run(out, 2)
    assert {name: (out / name).read_text() for name in mine} == mine
    assert shown(out) == 2 and (out / "originals").is_dir()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.write_text("7"), lambda path: path.symlink_to("to-5")])
def test_what_the_user_has_named_latest_is_kept(tmp_path: Path, make: Callable[[Path], object]) -> None:
    latest = tmp_path / "latest"
    make(latest)
    before = latest.lstat()
    run(tmp_path, 1)
    run(tmp_path, 2)
    assert shown(tmp_path) == 2 and os.path.samestat(latest.lstat(), before)


def test_report_written_to_folder_updates_shown_run(tmp_path: Path) -> None:
    from pipetune.report.render import render

    first = run(tmp_path, 1)
    second = run(tmp_path, 2)
    before = first.report.read_text()
    second.report.write_text("")
    render(session_file.load(tmp_path), "html", tmp_path / "report.html")
    assert second.report.read_text().startswith("<!") and (tmp_path / "report.html").is_symlink()
    assert first.report.read_text() == before


def test_results_folder_of_session_path(tmp_path: Path) -> None:
    out = tmp_path / "out"
    results = run(out, 1)
    shown_at = [out / path for path in ("", "session.json", "latest", "latest/session.json")]
    for path in (*shown_at, results.folder, results.session):
        assert results_folder_of(path) == out
    assert results_folder_of(tmp_path / "elsewhere" / "session.json") == tmp_path / "elsewhere"


# -- the default folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def chosen(script: str) -> str:
    target = Target(script=os.path.abspath(script), directory=os.getcwd())
    return default_results_folder(target, Path("reports")).as_posix()


def test_scripts_of_same_name_get_different_folders(project: Path) -> None:
    """B2: all examples, and most scripts in general, are called train.py."""
    scripts = ["examples/csv/train.py", "examples/busy/train.py", "more/busy/train.py", "train.py"]
    wanted = ["reports/train", "reports/busy-train", "reports/more-busy-train", f"reports/{project.name}-train"]
    assert [chosen(script) for script in scripts] == wanted
    assert [chosen(script) for script in reversed(scripts)] == wanted[::-1], "the same each time"
    (project / "reports/train").rename(project / "elsewhere")
    assert [chosen(script) for script in scripts[1:]] == wanted[1:], "also when a shorter name is free again"


def test_modules_and_scripts_get_different_folders(project: Path) -> None:
    targets = [module_target(name, ()) for name in ("digits.train", "photos.train", "train")]
    found = [default_results_folder(target, Path("reports")) for target in targets]
    assert [path.name for path in found[:2]] == ["train", "photos-train"]
    assert found == [default_results_folder(target, Path("reports")) for target in targets]
    assert len({*found, Path(chosen("train.py"))}) == 4


def test_folder_named_by_out_belongs_to_the_script_in_its_session(project: Path) -> None:
    mine = replace(session(), command=Command(script=str(project / "a/train.py")))
    session_file.save(mine, "reports/train/session.json")
    session_file.save(replace(session(), command=Command(confidential=True)), "reports/test/session.json")
    assert chosen("b/train.py") == "reports/b-train"
    assert chosen("a/train.py") == "reports/train"
    assert chosen("a/test.py") == "reports/a-test", "whose that is nobody can tell"


def test_folders_are_kept_when_project_is_moved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "here").mkdir()
    monkeypatch.chdir(project / "here")
    before = [chosen(script) for script in ("a/train.py", "b/train.py")]
    (project / "here").rename(project / "there")
    monkeypatch.chdir(project / "there")
    assert [chosen(script) for script in ("b/train.py", "a/train.py")] == before[::-1]
    assert not any("a/train" in path.read_text() for path in Path("reports").rglob(results_folder._OWNER_FILE))


def test_concurrent_commands_get_different_folders(project: Path) -> None:
    scripts = [f"{folder}/a/b/train.py" for folder in "stuvwxyz"]
    found: list[str] = []
    threads = [threading.Thread(target=lambda script=script: found.append(chosen(script))) for script in scripts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(scripts) and set(found) == {chosen(script) for script in scripts}, "and keep them"
