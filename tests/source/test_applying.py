"""Apply, check and revert: exact bytes, all files or none, and user edits are never overwritten."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.core.errors import PipetuneError
from pipetune.core.session import PatchResult
from pipetune.source import source_files
from pipetune.source.emit import Emission
from pipetune.source.patch_application import (
    PatchState,
    apply_patch,
    check_applied,
    check_patch,
    digest_of,
    patched_texts,
    revert_applied,
    revert_patch,
)
from pipetune.source.source_files import decode_source
from pipetune.source.unified_diffs import unified_diff

TEXTS = {
    "train.py": (b"a = 1\r\nb = 2\r\n", b"a = 1\r\nb = 3\r\n"),
    "lib/data.py": (
        "# -*- coding: latin-1 -*-\ns = 'é'\nx = 1".encode("latin-1"),
        "# -*- coding: latin-1 -*-\ns = 'é'\nx = 2".encode("latin-1"),
    ),
    "lib/marked.py": ("\ufeffx = 1\n".encode(), "\ufeffx = 2\n".encode()),
}


class Project:
    def __init__(self, root):
        self.root, self.folder = root / "project", root / "reports"
        for name, (old, _) in TEXTS.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(old)
        self.patch = self.made({name: new for name, (_, new) in TEXTS.items()})

    def made(self, new: dict[str, bytes]) -> PatchResult:
        """The patch from the current files to `new`."""
        changes = {
            str(self.root / name): (decode_source((self.root / name).read_bytes()), decode_source(data))
            for name, data in sorted(new.items())
        }
        emission = Emission(changes, (), ())
        return PatchResult(
            diff=unified_diff(emission, root=str(self.root), header="machine"),
            files=tuple(emission.files),
            digests={path: digest_of(path) for path in emission.files},
            texts={path: old for path, (old, _) in changes.items()},
        )

    def is_old(self):
        return all((self.root / name).read_bytes() == old for name, (old, _) in TEXTS.items())

    def is_new(self):
        return all((self.root / name).read_bytes() == new for name, (_, new) in TEXTS.items())

    @property
    def state(self):
        return check_patch(self.patch).state

    def leftovers(self):
        return [path.name for path in self.root.rglob("*") if path.name.startswith(".pipetune")]


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def test_apply_check_revert(project):
    assert project.state is PatchState.CLEAN
    assert apply_patch(project.patch, folder=project.folder) == project.patch.files
    assert project.is_new() and project.state is PatchState.APPLIED
    assert apply_patch(project.patch, folder=project.folder) == ()
    assert revert_applied(project.folder) == project.patch.files
    assert project.is_old() and project.state is PatchState.CLEAN
    assert list(project.folder.iterdir()) == [] and project.leftovers() == []
    with pytest.raises(PipetuneError, match="No patch is applied"):
        revert_applied(project.folder)


def test_what_is_verified_is_what_the_diff_makes_of_the_captured_texts(project):
    for name in TEXTS:
        (project.root / name).write_bytes(b"edited = True\n")
    wanted = {str(project.root / name): decode_source(new) for name, (_, new) in sorted(TEXTS.items())}
    assert patched_texts(project.patch) == wanted
    with pytest.raises(PipetuneError, match="does not apply to"):
        patched_texts(replace(project.patch, texts={}))


def test_file_mode_and_symlinks_are_kept(project):
    script, link = project.root / "train.py", project.root / "lib/data.py"
    script.chmod(0o754)
    link.rename(project.root / "real.py")
    link.symlink_to("../real.py")
    apply_patch(project.patch, folder=project.folder)
    assert stat.S_IMODE(script.stat().st_mode) == 0o754
    assert link.is_symlink() and (project.root / "real.py").read_bytes() == TEXTS["lib/data.py"][1]
    revert_applied(project.folder)
    assert stat.S_IMODE(script.stat().st_mode) == 0o754 and link.is_symlink() and project.is_old()


def test_edits_elsewhere_survive_apply_and_revert(project):
    script = project.root / "train.py"
    script.write_bytes(b"# mine\r\n" + TEXTS["train.py"][0])
    assert project.state is PatchState.CLEAN
    assert check_patch(project.patch).edited == (str(script),)
    apply_patch(project.patch, folder=project.folder)
    assert script.read_bytes() == b"# mine\r\n" + TEXTS["train.py"][1] and project.state is PatchState.APPLIED
    script.write_bytes(script.read_bytes() + b"c = 4\r\n")
    (project.root / "lib/data.py").write_bytes(TEXTS["lib/data.py"][1] + b"\ny = '\xe9'\n")  # as its cookie says
    assert project.state is PatchState.APPLIED and check_applied(project.folder).state is PatchState.APPLIED
    assert revert_applied(project.folder) == project.patch.files
    assert script.read_bytes() == b"# mine\r\n" + TEXTS["train.py"][0] + b"c = 4\r\n"
    assert (project.root / "lib/data.py").read_bytes() == TEXTS["lib/data.py"][0] + b"\ny = '\xe9'\n"
    assert (project.root / "lib/marked.py").read_bytes() == TEXTS["lib/marked.py"][0]
    assert list(project.folder.iterdir()) == []


def test_conflicting_edit_shows_both_versions_and_writes_nothing(project):
    (project.root / "train.py").write_bytes(b"a = 1\r\nb = 2 + 2\r\n")
    with pytest.raises(PipetuneError) as caught:
        apply_patch(project.patch, folder=project.folder)
    assert caught.value.message.splitlines() == [
        f"{project.root / 'train.py'} changed after it was analyzed. Nothing was written.",
        "  analyzed, line 2:",
        "    b = 2",
        "  now, line 2:",
        "    b = 2 + 2",
    ]
    assert "pipetune analyze" in caught.value.hint and caught.value.exit_code == 1
    assert project.state is PatchState.CHANGED
    assert (project.root / "lib/data.py").read_bytes() == TEXTS["lib/data.py"][0]
    assert not project.folder.exists()


def test_session_without_texts_applies_only_to_unchanged_files(project):
    """Sessions of an earlier release do not contain them."""
    old = replace(project.patch, texts={})
    (project.root / "train.py").write_bytes(b"a = 1\r\nb = 2\r\nc = 3\r\n")
    with pytest.raises(PipetuneError, match=r"train\.py changed after it was analyzed"):
        apply_patch(old, folder=project.folder)
    (project.root / "train.py").write_bytes(TEXTS["train.py"][0])
    assert apply_patch(old, folder=project.folder) == project.patch.files
    assert project.is_new()


def test_missing_file_is_refused(project):
    (project.root / "lib/marked.py").unlink()
    assert project.state is PatchState.MISSING
    with pytest.raises(PipetuneError, match="not exist any more") as raised:
        apply_patch(project.patch, folder=project.folder)
    assert raised.value.exit_code == 1
    assert (project.root / "train.py").read_bytes() == TEXTS["train.py"][0]


@pytest.mark.parametrize("change", [b"", b"a = 1\r\nb = 30\r\n", b"\xff\xfe", b"a = 1\r\nb = (\r\n"])
def test_revert_refuses_a_file_edited_at_the_patched_place(project, change):
    apply_patch(project.patch, folder=project.folder)
    (project.root / "train.py").write_bytes(change)
    with pytest.raises(PipetuneError, match=r"train\.py changed after the patch was applied") as caught:
        revert_applied(project.folder)
    assert "originals" in caught.value.hint
    assert (project.root / "train.py").read_bytes() == change
    assert (project.root / "lib/data.py").read_bytes() == TEXTS["lib/data.py"][1]
    assert check_applied(project.folder).state is PatchState.CHANGED


def test_damaged_copy_is_not_restored(project):
    apply_patch(project.patch, folder=project.folder)
    next(project.folder.glob("originals/*train.py")).write_bytes(b"lost")
    with pytest.raises(PipetuneError, match="damaged"):
        revert_applied(project.folder)
    assert project.is_new()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_failed_write_restores_files_already_written(project, monkeypatch, error, failing):
    real, seen = os.replace, []

    def replace(source, target):
        if str(target).startswith(str(project.root)):
            seen.append(target)
            if len(seen) == failing:
                raise error
        real(source, target)

    monkeypatch.setattr(source_files.os, "replace", replace)
    with pytest.raises(PipetuneError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        apply_patch(project.patch, folder=project.folder)
    assert project.is_old() and project.leftovers() == []
    assert not (project.folder / "applied.json").exists()
    if isinstance(error, OSError):
        assert "No space left" in str(caught.value) and "Nothing was changed" in caught.value.hint


@pytest.mark.parametrize("fails", [False, True])
def test_interrupted_apply_can_be_completed_and_reverted(project, monkeypatch, fails):
    """As after a crash: the record is written, one file is patched, the others are not."""
    real, rename = source_files.write_all, os.replace

    def one_file(changes):
        inside = [one for one in changes if one.path.startswith(str(project.root))]
        real([one for one in changes if one not in inside[1:]])

    def full_disk(source, target):
        if str(target).startswith(str(project.root)):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr("pipetune.source.patch_application.write_all", one_file)
    apply_patch(project.patch, folder=project.folder)
    monkeypatch.undo()
    assert project.state is PatchState.PARTLY
    if fails:
        monkeypatch.setattr(source_files.os, "replace", full_disk)
        with pytest.raises(PipetuneError, match="No space left"):
            apply_patch(project.patch, folder=project.folder)
        monkeypatch.undo()
        assert project.state is PatchState.PARTLY
    else:
        assert len(apply_patch(project.patch, folder=project.folder)) == 2
        assert project.is_new()
    revert_applied(project.folder)
    assert project.is_old() and list(project.folder.iterdir()) == []


def test_patch_reverted_by_hand_can_be_applied_again(project):
    apply_patch(project.patch, folder=project.folder)
    for name, (old, _) in TEXTS.items():
        (project.root / name).write_bytes(old)
    assert len(apply_patch(project.patch, folder=project.folder)) == 3
    revert_applied(project.folder)
    with pytest.raises(PipetuneError, match="No patch is applied"):
        revert_applied(project.folder)


def test_unwritable_file_is_named_and_nothing_is_changed(project):
    (project.root / "lib/marked.py").chmod(0o444)
    with pytest.raises(PipetuneError, match=r"marked\.py is not writable"):
        apply_patch(project.patch, folder=project.folder)
    assert project.is_old() and not (project.folder / "applied.json").exists()


def test_unwritable_record_folder_stops_before_any_change(project, tmp_path):
    project.folder.write_text("a file where the folder should be")
    with pytest.raises(PipetuneError, match="original files cannot be saved"):
        apply_patch(project.patch, folder=project.folder)
    assert project.is_old()


def test_patch_applied_by_hand_is_detected_and_reverted(project):
    for name, (_, new) in TEXTS.items():
        (project.root / name).write_bytes(new)
    (project.root / "train.py").write_bytes(b"# mine\r\n" + TEXTS["train.py"][1])
    assert project.state is PatchState.APPLIED
    assert apply_patch(project.patch, folder=project.folder) == ()
    revert_patch(project.patch)
    assert (project.root / "train.py").read_bytes() == b"# mine\r\n" + TEXTS["train.py"][0]
    with pytest.raises(PipetuneError, match="not applied"):
        revert_patch(project.patch)


def test_missing_file_of_an_applied_patch_is_reported(project):
    apply_patch(project.patch, folder=project.folder)
    (project.root / "lib/marked.py").unlink()
    assert check_applied(project.folder).state is project.state is PatchState.MISSING


def test_patch_reverted_by_hand_is_reported_as_clean(project):
    apply_patch(project.patch, folder=project.folder)
    for name, (old, _) in TEXTS.items():
        (project.root / name).write_bytes(old + b"\n# mine\n")
    assert check_applied(project.folder).state is PatchState.CLEAN
    assert revert_applied(project.folder) == () and not (project.folder / "applied.json").exists()


def test_later_patch_is_reverted_first(project):
    apply_patch(project.patch, folder=project.folder)
    second = project.made({"train.py": b"a = 0\r\nb = 3\r\n"})
    apply_patch(second, folder=project.folder)
    assert revert_applied(project.folder) == second.files
    assert project.is_new()
    revert_applied(project.folder)
    assert project.is_old()


def test_empty_patch(project):
    empty = PatchResult()
    assert check_patch(empty).state is PatchState.EMPTY
    assert apply_patch(empty, folder=project.folder) == () and not project.folder.exists()


def test_session_that_contradicts_its_patch_is_refused(project):
    with pytest.raises(PipetuneError, match="lists 0 files"):
        check_patch(PatchResult(diff=project.patch.diff))
    swapped = PatchResult(project.patch.diff, project.patch.files[::-1], project.patch.digests)
    with pytest.raises(PipetuneError, match="but the session lists"):
        check_patch(swapped)


def test_unreadable_record_is_an_error(project):
    project.folder.mkdir()
    (project.folder / "applied.json").write_text("{")
    with pytest.raises(PipetuneError, match="cannot be read"):
        apply_patch(project.patch, folder=project.folder)
    assert project.is_old()


def test_digest_of_the_decoded_text_is_accepted(project):
    digests = {
        path: hashlib.sha256(decode_source(Path(path).read_bytes()).encode()).hexdigest()
        for path in project.patch.files
    }
    assert digests != project.patch.digests  # one of the files is not in UTF-8
    patch = PatchResult(project.patch.diff, project.patch.files, digests)
    assert apply_patch(patch, folder=project.folder) == patch.files and check_patch(patch).state is PatchState.APPLIED
    revert_applied(project.folder)
    assert project.is_old()
