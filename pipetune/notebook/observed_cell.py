"""Runs a cell in the kernel until training begins, measures there, and puts back what the measured steps changed.

The cell is unwound where a script's process would end: its `finally` clauses run, and if it swallows the stop and goes
on, it is stopped again at its next training step. A loop is measured from a thread of its own, as its body runs in that
of the cell.
"""

from __future__ import annotations

import contextlib
import copy
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from pipetune.capture import hooks, protection, written_files
from pipetune.capture.consumption import Consumer, Consumption, ScriptStopped
from pipetune.capture.fit_consumer import FitConsumer
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.capture.observed_script import PREVIEW_ELEMENTS, ObservedScript
from pipetune.capture.protection import FileProtection
from pipetune.core import file_events, restoration, undo
from pipetune.core.files import writable_descriptors, writable_mappings
from pipetune.pipelines import call_sites, files
from pipetune.timing.iterators import free_iterators, shortened_pauses

_MOST_BYTES = 64 * 2**20
"""Of an array that has a name, and of all in containers, by judgement: steps change counters and weights, no data."""


_MOST_ITEMS = 100_000  # in containers within others, by judgement: a history has a list for each metric
_CONTAINERS = (list, dict, set, deque, tuple)


class NamespaceCopy:
    """A copy of the names, and of the contents of the lists, dictionaries, sets and arrays that they refer to.

    So are the lists, dictionaries, sets and arrays in those, as far as they are not long. Objects of other kinds keep
    what is changed in them.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace, self._names = namespace, dict(namespace)
        own = [value for name, value in namespace.items() if not name.startswith("__")]  # not `__builtins__`
        values = {id(value): value for value in own if value is not namespace and _can_be_copied(value)}
        seen, items, left = {id(namespace)}, 0, _MOST_BYTES
        for value in own:  # which grows
            if type(value) in _CONTAINERS and id(value) not in seen and items + len(value) <= _MOST_ITEMS:
                seen.add(id(value))
                items += len(value)
                values[id(value)] = value
                own += value.values() if isinstance(value, dict) else value
            elif (
                type(value) is np.ndarray and id(value) not in values and value.nbytes <= left and _can_be_copied(value)
            ):
                left -= value.nbytes
                values[id(value)] = value
        self._contents = [(value, copy.copy(value)) for value in values.values() if type(value) is not tuple]

    def restore(self) -> None:
        """Binds the names as they were, and puts the contents back."""
        arrays = [(value, content) for value, content in self._contents if isinstance(value, np.ndarray)]
        # Their shape was changed in place, while others may look at them: the copies are bound instead.
        instead = {id(value): content for value, content in arrays if not _can_take(value, content)}
        for value, content in self._contents:
            if id(value) in instead:
                continue
            _put_back(value, content)
            if isinstance(value, dict) and list(value) != list(content):  # the order
                for key in content:
                    value[key] = value.pop(key)
        _put_back(self._namespace, self._names)
        holders: list[Any] = [self._namespace, *(value for value, _ in self._contents)] if instead else []
        for holder in holders:
            items = holder.items() if isinstance(holder, dict) else enumerate(holder) if type(holder) is list else ()
            for key, value in list(items):
                holder[key] = instead.get(id(value), value)


def _can_take(array: Any, content: Any) -> bool:
    """Whether an array can be given its former content; one that was made read-only is made writable again."""
    with contextlib.suppress(ValueError):  # it looks at one that is read-only
        array.flags.writeable = True
    return bool(array.flags.writeable) and (array.shape, array.dtype) == (content.shape, content.dtype)


def _can_be_copied(value: Any) -> bool:
    if type(value) is np.ndarray:  # no subclass, whose items may have their own meaning
        return bool(value.flags.writeable) and value.nbytes <= _MOST_BYTES
    return type(value) in (list, dict, set, bytearray, deque)


def _put_back(value: Any, content: Any) -> None:
    """Makes the contents of `value` those of its copy; what both have stays all the time, as others may use it."""
    if isinstance(value, np.ndarray):
        value[...] = content
    elif isinstance(value, dict):
        for key in value.keys() - content.keys():
            del value[key]
        value.update(content)
    elif isinstance(value, set):
        value.intersection_update(content)
        value.update(content)
    elif isinstance(value, deque):
        value.clear()
        value.extend(content)
    else:
        value[:] = content


_MOST_STATES = 16  # taken of the process: each scans all live objects, and a cell may begin thousands of loops
_KEPT_STATES = 8  # of loops that may still train: each has a copy of all variables


@dataclass
class _State:
    """What a training step can change, as it was before the first one; and the journal's generation since then."""

    dataset: Any
    taken: int  # elements of the dataset
    variables: protection.Snapshot
    created: int  # variables
    names: NamespaceCopy
    generation: int


class ObservedCell:
    def __init__(
        self,
        namespace: dict[str, Any],
        work: Callable[[Consumption, Consumer, ObservedScript], None],
        *,
        undo_folder: str = "",
        silence: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        """Prepares the run; nothing of the cell runs yet.

        Args:
            namespace: the names of the notebook.
            work: called where training begins, for a loop on another thread.
            undo_folder: where what the cell changes in files is recorded, as in `restoration.journal_folder`.
            silence: makes a context manager in which nothing is shown of what the measured steps print.
        """
        self._namespace, self._work, self._undo_folder, self._silence = namespace, work, undo_folder, silence
        open_before = [*(f"/proc/self/fd/{found[0]}" for found in writable_descriptors()), *writable_mappings()]
        self._journal = undo.open_journal(undo_folder, ignored_files=open_before, ends_process=False)
        self._files = FileProtection(self._journal)
        self.script = ObservedScript(self._on_training, on_iteration=self._on_loop)
        if self._journal is not None:
            self._journal.on_write = self.script.written_files.add
        self._created = protection.CreatedVariables()
        self._states: deque[_State] = deque(maxlen=_KEPT_STATES)
        self._states_taken = 0
        self._state: _State | None = None  # before the first training step
        self._measuring = contextlib.ExitStack()  # what is installed from that step on
        self._thread: threading.Thread | None = None
        self._own_thread = threading.get_ident()
        self._failure: BaseException | None = None
        self._finished = False  # all is measured
        self.stopped = False
        """Whether the work shall end early: the cell has failed or was interrupted."""
        self.suppressed = 0
        """How many calls that save something did nothing."""
        self.files = restoration.Restoration()
        """What was done to files that the measured steps changed."""

    def run(self, cell: Callable[[], object], *, extends_loops: bool = False) -> None:
        """Runs the cell.

        Args:
            cell: calls its code.
            extends_loops: whether that was compiled with extended loops (`capture.loops`).

        Raises:
            BaseException: whatever the cell raised before training or in a measured step, or the work raised.
        """
        try:
            with self._measuring, call_sites.Recorder(), hooks.installed(self.script), self._created:
                written_files.watch(self.script.patches)
                self._listen_to_interrupts()
                if extends_loops:
                    self.script.loop_extender.install()
                    self._measuring.callback(self.script.loop_extender.uninstall)
                try:
                    cell()
                except ScriptStopped:
                    pass
                except BaseException as error:
                    self._on_error(error)
                self._leave_loop()
        finally:
            file_events.set_journal(None)
            self._restore()
        if self._failure is not None:
            raise self._failure

    def _listen_to_interrupts(self) -> None:
        """Makes an interrupt end the work, and raise in the cell, which ends one that waits for its own thread.

        What it raises may be lost: a finalizer ignores exceptions. A process that was started in the background ignores
        interrupts, as its children do; a handler of the user's stays.
        """
        before = signal.getsignal(signal.SIGINT)
        replaced = not callable(before) or before is signal.default_int_handler
        if threading.current_thread() is threading.main_thread() and replaced:
            signal.signal(signal.SIGINT, self._on_interrupt)
            self._measuring.callback(signal.signal, signal.SIGINT, before)

    def _on_interrupt(self, *_: object) -> NoReturn:
        interrupt = KeyboardInterrupt()
        if self._state is not None:
            self._on_error(interrupt)
        raise interrupt

    def _on_error(self, error: BaseException) -> None:
        """Handles what the cell has raised; it is raised again when all is restored.

        Nothing counts that it raises once all is measured, or in an iteration that it would not run by itself.
        """
        counts = isinstance(error, KeyboardInterrupt) or not self.script.is_beyond_its_end(error)
        if counts and not self._finished:
            self._failure = self._failure or error
            self.stopped = True

    def _leave_loop(self) -> None:
        """Waits for the end of the work on a loop that the cell has left."""
        if self._thread is None or self.script.loop is None:
            return
        taken = f"{self.script.loop.elements_taken:,} elements"
        self.script.loop.abandon(f"The loop of the cell ended after {taken}. The measurement needs more.")
        while self._thread.is_alive():
            try:
                self._thread.join()
            except KeyboardInterrupt as interrupt:
                self._on_error(interrupt)

    def _restore(self) -> None:
        state = self._state
        with contextlib.ExitStack() as last_first:  # each of these, whatever another one raises
            last_first.callback(self._restore_files)
            if state is not None:
                last_first.callback(protection.flush)  # what files that the cell left open have in their buffers
                last_first.callback(free_iterators)
                last_first.callback(state.names.restore)
                last_first.callback(self._created.restore, state.created)
                last_first.callback(state.variables.restore)

    def _restore_files(self) -> None:
        state = self._state
        if self._journal is None:
            return
        if state is not None:
            with contextlib.suppress(OSError):  # on a full disk
                self._journal.close()
        else:
            self._journal.discard()
        self._journal.release()
        done = restoration.restore(self._undo_folder, ended=time.time())
        self.files = done if state is not None else self.files

    # -- where training begins

    def _on_loop(self, dataset: Any) -> None:
        """Called when the cell iterates a dataset: keeps the state of the process, in case this turns out to train.

        Of a dataset that the cell has only glanced at since the last state, the present one counts.
        """
        if self.script.training_begun or self._states_taken >= _MOST_STATES:
            return
        taken = next((use.elements for use in self.script.uses if use.dataset is dataset), 0)
        known = self._state_of(dataset)
        if known is not None and not 0 < taken - known.taken <= PREVIEW_ELEMENTS:
            return
        if known is not None:
            self._states.remove(known)
        self._states.append(self._current_state(dataset, taken))

    def _state_of(self, dataset: Any) -> _State | None:
        return next((state for state in self._states if state.dataset is dataset), None)

    def _current_state(self, dataset: Any, taken: int = 0) -> _State:
        self._states_taken += 1
        file_events.set_journal(self._journal)
        generation = self._files.begin(dataset)
        names = NamespaceCopy(self._namespace)
        return _State(dataset, taken, protection.Snapshot(), self._created.count, names, generation)

    def _on_training(self, use: Consumption, consumer: Consumer) -> None:
        loop = isinstance(consumer, LoopConsumer)
        known = (self._state_of(use.first_dataset) or next(reversed(self._states), None)) if loop else None
        self._state = known or self._current_state(use.dataset)
        self._states.clear()
        consumer = self._files.confirm(consumer, self._state.generation, on_too_large=self.script.refuse_change)
        self._measuring.callback(protection.disable_saving(self._count_suppressed))
        self._measuring.enter_context(self._silence())
        if isinstance(consumer, LoopConsumer):
            self._thread = threading.Thread(target=self._in_thread, args=(use, consumer), name="pipetune")
            self._thread.start()
        else:
            self._run_work(use, consumer)
            if isinstance(consumer, FitConsumer):
                consumer.put_functions_back()
            raise ScriptStopped

    def _in_thread(self, use: Consumption, consumer: LoopConsumer) -> None:
        consumer.wait_until_ready()
        self._run_work(use, consumer)
        consumer.stop()
        if consumer.thread != self._own_thread and self._own_thread == threading.main_thread().ident:
            # A thread of the cell takes the elements, and the cell waits for what it makes of them.
            signal.pthread_kill(self._own_thread, signal.SIGINT)

    def _run_work(self, use: Consumption, consumer: Consumer) -> None:
        try:
            with call_sites.running_workflow(), files.private_files(), shortened_pauses():
                self._work(use, consumer, self.script)
        except BaseException as error:
            if self._failure is None:
                self._failure = error
        self._finished = True

    def _count_suppressed(self, _name: str) -> None:
        self.suppressed += 1
