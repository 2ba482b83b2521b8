"""Runs the user's script or module as `__main__`, as `python script.py arguments` would."""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import runpy
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipetune.core.errors import PipetuneError
from pipetune.core.messages import Job

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

Compile = Callable[[str | bytes, str], types.CodeType]
"""Compiles source text, given with its path, to a code object."""


def as_written(source: str | bytes, path: str) -> types.CodeType:
    """Compiles source as Python itself does."""
    return compile(source, path, "exec", dont_inherit=True)


def run(job: Job, compiled: Compile = as_written, *, modules: Callable[[str], bool] = lambda _path: False) -> None:
    """Runs the job's script to its end; whatever it raises, `SystemExit` included, reaches the caller.

    Args:
        job: names the script, its arguments, and the texts to use in place of its files (`Job.overlay`).
        compiled: compiles the script and every overlaid file.
        modules: whether an imported file, given by its path, is compiled by `compiled` too.

    Raises:
        PipetuneError: the script cannot be read or is not Python.
    """
    if job.directory:
        os.chdir(job.directory)
    if job.overlay:
        _lay_over(job.overlay)
    _import_with(compiled, job.overlay, modules=modules)
    if job.module:
        sys.argv = [job.module, *job.arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(job.module, run_name="__main__", alter_sys=True)
        return
    path = os.path.abspath(job.script)
    code = _compile(path, job.overlay, compiled)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    sys.argv = [job.script, *job.arguments]
    sys.path.insert(0, os.path.dirname(path))
    exec(code, main.__dict__)


def users_traceback(error: BaseException) -> str:
    """The traceback as Python would print it, without pipetune's own frames."""
    frames = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = frames
    while current is not None:
        kept = [frame for frame in current.stack if not _own(frame.filename)]
        current.stack = traceback.StackSummary.from_list(kept)
        current = current.__cause__ or current.__context__
    return "".join(frames.format())


def _own(filename: str) -> bool:
    return filename.startswith(_PACKAGE + os.sep) or filename.startswith("<frozen runpy>")


def _compile(path: str, overlay: Mapping[str, str], compiled: Compile) -> types.CodeType:
    try:
        source: str | bytes = overlay[path] if path in overlay else Path(path).read_bytes()
    except OSError as error:
        raise PipetuneError(
            f"{path} cannot be read: {error.strerror}.", hint="Name a Python script."
        ) from error
    try:
        return compiled(source, path)
    except (SyntaxError, ValueError) as error:
        raise PipetuneError(
            f"{path} is not Python: {error}.", hint="Name a Python script.", exit_code=3
        ) from error


def _import_with(compiled: Compile, overlay: Mapping[str, str], *, modules: Callable[[str], bool]) -> None:
    """Makes imports use `compiled`; no bytecode of that is written next to the files."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        path = os.path.abspath(loader.get_filename(fullname))
        if path in overlay:
            return compiled(overlay[path], path)
        return compiled(loader.get_data(path), path) if modules(path) else original(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def _lay_over(overlay: Mapping[str, str]) -> None:
    """Makes `linecache`, through which AutoGraph reads source, return these texts instead of the files."""
    # A cache entry without a modification time is never compared with the file.
    entries = {path: (len(text), None, text.splitlines(keepends=True), path) for path, text in overlay.items()}
    linecache.cache.update(entries)
    from_file = linecache.updatecache

    def updatecache(filename: str, module_globals: dict[str, Any] | None = None) -> list[str]:
        # AutoGraph calls this for every function it reads, which would replace our text by that of the file.
        if filename not in entries:
            return from_file(filename, module_globals)
        linecache.cache[filename] = entries[filename]
        return entries[filename][2]

    linecache.updatecache = updatecache
