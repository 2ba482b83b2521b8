"""Progress in the user's own process: where it is shown, what of it, and that every event is passed on."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pipetune.core.profile import Diagnosis, Verdict
from pipetune.interactive import in_notebook, running_shell
from pipetune.journal import Listener
from pipetune.live_progress import showing_progress


class Stream(io.StringIO):
    encoding = "utf-8"

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class Received:
    """A listener that keeps the names of its events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_named: self.events.append(name)


def run(listener: Listener) -> None:
    """An analysis, as far as a listener sees it."""
    listener.progress("profile", "measuring the input alone", best="", elapsed=0.0, left=60.0)
    listener.verdict(Diagnosis(Verdict.INPUT_BOUND, "Training waits 40 % of a step."), ())
    listener.bottleneck("map bounds the input.")
    listener.trial_started("prefetch@n3")
    listener.progress("trials", "prefetch: pair 3, 1.30x so far", best="prefetch, 1.31x", elapsed=20.0, left=40.0)
    listener.trial_ended("prefetch@n3")


EVENTS = ["progress", "verdict", "bottleneck", "trial_started", "progress", "trial_ended"]


def shown(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, requested: bool = True) -> str:
    stream, received = Stream(terminal=terminal), Received()
    monkeypatch.setattr(sys, "stderr", stream)
    with showing_progress(received, requested=requested) as listener:
        run(listener)
    assert received.events == EVENTS
    return stream.getvalue()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this process look like the kernel of a notebook, which has run no cell."""
    shell = SimpleNamespace(kernel=object(), compile=SimpleNamespace(format_code_name=lambda _file: None))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]


def test_terminal_shows_each_step_and_the_verdict_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "measuring the input alone" in text and "INPUT-BOUND. Training waits 40 % of a step." in text
    assert "map bounds the input." in text and "pair 3, 1.30x so far (best so far: prefetch, 1.31x)" in text
    assert "starting the script" not in text, "there is no script"
    assert text.replace("\n", "").isprintable()


@pytest.mark.usefixtures("kernel")
def test_notebook_shows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert in_notebook() and "INPUT-BOUND" in shown(monkeypatch, terminal=False)


def test_log_file_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False) == ""


@pytest.mark.usefixtures("kernel")
def test_nothing_is_shown_unless_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=True, requested=False) == ""


def test_ipython_is_not_imported_to_look_for_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert running_shell() is None and not in_notebook() and "IPython" not in sys.modules


def test_shell_of_a_terminal_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert running_shell() is shell and not in_notebook()
