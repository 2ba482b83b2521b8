"""The options chosen by the user, and what was run with them: the script and its arguments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipetune.core.edits import Consent
from pipetune.core.errors import did_you_mean


def consents_of(words: Iterable[str]) -> frozenset[Consent]:
    """Returns the consents with these names.

    Raises:
        ValueError: a name is unknown; the message lists the known names.
    """
    known = [consent.value for consent in Consent]
    given = list(words)
    for word in given:
        if word not in known:
            raise ValueError(f"{word!r} is not one of {', '.join(known)}.{did_you_mean(str(word), known)}")
    return frozenset(Consent(word) for word in given)


@dataclass(frozen=True)
class Settings:
    """Options of `pipetune analyze` and `pipetune.tune`."""

    budget_seconds: float = 60.0
    steps: int | None = None  # per end-to-end window; None: chosen from the step time
    dataset: str | None = None  # a name, "all", or None: the one that training consumes
    device: str = "auto"
    step_time_seconds: float | None = None  # simulate a step of this duration
    memory_limit_bytes: int | None = None
    allow: frozenset[Consent] = frozenset()
    without: frozenset[str] = frozenset()  # names of rules whose rewrites are not tried
    force: bool = False
    distribute: str | None = None  # a kind, "none", or None: the kind that the script uses
    workers: int = 1  # number of processes of the script to start; they train in lockstep
    parameter_servers: int = 0  # processes that hold the variables; if any, a chief dispatches the steps
    trials: bool = True
    quick: bool = False  # short profile windows: a first look, with wide intervals
    cold: bool = False  # drop the files from the page cache before each window
    confidential: bool = False
    seed: int = 0
    out: str = ""

    def missing(self, consents: frozenset[Consent], *, randomness_fixed: bool) -> frozenset[Consent]:
        """Returns which of a rewrite's consents are not given; other draws need one only if the script sets a seed."""
        free = frozenset() if randomness_fixed else frozenset({Consent.STATISTICAL})
        return consents - self.allow - free


@dataclass(frozen=True)
class Command:
    """What a session is about. A dataset that was passed to `pipetune.tune` has neither script nor module."""

    script: str = ""  # its absolute path
    module: str = ""  # the name, as after `python -m`
    arguments: tuple[str, ...] = ()  # of the script
    directory: str = ""  # the folder in which it ran
    out: str = ""  # the folder of the results, as typed from `directory`
    options: Settings = field(default_factory=Settings)
    date: str = ""
    resumed: int = 0  # how often sessions went on with the race of the first one, this one counted
    confidential: bool = False  # the session has no source text, paths and arguments
