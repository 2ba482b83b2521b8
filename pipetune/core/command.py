"""What was run: the script with its arguments, and what pipetune was asked to do with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipetune.core.settings import Settings


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
