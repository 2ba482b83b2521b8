"""Applies a session's patch to the source files, and reverts it.

The new texts come from the diff stored in the session, not from emitting the plan again: the diff is what the user
read, and what was run to verify it. A file that is unchanged since it was captured is patched exactly, without any
guessing; in a file edited since then, the patched places are found by their content (`patch_merge`). The results folder
keeps all that reverting needs: the record `applied.json`, and copies of the original files in `originals/`.
"""

from __future__ import annotations

import enum
import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import indent

from pipetune.core.errors import PipetuneError
from pipetune.core.session import PatchResult
from pipetune.source.patch_merge import InvalidSource, PlaceChanged, merge
from pipetune.source.source_files import FileChange, decode_source, encode_source, write_all
from pipetune.source.unified_diffs import FilePatch, file_diff, read_patch

SCHEMA = 1  # version of the format of `RECORD`
RECORD = "applied.json"
_ANALYZE_AGAIN_HINT = "Run `pipetune analyze` again on the current file, or undo that change."


class PatchState(enum.StrEnum):
    """Whether the patch is applied to a file, or to all files together."""

    CLEAN = "not applied"
    APPLIED = "applied"
    CHANGED = "changed"  # a place of the patch contains other code
    PARTLY = "partly applied"  # to some of several files
    MISSING = "missing"
    EMPTY = "empty"  # the patch changes nothing


@dataclass(frozen=True)
class PatchStatus:
    """Whether a patch is applied, in total and per file."""

    state: PatchState
    files: tuple[tuple[str, PatchState], ...]
    edited: tuple[str, ...] = ()  # files edited since they were captured, outside the places of the patch


@dataclass(frozen=True)
class _FileState:
    """Whether the patch is applied to a file, and its bytes without and with the patch, as far as known."""

    path: str
    state: PatchState
    original: bytes = b""
    patched: bytes = b""
    edited: bool = False  # since it was captured, outside the places of the patch
    problem: PipetuneError | None = None  # why the patch cannot be applied


@dataclass(frozen=True)
class _AppliedFile:
    """The entry of one file in `applied.json`; `backup` is relative to the results folder."""

    path: str
    original_sha256: str
    applied_sha256: str
    backup: str
    diff: str  # from the original to the patched text


def digest_of(path: str) -> str:
    """Returns the SHA-256 of a file's bytes, in the form stored in `PatchResult.digests`."""
    return _digest(Path(path).read_bytes())


def patched_texts(patch: PatchResult) -> dict[str, str]:
    """Returns the text of every file that a patch changes, as it was captured, with the patch applied.

    Raises:
        PipetuneError: the patch does not contain these texts, or does not apply to them.
    """
    found: dict[str, str] = {}
    for path, part in _parts(patch):
        new = part.apply(patch.texts.get(path, ""))
        if new is None:
            raise PipetuneError(f"The patch of this session does not apply to {path} as it was captured.")
        found[path] = new
    return found


def check_patch(patch: PatchResult) -> PatchStatus:
    """Returns whether the patch is applied to the files, not applied, or does not fit them any more."""
    found = _file_states(patch)
    return _status([(file.path, file.state) for file in found], edited=[file.path for file in found if file.edited])


def _status(files: Sequence[tuple[str, PatchState]], *, edited: Sequence[str] = ()) -> PatchStatus:
    states = {state for _, state in files}
    if states == {PatchState.CLEAN, PatchState.APPLIED}:
        states = {PatchState.PARTLY}
    decisive = (state for state in (PatchState.MISSING, PatchState.CHANGED, *states) if state in states)
    return PatchStatus(next(decisive, PatchState.EMPTY), tuple(files), tuple(edited))


def check_applied(folder: Path) -> PatchStatus:
    """Returns the same for the patch applied last, independent of the session in the results folder `folder`."""
    files = []
    for kept in next(reversed(_read_record(folder)), []):
        try:
            files.append((kept.path, PatchState.APPLIED if _revert_change(kept, folder) else PatchState.CLEAN))
        except PipetuneError:
            there = Path(kept.path).exists()
            files.append((kept.path, PatchState.CHANGED if there else PatchState.MISSING))
    return _status(files)


def apply_patch(patch: PatchResult, *, folder: Path) -> tuple[str, ...]:
    """Applies the patch to all files, or to none.

    Args:
        folder: the results folder, where the originals are kept.

    Returns:
        The files written; none if the patch is already applied.

    Raises:
        PipetuneError: a place of the patch changed since it was captured, or a file cannot be written; none is changed.
    """
    files = _file_states(patch)
    for file in files:
        if file.problem is not None:
            raise file.problem
    waiting = [file for file in files if file.state is PatchState.CLEAN]
    if not waiting:
        return ()
    before = _drop_reverted(_read_record(folder), folder)
    applied = [(one.path, one.diff) for one in (_applied_file(file, "") for file in files)]
    interrupted = bool(before) and [(kept.path, kept.diff) for kept in before[-1]] == applied  # an earlier `apply`
    before = before[:-1] if interrupted else before
    _back_up(folder, before, files)
    try:
        write_all([FileChange(file.path, file.original, file.patched) for file in waiting])
    except BaseException:
        if not interrupted:  # else some files have the patch
            _write_record(folder, before)
        raise
    return tuple(file.path for file in waiting)


def is_recorded(folder: Path) -> bool:
    """Whether the results folder `folder` has a record of an applied patch.

    Raises:
        PipetuneError: the record cannot be read.
    """
    return bool(_read_record(folder))


def revert_applied(folder: Path) -> tuple[str, ...]:
    """Reverts the patch that `apply_patch` applied last, from the record and the originals alone; all files or none.

    Edits made since then outside the places of the patch are kept.

    Returns:
        The files written; none if the patch was already reverted by other means.

    Raises:
        PipetuneError: no patch is recorded, a place of the patch changed since, or a file cannot be written.
    """
    record = _read_record(folder)
    if not record:
        raise PipetuneError(
            "No patch is applied.",
            hint=f"It would be recorded in {folder / RECORD}. `pipetune apply` applies one.",
            exit_code=1,
        )
    changes = [change for kept in record[-1] if (change := _revert_change(kept, folder)) is not None]
    write_all(changes)
    _write_record(folder, record[:-1])
    for kept in record[-1]:
        (folder / kept.backup).unlink(missing_ok=True)
    return tuple(change.path for change in changes)


def revert_patch(patch: PatchResult) -> tuple[str, ...]:
    """Reverts a patch that was applied by other means (`git apply`); all files or none.

    Returns:
        The files written.

    Raises:
        PipetuneError: the patch is not applied to all files, or a file cannot be written.
    """
    files = _file_states(patch)
    for file in files:
        if file.problem is not None:
            raise file.problem
    if not files or any(file.state is not PatchState.APPLIED for file in files):
        raise PipetuneError(
            "The patch of this session is not applied.", hint="`pipetune apply` applies it.", exit_code=1
        )
    write_all([FileChange(file.path, file.patched, file.original) for file in files])
    return tuple(file.path for file in files)


def _revert_change(kept: _AppliedFile, folder: Path) -> FileChange | None:
    """Returns the change that reverts the patch in one file, or None if it is already reverted there."""
    backup = folder / kept.backup
    try:
        now, original = Path(kept.path).read_bytes(), backup.read_bytes()
    except OSError as error:
        raise PipetuneError(
            f"{kept.path} cannot be restored: {error.strerror}: {error.filename}.", exit_code=1
        ) from error
    if _digest(original) != kept.original_sha256:
        raise PipetuneError(f"{backup}, the copy of the original {kept.path}, is damaged.", exit_code=1)
    if _digest(now) == kept.applied_sha256:
        return FileChange(kept.path, now, original)
    if now == original:
        return None
    hint = f"Undo that change first; the original file is {backup}."
    before = decode_source(original)
    (part,) = read_patch(kept.diff)
    after = part.apply(before)
    if after is None:
        raise PipetuneError(f"The diff recorded in {folder / RECORD} does not apply to {backup}.", exit_code=1)
    try:
        return FileChange(kept.path, now, _merge_edits(after, before, now, strict=False))
    except (PlaceChanged, InvalidSource) as problem:
        try:
            _merge_edits(before, after, now, strict=False)
            return None
        except (PlaceChanged, InvalidSource):
            raise _refusal(kept.path, problem, "after the patch was applied", "patched", hint) from problem


def _drop_reverted(record: list[list[_AppliedFile]], folder: Path) -> list[list[_AppliedFile]]:
    """Returns the record without the latest patches that were reverted by other means since."""
    while record:
        try:
            if any(_revert_change(kept, folder) for kept in record[-1]):
                break
        except PipetuneError:
            break
        record = record[:-1]
    return record


def _file_states(patch: PatchResult) -> list[_FileState]:
    return [_file_state(path, part, patch) for path, part in _parts(patch)]


def _parts(patch: PatchResult) -> list[tuple[str, FilePatch]]:
    """Returns what a patch changes in each file, by its path.

    Raises:
        PipetuneError: the files of the session are others than those of its diff.
    """
    parts = read_patch(patch.diff)
    if len(parts) != len(patch.files):
        raise PipetuneError(f"The session lists {len(patch.files)} files, but its patch changes {len(parts)}.")
    for path, part in zip(patch.files, parts, strict=True):
        if not Path(path).as_posix().endswith(part.path):
            raise PipetuneError(f"The patch changes {part.path}, but the session lists {path}.")
    return list(zip(patch.files, parts, strict=True))


def _file_state(path: str, part: FilePatch, patch: PatchResult) -> _FileState:
    digest = patch.digests.get(path, "")
    try:
        now = Path(path).read_bytes()
        text = decode_source(now)
    except FileNotFoundError:
        missing = PipetuneError(f"{path} does not exist any more.", hint=_ANALYZE_AGAIN_HINT, exit_code=1)
        return _FileState(path, PatchState.MISSING, problem=missing)
    except OSError as error:
        raise PipetuneError(f"{path} cannot be read: {error.strerror}.", exit_code=1) from error
    except (SyntaxError, UnicodeError):
        encoding = InvalidSource("its bytes do not match its declared encoding")
        return _FileState(path, PatchState.CHANGED, problem=_refusal(path, encoding))
    if _matches_digest(now, digest):
        new = part.apply(text)
        if new is None:
            raise PipetuneError(
                f"The patch of this session does not apply to {path}.", hint=_ANALYZE_AGAIN_HINT, exit_code=1
            )
        return _FileState(path, PatchState.CLEAN, original=now, patched=encode_source(new, like=now))
    old = part.apply(text, reverse=True)
    if old is not None and _matches_digest(original := encode_source(old, like=now), digest):
        return _FileState(path, PatchState.APPLIED, original=original, patched=now)
    return _edited_file_state(path, part, now, captured=patch.texts.get(path))


def _edited_file_state(path: str, part: FilePatch, now: bytes, *, captured: str | None) -> _FileState:
    """Checks a file that was edited since it was captured, by content if the session stores the captured text."""
    patched = part.apply(captured) if captured is not None else None
    if captured is None or patched is None:
        changed = PipetuneError(f"{path} changed after it was analyzed.", hint=_ANALYZE_AGAIN_HINT, exit_code=1)
        return _FileState(path, PatchState.CHANGED, problem=changed)
    try:
        new = _merge_edits(captured, patched, now, strict=True)
        return _FileState(path, PatchState.CLEAN, original=now, patched=new, edited=True)
    except (PlaceChanged, InvalidSource) as problem:
        try:
            old = _merge_edits(patched, captured, now, strict=False)
            return _FileState(path, PatchState.APPLIED, original=old, patched=now, edited=True)
        except (PlaceChanged, InvalidSource):
            return _FileState(path, PatchState.CHANGED, problem=_refusal(path, problem))


def _merge_edits(before: str, after: str, now: bytes, *, strict: bool) -> bytes:
    try:
        text = decode_source(now)
    except (SyntaxError, UnicodeError) as error:
        raise InvalidSource("its bytes do not match its declared encoding") from error
    return encode_source(merge(before, after, text, strict=strict), like=now)


def _refusal(
    path: str,
    problem: PlaceChanged | InvalidSource,
    since: str = "after it was analyzed",
    earlier: str = "analyzed",
    hint: str = _ANALYZE_AGAIN_HINT,
) -> PipetuneError:
    """Returns the error that shows both versions of a changed place."""
    if isinstance(problem, InvalidSource):
        return PipetuneError(f"{path} changed {since}: {problem}.", hint=hint, exit_code=1)
    where = f"{problem.where} in {path}" if problem.where else path
    lines = [f"{where} changed {since}. Nothing was written."]
    if problem.analyzed.text:
        lines += [f"  {earlier}, line {problem.analyzed.first_line}:", indent(problem.analyzed.display_text, "    ")]
    if problem.current is None:
        lines.append("  now: deleted or renamed")
    elif problem.current.text:
        lines += [f"  now, line {problem.current.first_line}:", indent(problem.current.display_text, "    ")]
    else:
        lines.append("  now: no similar code")
    return PipetuneError("\n".join(lines), hint=hint, exit_code=1)


def _matches_digest(data: bytes, digest: str) -> bool:
    """Whether `digest` is that of the file's bytes or of its text in UTF-8; an encoding cookie makes them differ."""
    return digest in (_digest(data), _digest(decode_source(data).encode()))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _applied_file(file: _FileState, backup: str) -> _AppliedFile:
    diff = file_diff(Path(file.path).name, decode_source(file.original), decode_source(file.patched))
    return _AppliedFile(file.path, _digest(file.original), _digest(file.patched), backup, diff)


def _back_up(folder: Path, record: list[list[_AppliedFile]], files: Sequence[_FileState]) -> None:
    """Copies the originals and records them, before any file is written."""
    kept, copies = [], []
    try:
        originals = folder / "originals"
        originals.mkdir(parents=True, exist_ok=True)
        for position, file in enumerate(files):
            backup = originals / f"{len(record)}-{position}-{Path(file.path).name}"
            copies.append(FileChange(str(backup), backup.read_bytes() if backup.exists() else None, file.original))
            kept.append(_applied_file(file, backup.relative_to(folder).as_posix()))
        _write_record(folder, [*record, kept], copies)
    except OSError as error:
        raise PipetuneError(
            f"The original files cannot be saved in {folder}: {error.strerror}.",
            hint="Nothing was changed. Make the folder writable, or apply the output of `pipetune apply --diff` "
            "with git.",
        ) from error


def _read_record(folder: Path) -> list[list[_AppliedFile]]:
    """Returns every patch that was applied and not reverted, oldest first, as the entries of its files."""
    file = folder / RECORD
    try:
        stored = json.loads(file.read_text("utf-8"))
        return [[_AppliedFile(**kept) for kept in application] for application in stored["applied"]]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipetuneError(
            f"{file} cannot be read.", hint="The original files are in the folder `originals` next to it."
        ) from error


def _write_record(folder: Path, record: list[list[_AppliedFile]], copies: Sequence[FileChange] = ()) -> None:
    """Writes the record, and copies of the originals that it refers to; all of these files or none."""
    file = folder / RECORD
    if not record:
        file.unlink(missing_ok=True)
        shutil.rmtree(folder / "originals", ignore_errors=True)
        return
    stored = {"schema": SCHEMA, "applied": [[asdict(kept) for kept in application] for application in record]}
    text = json.dumps(stored, indent=1, ensure_ascii=False).encode()
    write_all([*copies, FileChange(str(file), file.read_bytes() if file.exists() else None, text)])
