"""Runs the user's script or module as `__main__`."""

from __future__ import annotations

import builtins
import importlib.machinery
import linecache
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Mapping
from concurrent.futures import thread as executors
from pathlib import Path
from typing import Any

from pipetune.capture.patches import Patches
from pipetune.capture.substitution import Applier, substitute
from pipetune.core.errors import PipetuneError, PlanMismatch, invalid_source
from pipetune.core.messages import Job, LockstepLost, LogLine, MessageWriter, ScriptExited, ScriptFailed
from pipetune.core.plan_file import load_plan
from pipetune.measure import machine

_OWN_FILES = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, "<frozen runpy>")

Compile = Callable[[str | bytes, str], types.CodeType]
"""Compiles source text, given with its path, to a code object."""


def compile_unchanged(source: str | bytes, path: str) -> types.CodeType:
    """Returns the code that Python itself would compile."""
    return compile(source, path, "exec", dont_inherit=True)


def run(
    job: Job, compiler: Compile = compile_unchanged, *, compiles_module: Callable[[str], bool] = lambda _path: False
) -> None:
    """Runs the job's script to its end; whatever it raises, `SystemExit` included, reaches the caller.

    Args:
        job: names the script, its arguments, and the texts to use in place of its files (`Job.overlay`).
        compiler: compiles the script and every overlaid file.
        compiles_module: whether an imported file, given by its path, is compiled by `compiler` too.

    Raises:
        PipetuneError: the script cannot be read or is not valid Python.
    """
    if job.directory:
        os.chdir(job.directory)
    if job.overlay:
        _apply_overlay(job.overlay)
    _import_with(compiler, job.overlay, compiles_module=compiles_module)
    if job.module:
        sys.argv = [job.module, *job.arguments]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(job.module, {"__builtins__": builtins}, "__main__", alter_sys=True)
        return
    path = os.path.abspath(job.script)
    code = _compile(path, job.overlay, compiler)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins)  # elsewhere it is their dictionary
    sys.modules["__main__"] = main
    sys.argv = [job.script, *job.arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    exec(code, main.__dict__)


def wait_for_threads(is_over: Callable[[], bool] = lambda: False) -> None:
    """Waits for the threads that the script has started, as Python does before it exits, or until `is_over`.

    Not for those of executors, which Python ends itself then.
    """
    for thread in threading.enumerate():
        waited_for = not thread.daemon and thread not in executors._threads_queues
        while waited_for and thread is not threading.current_thread() and thread.is_alive() and not is_over():
            thread.join(timeout=0.2)


def user_traceback(error: BaseException) -> str:
    """Returns the traceback as Python would print it, without pipetune's own frames."""
    frames = traceback.TracebackException.from_exception(error)
    current: traceback.TracebackException | None = frames
    while current is not None:
        kept = [frame for frame in current.stack if not frame.filename.startswith(_OWN_FILES)]
        current.stack = traceback.StackSummary.from_list(kept)
        current = current.__cause__ or current.__context__
    return "".join(frames.format())


def report_out_of_step(writer: MessageWriter, why: str, cause: BaseException | None) -> None:
    """Tells the supervisor that the processes of the script no longer take the same steps."""
    writer.send(LockstepLost(why, user_traceback(cause) if cause is not None else ""))


def failed_exit(leaving: SystemExit) -> ScriptExited | None:
    """Returns the message about a script that left by `sys.exit`; None if it left successfully."""
    if leaving.code in (None, 0):
        return None
    code = leaving.code
    return ScriptExited(int(code)) if isinstance(code, int) else ScriptExited(1, str(code))  # True is no JSON number


def run_to_end(job: Job, writer: MessageWriter) -> bool:
    """Runs the script to its end; returns whether it neither raised nor exited with an error, which else is sent.

    Raises:
        PipetuneError: pipetune itself cannot go on, as where the script cannot be read.
    """
    exited: ScriptExited | ScriptFailed | None = None
    try:
        run(job)
        wait_for_threads()
    except SystemExit as leaving:
        exited = failed_exit(leaving)
    except PipetuneError:
        raise
    except BaseException as error:
        exited = ScriptFailed(user_traceback(error))
    if exited is not None:
        writer.send(exited)
    return exited is None


def _compile(path: str, overlay: Mapping[str, str], compiler: Compile) -> types.CodeType:
    try:
        source: str | bytes = overlay[path] if path in overlay else Path(path).read_bytes()
    except OSError as error:
        raise PipetuneError(f"{path} cannot be read: {error.strerror}.", hint="Name a Python script.") from error
    try:
        return compiler(source, path)
    except (SyntaxError, ValueError) as error:
        raise invalid_source(path, error) from error


def _import_with(compiler: Compile, overlay: Mapping[str, str], *, compiles_module: Callable[[str], bool]) -> None:
    """Makes imports use `compiler`; no bytecode of that is written next to the files."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
        path = os.path.abspath(loader.get_filename(fullname))
        if path in overlay:
            return compiler(overlay[path], path)
        return compiler(loader.get_data(path), path) if compiles_module(path) else original(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def _apply_overlay(overlay: Mapping[str, str]) -> None:
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


def run_with_plan(job: Job, writer: MessageWriter) -> int:
    """Runs the script to its end; every dataset that matches the plan is replaced by the planned one.

    Returns:
        The exit code: 0, or 3 if the script raised or exited with another status.

    Raises:
        PlanMismatch: no dataset of the script matched; the message names the first operator that differs.
    """
    plan = load_plan(job.plan)
    cores = machine.read_machine(job.settings.device).cores_granted
    if plan.machine is not None and plan.machine.cores_granted != cores:
        before = plan.machine.cores_granted
        writer.send(LogLine(f"The plan was measured on {before:g} cores; {cores:g} are available here."))
    applier = Applier(plan, lambda name: writer.send(LogLine(f"The plan is applied to {name}.")))
    with Patches() as patches:
        substitute(applier, patches)
        if not run_to_end(job, writer):
            return 3
    if not applier.applied:
        if applier.nearest is not None:
            nearest, source = applier.nearest
            nearest.check(source.pipeline)
        raise PlanMismatch("The script consumed no dataset that matches the plan.", hint="Run `pipetune analyze`.")
    return 0
