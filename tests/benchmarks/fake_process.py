"""A process that measures nothing, but sends the figures of the file figures.json in the folder of its job."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.suites import Request, Suite, bench
from pipetune.core.codec import decode, encode
from pipetune.core.machine import Machine
from pipetune.core.messages import FigureMeasured, LogLine, MessageWriter, Mode, Progress, WorkerFinished, read_job
from pipetune.report.console import Progress as Screen


class FakeBench:
    """Runs `pipetune bench` on a suite whose process is this one and sends these figures."""

    def __init__(self, folder: Path, suite: Suite[Any], figures: Mapping[str, object], machine: Machine) -> None:
        (folder / "figures.json").write_text(json.dumps({"figures": encode(figures), "machine": encode(machine)}))
        self._suite = replace(suite, module="tests.benchmarks.fake_process")
        self._folder = folder

    def run(self, *names: str, **request: Any) -> tuple[list[str], int]:
        """Returns the figures that were shown, and the exit status."""
        shown: list[str] = []
        wanted = Request(names, self._folder, **request)
        with Screen(io.StringIO()) as screen:
            _, status = bench(self._suite, wanted, screen=screen, show=lambda name, _: shown.append(name))
        return shown, status

    @property
    def asked(self) -> list[str]:
        """The names of the figures that each process was asked for."""
        return (self._folder / "asked").read_text().splitlines()


def main() -> None:
    """Dies after as many figures as DIES_AFTER says, and cannot measure the one that FAILS names."""
    job = read_job(Path(sys.argv[1]))
    sent = json.loads(Path(job.out, "figures.json").read_text())
    send = MessageWriter(job.message_descriptor).send
    assert job.mode is Mode.BENCH
    with open(os.path.join(job.out, "asked"), "a") as stream:
        stream.write(" ".join(job.arguments) + "\n")
    for position, name in enumerate(job.arguments):
        if position == int(os.environ.get("DIES_AFTER", 9)):
            os._exit(1)
        send(Progress("bench", f"{name}: beginning"))
        if os.environ.get("FAILS") == name:
            send(LogLine(f"{name} could not be measured"))
            continue
        send(FigureMeasured(name, sent["figures"][name], decode(Machine, sent["machine"])))
    send(WorkerFinished(1 if "FAILS" in os.environ else 0))


if __name__ == "__main__":
    main()
