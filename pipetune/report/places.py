"""Where things stand in the user's source, and what a confidential session keeps back."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass

from pipetune.core.pipeline import Pipeline, SourceLocation, location_of
from pipetune.core.session import Session
from pipetune.core.settings import Settings
from pipetune.report.blocks import Place
from pipetune.report.words import clean, sentence

WITHHELD = "withheld"


@dataclass(frozen=True)
class Places:
    """Turns files and operators into the text to show.

    Args:
        base: the folder that file names are shown relative to; empty: as they are.
        confidential: nothing of the user's source, paths and arguments may be shown.
    """

    base: str = ""
    confidential: bool = False

    def file(self, name: str | None) -> str:
        """A file as a reader types it: relative to the script's folder where it lies inside."""
        if not name:
            return ""
        if self.confidential:
            return WITHHELD
        if self.base and os.path.isabs(name):
            inside = os.path.relpath(name, self.base)
            if not inside.startswith(".."):
                return clean(inside)
        return clean(name)

    def line(self, name: str | None, number: int | None) -> str:
        """`file:line`, or "In [3], line 2" for a cell of a notebook; nothing where the file is not known."""
        shown = self.file(name)
        if not shown or number is None:
            return shown
        if self.confidential:
            return f"line {number}"
        return f"{shown}, line {number}" if shown.startswith("In [") else f"{shown}:{number}"

    def location(self, location: SourceLocation | None) -> str:
        return self.line(location.file, location.line) if location else ""

    def place(self, file: str | None, line: int | None) -> Place | None:
        """A place to link to; None where the file is not known."""
        text = self.line(file, line)
        if not text:
            return None
        linked = file if file and os.path.isabs(file) and not self.confidential else ""
        return Place(text, clean(linked or ""), line or 0)

    def place_of(self, location: SourceLocation | None) -> Place | None:
        return self.place(location.file, location.line) if location else None

    def place_of_node(self, node_id: str, *pipelines: Pipeline | None) -> Place | None:
        """Where operator `node_id` stands; an inserted one ("prefetch@n3") stands at the call it follows."""
        return self.place_of(location_of(node_id, *pipelines))

    def sentence(self, text: str) -> str:
        """A sentence of a session as a sentence to show; files in it relative to the folder, as elsewhere."""
        base = self.base.rstrip("/")
        return sentence(clean(re.sub(rf"(?<![\w./-]){re.escape(base)}/", "", text) if base else text))

    def foreign(self, text: str, *, lines: bool = False) -> str:
        """Text that may quote the user's source or paths (errors, tracebacks, diffs)."""
        if self.confidential and text:
            return f"({WITHHELD}: the session is confidential)"
        return clean(text, lines=lines)


def places_of(session: Session) -> Places:
    """The folder the command ran in, else the script's, is what names are relative to."""
    command = session.command
    base = command.directory or os.path.dirname(command.script)
    return Places(base=base if os.path.isabs(base) else "", confidential=command.confidential)


def script_words(session: Session) -> tuple[str, ...]:
    """What was run, as command-line words: ("train.py", "--epochs", "3") or ("-m", "package.train")."""
    command = session.command
    if command.confidential:
        return ()
    if command.module:
        return ("-m", command.module, *command.arguments)
    if command.script:
        return (places_of(session).file(command.script), *command.arguments)
    return ()


def analyze_words(session: Session, *, as_before: bool = False) -> tuple[str, ...]:
    """What to type in front of a script to analyse it again, with the options that it was given.

    How long it may take, and that nothing was to be tried, is left out unless `as_before`.
    """
    given, usual = session.command.options, Settings()
    words = ["pipetune", "analyze"]
    if as_before:
        words += ["--budget", f"{given.budget_seconds:g}"] * (given.budget_seconds != usual.budget_seconds)
        words += ["--quick"] * given.quick + ["--no-trials"] * (not given.trials)
    words += ["--force"] * given.force
    for name in ("workers", "parameter_servers", "steps", "memory_limit_bytes", "distribute", "dataset", "device"):
        value = getattr(given, name)
        if value != getattr(usual, name):
            words += [f"--{name.removesuffix('_bytes').replace('_', '-')}", str(value)]
    if given.step_time_seconds:
        words += ["--step-time", f"{1000 * given.step_time_seconds:g}"]
    if given.allow:
        words += ["--allow", ",".join(sorted(given.allow))]
    if given.without:
        words += ["--without", ",".join(sorted(given.without))]
    return tuple(words + ["--cold"] * given.cold)


def results_folder(session: Session) -> str:
    """Where `analyze` wrote its files, as typed from the folder it ran in; empty where not known."""
    command = session.command
    return "" if command.confidential else places_of(session).file(command.out or command.options.out)


def shell(*parts: str) -> str:
    """Words as one shell command a reader can paste."""
    return clean(" ".join(shlex.quote(part) for part in parts))
