"""`pipetune apply`: apply the patch of a session to the source files, or revert it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipetune.cli.command import Answer, lines, session_file_of
from pipetune.core.codec import Json
from pipetune.core.errors import PipetuneError
from pipetune.core.session import NOTHING_TO_CHANGE, PatchResult, Session, outcome_of
from pipetune.core.session_file import load
from pipetune.report.patch import why_no_patch
from pipetune.report.places import script_words, shell
from pipetune.report.words import clean
from pipetune.source.patch_application import (
    RECORD,
    PatchState,
    PatchStatus,
    apply_patch,
    check_applied,
    check_patch,
    is_recorded,
    revert_applied,
    revert_patch,
)
from pipetune.supervisor.results_folder import CANDIDATE_PATCH, FINISHED, ResultsFolder, results_folder_of

SUMMARY = "apply the patch to the source files"

DESCRIPTION = """\
Applies the patch of a session to the source files: to all of them or to none.
The code to change is located by its content, so other parts of the files may
have been edited since; if that code itself was edited, both versions are shown
and nothing is written. The original files are kept in the results folder
(applied.json, originals/), which is all that --revert needs."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "session",
        metavar="SESSION",
        nargs="?",
        help="session.json, or the folder that holds it (default: the newest finished one under reports/)",
    )
    parser.add_argument(
        "--unproven",
        action="store_true",
        help="use candidate.patch, of a plan that may be faster and is not proven, where the session has no patch",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--diff", action="store_true", help="show the patch, change nothing")
    mode.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit code 0 if the patch is applied or there is nothing to change, else 1",
    )
    mode.add_argument("--revert", action="store_true", help="revert the patch that was applied last")


def execute(arguments: argparse.Namespace) -> Answer:
    """Runs the command.

    Raises:
        PipetuneError: there is no session, it holds no patch, or the patch cannot be applied or reverted.
    """
    named = Path(arguments.session) if arguments.session else None
    if arguments.revert:
        return _revert(named)
    path = named or newest_session(Path("reports"))
    session, folder = load(path), results_folder_of(path)
    if named is None:
        about = ", ".join(filter(None, (shell(*script_words(session)), clean(session.command.date))))
        print(f"pipetune: {path.parent}{f' ({about})' if about else ''}", file=sys.stderr)
    patch, candidate = session.patch, session.candidate.patch if session.candidate is not None else None
    if session.command.confidential:
        name, kept = (CANDIDATE_PATCH, candidate) if arguments.unproven else ("tuned.patch", patch)
        if kept is not None and kept.covered and kept.verified is not False:
            file = (path if path.is_dir() else path.parent).absolute() / name
            raise PipetuneError(
                "The session is confidential and holds no patch.",
                hint=f"In the folder with your source files, run: patch -p1 < {shell(str(file))}",
            )
    if arguments.unproven and candidate is not None and candidate.diff:
        patch = candidate
    paths = {"results": folder, "session": session_file_of(str(path))}
    if patch is None or not patch.diff:
        return _no_patch(session, paths, arguments)
    if arguments.diff:
        diff = patch.diff
        return Answer(_data("diff", diff=diff), lambda: sys.stdout.write(diff), paths)
    if patch.of_cells:
        raise PipetuneError(
            "The patch changes cells of a notebook, which pipetune does not write.",
            hint="`pipetune apply --diff` shows the change; pipetune.apply_plan(dataset, session.plan) trains with it.",
        )
    if arguments.check:
        return _checked(check_patch(patch), paths, diff=patch.diff)
    return _apply(session, patch, paths, named)


def newest_session(reports: Path) -> Path:
    """Returns the newest session.json of the results folders in `reports`, of a finished session if there is any.

    Raises:
        PipetuneError: there is no session.
    """
    found = sorted(reports.glob("*/session.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise PipetuneError(
            f"There is no session under {reports}/.",
            hint="`pipetune analyze SCRIPT` creates one; pass its path if it is in another folder.",
        )
    finished = [path for path in found if ResultsFolder(path.parent).status == FINISHED]
    return (finished or found)[-1]


def _data(
    action: str,
    status: PatchStatus | None = None,
    *,
    written: Sequence[str] = (),
    diff: str = "",
    notes: Sequence[str] = (),
) -> dict[str, Json]:
    """Returns the answer for programs; `status` is that of the patch after the action, None where it was not read."""
    return {
        "action": action,
        "state": status.state.value if status else None,
        "files": [{"path": path, "state": state.value} for path, state in status.files] if status else [],
        "written": list(written),
        "diff": diff,
        "notes": [note.strip() for note in notes],
    }


def _no_patch(session: Session, paths: Mapping[str, Path], arguments: argparse.Namespace) -> Answer:
    """Reports a session without a patch; exit code 0 only if the analysis found that there is nothing to change."""
    applied = check_applied(paths["results"])
    if arguments.check and applied.files:
        return _checked(applied, paths)
    notes = list(_notes_without_patch(session, paths["results"], applied))
    out = sys.stderr if arguments.diff else sys.stdout  # where a patch is expected, nothing else is printed
    action = "diff" if arguments.diff else "check" if arguments.check else "apply"
    return Answer(
        _data(action, applied, notes=notes),
        lambda: print(*notes, sep="\n", file=out),
        paths,
        exit_code=0 if outcome_of(session) in NOTHING_TO_CHANGE else 1,
    )


def _notes_without_patch(session: Session, folder: Path, applied: PatchStatus) -> Iterator[str]:
    """Yields why there is no patch, and which others there are."""
    yield f"This session holds no patch: {why_no_patch(session)}."
    candidate = session.candidate
    if candidate is not None and candidate.diff:
        gain = candidate.gain
        yield (
            f"  It holds a candidate, {gain.median:.2f}x as fast ({gain.low:.2f} to {gain.high:.2f} in 80 of 100 "
            f"cases): pipetune apply --unproven {_shell_path(folder)}"
        )
    for rejection in session.patch.not_covered if session.patch else ():
        yield f"  {rejection.rule}: {rejection.why}"
    for file, state in applied.files:
        if state is PatchState.APPLIED:
            yield f"  {file} has the patch of an earlier session: pipetune apply --revert {_shell_path(folder)}"
    patches = [path for path in folder.glob("runs/*/tuned.patch") if path.stat().st_size]
    if patches:
        newest = max(patches, key=lambda path: path.stat().st_mtime)
        yield f"  Another run holds a patch: pipetune apply {_shell_path(newest.parent)}"


def _shell_path(path: Path) -> str:
    inside = os.path.relpath(path)
    return shell(str(path) if inside.startswith("..") else inside)


def _checked(status: PatchStatus, paths: Mapping[str, Path], *, diff: str = "") -> Answer:
    return Answer(
        _data("check", status, diff=diff),
        lines(*(f"{state.value}: {file}" for file, state in status.files)),
        paths,
        exit_code=0 if status.state in (PatchState.APPLIED, PatchState.EMPTY) else 1,
    )


def _revert(named: Path | None) -> Answer:
    """Reverts what the results folder records as applied, or the patch of the session if it records nothing."""
    if named is not None:
        folder = results_folder_of(named)
    else:
        records = sorted(Path("reports").glob(f"*/{RECORD}"), key=lambda path: path.stat().st_mtime)
        folder = records[-1].parent if records else newest_session(Path("reports")).parent
        print(f"pipetune: {folder}", file=sys.stderr)
    if is_recorded(folder):
        written = revert_applied(folder)
    else:
        patch = load(named or folder).patch
        if patch is None or not patch.diff:
            raise PipetuneError(
                "No patch is applied.", hint=f"An applied patch would be recorded in {folder / RECORD}.", exit_code=1
            )
        written = revert_patch(patch)
    notes = () if written else ("The patch is not applied.",)
    status = PatchStatus(PatchState.CLEAN, tuple((file, PatchState.CLEAN) for file in written))
    shown = lines(*(f"reverted: {file}" for file in written), *notes)
    return Answer(_data("revert", status, written=written, notes=notes), shown, {"results": folder})


def _apply(session: Session, patch: PatchResult, paths: Mapping[str, Path], named: Path | None) -> Answer:
    warnings = machine_warnings(session, patch)
    for text in warnings:
        print(f"pipetune: {text}", file=sys.stderr)
    edited = check_patch(patch).edited
    written = apply_patch(patch, folder=paths["results"])
    shown = [] if written else ["The patch is already applied."]
    for file in written:
        shown.append(f"patched: {file}")
        if file in edited:
            shown.append(
                "  Other parts of this file were edited after the analysis: the speedup was measured without those "
                "edits."
            )
    shown += [f"not in the patch: {rejection.rule}: {rejection.why}" for rejection in patch.not_covered]
    if written:
        place = f" {_shell_path(paths['results'])}" if named else ""
        shown.append(f"`pipetune apply --revert{place}` reverts it.")
    data = _data("apply", check_patch(patch), written=written, diff=patch.diff, notes=[*warnings, *shown])
    return Answer(data, lines(*shown), paths)


def machine_warnings(session: Session, patch: PatchResult) -> list[str]:
    """Returns the warnings to show before this patch of the session is applied on this machine."""
    texts = []
    candidate = session.candidate
    if candidate is not None and patch is candidate.patch:
        texts.append(f"The patch is not proven to be faster. {candidate.why}")
    elif patch.verified is None:
        texts.append("The patch was not verified by running it.")
    machine = session.machine
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if machine is not None and machine.cores_affinity != cores:
        texts.append(
            f"The patch was measured on {machine.cores_affinity} cores ({machine.processor}), but this machine "
            f"has {cores}: other values may be faster; run `pipetune analyze` here."
        )
    return texts
