"""A worker whose supervisor was killed ends, with all it started: nobody hears it any more, and nobody would end it."""

from __future__ import annotations

import os
import select
import signal
import threading


def end_without_supervisor(descriptor: int) -> bool:
    """Ends this process and its group once the other end of its pipe is closed; False where the group is not its own.

    A script that shares the terminal of its user (`pipetune run`) runs for itself, and goes on.

    Args:
        descriptor: the end of the pipe that is written to, which a supervisor reads until this process has ended.
    """
    if os.getpgrp() != os.getpid():
        return False
    threading.Thread(target=_wait, args=(descriptor,), name="pipetune-orphaned", daemon=True).start()
    return True


def _wait(descriptor: int) -> None:
    poller = select.poll()
    poller.register(descriptor, 0)  # that nobody reads is reported unasked
    poller.poll()
    os.killpg(os.getpgrp(), signal.SIGKILL)
