"""Progress in the user's own process: where it is shown, what of it, and that every event is passed on."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pipetune.core.edits import Plan
from pipetune.core.profile import Diagnosis, Verdict
from pipetune.journal import Listener
from pipetune.live_progress import showing_progress
from pipetune.source.cells import in_notebook, running_shell


class Stream(io.StringIO):
    encoding = "utf-8"


def run(listener: Listener) -> None:
    """An analysis, as far as a listener sees it."""
    listener.progress("profile", "measuring the input alone", best="", left=60.0)
    listener.verdict(Diagnosis(Verdict.INPUT_BOUND, "Training waits 40 % of a step."), ())
    listener.bottleneck("map bounds the input.")
    listener.trial_started(Plan("tuned"))
    listener.progress("trials", "prefetch: pair 3, 1.30x so far", best="prefetch, 1.31x", left=40.0)
    listener.trial_ended("prefetch@n3")


EVENTS = ["progress", "verdict", "bottleneck", "trial_started", "progress", "trial_ended"]


def shell_of(monkeypatch: pytest.MonkeyPatch, **has: Any) -> SimpleNamespace:
    """Makes this process look as if such a shell runs it."""
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=lambda _file: None), **has)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    return shell


@pytest.mark.parametrize(("terminal", "notebook", "requested", "shows"), [
    (True, False, True, True),
    (False, True, True, True),
    (False, False, True, False),  # a log file
    (True, True, False, False),
])  # fmt: skip
def test_each_step_and_the_verdict_are_shown(monkeypatch, terminal, notebook, requested, shows) -> None:
    if notebook:
        shell_of(monkeypatch, kernel=object())
    stream, received = Stream(), Mock()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    with showing_progress(received, requested=requested) as listener:
        run(listener)
    assert [name for name, *_ in received.method_calls] == EVENTS and in_notebook() is notebook
    text = stream.getvalue()
    assert bool(text) is shows
    assert not shows or ("measuring the input alone" in text and "INPUT-BOUND. Training waits 40 % of a step." in text)
    told = ("map bounds the input.", "pair 3, 1.30x so far (best so far: prefetch, 1.31x)")
    assert not shows or all(words in text for words in told)
    assert "starting the script" not in text, "there is no script"
    assert not text or text.replace("\n", "").isprintable()


def test_ipython_is_not_imported_to_look_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert running_shell() is None and not in_notebook() and "IPython" not in sys.modules


def test_shell_of_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shell_of(monkeypatch)
    assert running_shell() is shell and not in_notebook()
