"""A script while it is observed: how it has used its datasets so far, which consumer trains, and where it must stop."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

import tensorflow as tf

from pipetune import tensorflow_private
from pipetune.capture import consumption, job_processes, rebuilding, validation
from pipetune.capture.consumption import CHANGES_VARIABLES, Consumption, TrainingSigns, variable_name
from pipetune.capture.distributed_input import DistributedInput, find_distributed_input
from pipetune.capture.early_ends import elements_in_all, is_in_body
from pipetune.capture.function_consumer import FunctionCall, FunctionConsumer, FunctionInput, obstacle
from pipetune.capture.loop_consumer import LoopConsumer
from pipetune.capture.loops import LoopExtender
from pipetune.capture.patches import Patches
from pipetune.capture.protection import TOO_LARGE
from pipetune.capture.rebuilding import is_read_once
from pipetune.capture.written_files import WrittenFiles
from pipetune.core.pipeline import INFINITE, UNKNOWN
from pipetune.core.results import ResumePoint
from pipetune.core.undo import TooLarge
from pipetune.pipelines import call_sites
from pipetune.pipelines.objects import inherits, live_instances

_USE = "_pipetune_use"  # the attribute of a dataset that holds its Consumption
_MAX_USES = 50  # datasets remembered, at most

PREVIEW_ELEMENTS = 1
"""Elements taken by `next(iter(dataset))` or `take(1)`, only to look at them."""


def raise_script_stopped() -> NoReturn:
    raise consumption.ScriptStopped


_IN_FUNCTION = "a tf.function"  # how it reads a dataset

_IN_GRAPHS = (
    "it has switched eager execution off, and what a tf.compat.v1.Session reads cannot be seen; without "
    "disable_eager_execution or disable_v2_behavior, and with tf.function, it can be analyzed"
)


class ObservedScript:
    """What is known of a script while it runs, or of a cell; calls `on_training` for the first consumer that trains."""

    def __init__(
        self,
        on_training: Callable[[Consumption, consumption.Consumer], None],
        *,
        target_dataset: str | None = None,
        lockstep: bool = False,
        training_loop: int | None = None,
        on_iteration: Callable[[Any], None] = lambda _dataset: None,
        on_other_data: Callable[[str], None] = lambda _input: None,
        adapts_to: Callable[[Any], Any] = lambda dataset: dataset,
        stop: Callable[[], NoReturn] = raise_script_stopped,
    ) -> None:
        """Prepares for a script that has not run yet; it is observed while the hooks are installed (`hooks.installed`).

        Args:
            on_training: called once, when training begins; then a loop goes on, and any other script is stopped.
            target_dataset: name of the dataset to treat as training data for any consumer; None: decide by use.
            lockstep: every process that trains with this one runs under pipetune, and takes the same steps.
            training_loop: which of the script's loops was found to train when it ran before, as `Consumption.loop`.
            on_iteration: called with a dataset before the script iterates it in Python, which may be training.
            on_other_data: called before `fit` trains on what is no dataset, which is left alone, with what that is.
            adapts_to: returns the dataset that a layer adapts to in place of the script's.
            stop: called when a thread of the script must not continue; does not return.
        """
        self._on_training = on_training
        self.on_iteration, self.on_other_data = on_iteration, on_other_data
        self.adapts_to, self.stop = adapts_to, stop
        self._context = threading.local()
        self.target_dataset, self.lockstep, self._training_loop = target_dataset, lockstep, training_loop
        self._yielded = False  # whether a loop has let another one be looked at first
        self.loop_numbers = itertools.count()
        self.patches = Patches()
        self.uses: list[Consumption] = []
        self.loop: LoopConsumer | None = None
        self.loop_extender = LoopExtender(self._elements_taken, rebuilding.is_repeated, self._note_end_of_reading)
        self.training_begun = False
        self.distributed_input: DistributedInput | None = None  # of the training dataset
        self.written_files = WrittenFiles()
        self.notes: list[str] = []
        self.resuming: list[ResumePoint] = []
        self._used_datasets: weakref.WeakSet[Any] = weakref.WeakSet()  # those with a record of their use
        self._built_before: weakref.WeakSet[Any] = weakref.WeakSet()  # datasets that there were when training began
        self.iterators: weakref.WeakSet[Any] = weakref.WeakSet()  # the observed ones
        self.distributed: weakref.WeakSet[Any] = weakref.WeakSet()  # what strategies have made of datasets
        self.reads_streams_alike = False  # whether windows have read other datasets of the call

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replaces a method by a call of `around`, which gets this object, the method, and what it was called with."""
        self.patches.wrap(owner, name, functools.partial(around, self))

    def on_function_call(self, call: FunctionCall) -> None:
        """Begins training if a traced function that is about to run trains on what it takes elements from itself."""
        given = [] if self.role() else call.inputs_among(self._function_inputs(datasets=call.takes_datasets))
        trains = bool(given) and call.trains()
        for one in given:
            made = () if one.is_dataset else one.value._pipetune_use.call_path
            use = self.record_use(one.dataset, "preview", _IN_FUNCTION)
            if use.name == self.target_dataset or (trains and self.target_dataset is None and not self._in_loop(use)):
                use.training_sign = CHANGES_VARIABLES if trains else ""
                self._on_function_training(use, call, one, others=given, made=made)

    def _in_loop(self, here: Consumption) -> bool:
        """Whether the script uses a dataset in a Python loop over another one, which is then what it trains on."""
        others = [one for one in self.uses if one is not here and one.role == "preview" and one.elements]
        return any(is_in_body(here.call_path, one.call_path) for one in others)

    def _function_inputs(self, *, datasets: bool) -> Iterator[FunctionInput]:
        """Yields all that a function may take elements from: iterators and, if asked for, datasets."""
        for iterator in list(self.iterators):
            yield FunctionInput(iterator, iterator._pipetune_dataset, iterator._pipetune_distributed_input)
        if not datasets:
            return
        for distributed in list(self.distributed):
            handed = find_distributed_input(distributed)
            if handed is not None:
                yield FunctionInput(distributed, handed.dataset, handed)
        for dataset in live_instances(lambda kind: inherits(kind, tensorflow_private.DatasetV2)):
            if hasattr(dataset._variant_tensor, "numpy"):  # not one that a function creates
                yield FunctionInput(dataset, dataset)

    def _on_function_training(
        self,
        use: Consumption,
        call: FunctionCall,
        given: FunctionInput,
        *,
        others: Sequence[FunctionInput],
        made: call_sites.CallPath,
    ) -> None:
        """Begins training; `made` is the call stack where the script has made the iterator, if it has made one."""
        readings = use.readings
        use = self.record_use(given.dataset, "training", _IN_FUNCTION)
        frame, _ = call_sites.user_frame(sys._getframe(1))
        if not given.is_dataset:
            use.readings = readings  # as found, like the epochs, where the script has made the iterator
        elif call.leaves_datasets_early():
            use.readings.way_out = consumption.WayOut.NEXT
        elif frame is not None:
            use.epochs_certain = is_read_once(frame, dataset=given.dataset)
            use.epochs = 1 if use.epochs_certain else None
        use.distributed_input = given.handed
        found = validation.in_loop(made or use.call_path, frame, steps=call.steps())
        self.record_validation(found, use, how=_IN_FUNCTION)
        # Also those that another cell has made.
        iterators = live_instances(lambda kind: inherits(kind, tensorflow_private.OwnedIterator))
        unobserved = (FunctionInput(one, one._dataset) for one in iterators if one._dataset is not None)
        others = [one for one in call.inputs_among([given, *others, *unobserved]) if one is not given]
        why = obstacle(given) or job_processes.switching_obstacle(given.handed)
        if self.lockstep:
            why = "Several processes cannot take the same steps in a tf.function that takes its elements itself."
        self.begin_training(use, consumption.NoConsumer(why) if why else FunctionConsumer(call, given, others))
        self.stop()

    def on_loop_elements(self, use: Consumption, taken: int, handed: DistributedInput | None) -> float:
        """Looks whether a Python loop trains, and begins training if it does.

        A loop over the dataset that the user has asked for counts as training without being looked at. So does one of
        several processes in lockstep, as all must decide at the same element, and one that was found to train before.

        Args:
            use: of the dataset.
            taken: elements that its present iterator has given.
            handed: how a strategy distributed it.

        Returns:
            How many elements the loop shall have taken when this is called again.
        """
        if self.training_begun:
            return math.inf
        if self.target_dataset is None and not self.lockstep and not self.is_known_to_train(use):
            frame, _ = call_sites.user_frame(sys._getframe(1))
            (loop, before), use.last_look = use.last_look, (use.loop, taken)
            if use.signs is None:
                use.signs = TrainingSigns(frame)
                use.elements_before = tuple((one, one.elements) for one in self.uses)
            elif loop != use.loop and max(before, taken) > 1:
                use.signs.renew(frame)  # other code may have trained since, as between two passes of an evaluation
            else:
                use.training_sign = use.signs.describe(frame)
            if not use.training_sign and not use.signs.waited_enough(use.elements):
                return use.signs.next_look(use.elements)
            if not self._yielded and self._waits_longer_for_another(use):
                self._yielded = True
                return use.elements + 1
        self._on_loop_training(use, handed)
        return math.inf

    def is_known_to_train(self, use: Consumption) -> bool:
        """Whether this loop, or call of `predict` or `evaluate`, was taken for training when the script ran before."""
        return self._training_loop is not None and use.loop == self._training_loop

    def begin_inference(self, use: Consumption) -> NoReturn:
        """Takes a call of `predict` or `evaluate` for what the script does: it is measured in place of training."""
        assert use.inference is not None
        use.role = "training"
        self.begin_training(use, use.inference)
        self.stop()

    def _waits_longer_for_another(self, use: Consumption) -> bool:
        """Whether each step takes an element of another dataset, too, after this one, and waits longer for it.

        That one is looked at within the same step: more can be gained there.
        """
        return any(
            other.signs is not None and other.elements == use.elements - 1 and other.wall_seconds > use.wall_seconds
            for other in self.uses
            if other is not use and other.role == "preview"
        )

    def _on_loop_training(self, use: Consumption, handed: DistributedInput | None) -> None:
        use.role, use.consumer_call, use.distributed_input = "training", "a Python loop", handed
        why = job_processes.switching_obstacle(handed, in_step=self.lockstep)
        if why:
            self.begin_training(use, consumption.NoConsumer(why))
            self.stop()
        frame, _ = call_sites.user_frame(sys._getframe(1))
        self.record_validation(validation.in_loop(use.call_path, frame), use, how="a Python loop")
        self._note_in_turn(use)
        if use.epochs_certain and handed is None:
            use.readings.fewest = elements_in_all(frame)
        self.loop = LoopConsumer(handed, taken=use.elements)
        self.begin_training(use, self.loop)

    def _note_in_turn(self, use: Consumption) -> None:
        """Notes of which other datasets the loop that trains has taken as many elements, since it was looked at."""

        def taken(one: Consumption) -> int:
            return one.elements - next((count for seen, count in use.elements_before if seen is one), 0)

        for one in self.uses if use.elements_before else ():
            one.in_turn = one is not use and taken(one) > 0 and abs(taken(one) - taken(use)) <= 1

    def record_validation(self, found: Iterable[validation.Reading], training: Consumption, *, how: str) -> None:
        """Records what the script will read between steps of training: it stays in the first ones while it is measured.

        Args:
            found: what it will read.
            training: the use of the dataset that it trains on.
            how: what reads it.
        """
        frame, _ = call_sites.user_frame(sys._getframe(1))
        # Where the user says which dataset to analyze, nobody looks whether it is another one that a loop trains on.
        looked_at = self.target_dataset is None
        before = itertools.takewhile(lambda use: use is not training, () if looked_at else self.uses)
        unknown = [use for use in before if use.role == "preview" and use.elements > PREVIEW_ELEMENTS]
        for one in found:
            dataset, path = one.dataset, one.path
            use: Consumption | None = getattr(dataset, _USE, None)
            if dataset is training.dataset or (use is not None and use.role not in ("preview", "evaluation")):
                continue
            if any(use is other for other in unknown):
                continue
            if use is None:
                name = variable_name(frame, dataset) or consumption.place_in_table(frame, dataset)
                use = Consumption(dataset, name, "validation", how)
                self._attach(use)
            (code, _), line = path[0], call_sites.span_of(path[0])[0]
            use.role, use.call_path, use.file, use.line = "validation", path, code.co_filename, line or 0
            use.every, use.every_in_steps = one.every, one.in_steps
            self._keep_use(use)

    # -- recorded uses

    def begin_training(self, use: Consumption, consumer: consumption.Consumer) -> None:
        """Marks the start of training and calls the handler."""
        self.training_begun, self.distributed_input = True, use.distributed_input
        self._built_before.update(call_sites.live_datasets())
        self._keep_use(use)  # of many previews, only some are kept
        for seen in self.uses:
            if seen.signs is not None:
                seen.signs.close()
        self._on_training(use, consumer)

    @property
    def training_use(self) -> Consumption | None:
        """The use that trains; None until one is seen."""
        return next((seen for seen in self.uses if seen.role == "training"), None)

    def is_beyond_its_end(self, error: BaseException) -> bool:
        """Whether the loop that trains has had more elements than it would have by itself, as pipetune asks for them.

        What it raises then is no error of the script, which may have an array with a place for each batch of its data.
        Where nobody knows how many there are, that is what a missing place is taken for.
        """
        use = self.training_use if self.loop is not None else None
        length = int(use.dataset.cardinality()) if use is not None else INFINITE
        beyond = use is not None and 0 <= length < use.readings.most
        return self.loop_extender.restarted or beyond or (length == UNKNOWN and isinstance(error, IndexError))

    def _note_end_of_reading(self) -> None:
        """Notes that the loop that trains would end now, and goes on only while pipetune measures."""
        if self.training_use is not None:
            self.training_use.readings.end()

    def _elements_taken(self) -> int:
        """Returns how many elements the loop that trains has taken, if this is its thread."""
        loop = self.loop
        return loop.elements_taken if loop is not None and loop.thread == threading.get_ident() else 0

    def refuse_change(self, path: str) -> NoReturn:
        """Called before the script would change more in a file than can be copied: it may not, and its loop is left.

        Raises:
            TooLarge: always, but on the thread of the loop, which must not continue.
        """
        why = TOO_LARGE.format(path)
        if self.loop is not None:
            self.loop.abandon(why)
            if self.loop.thread == threading.get_ident():
                self.stop()
        raise TooLarge(why)

    def is_built_for_later_epoch(self, use: Consumption, dataset: Any) -> bool:
        """Whether the script has built a dataset since training began, and reads it where it reads the training data.

        What it reads elsewhere may be built by the same helper, for an evaluation.
        """
        training = self.training_use
        new = self.training_begun and dataset not in self._built_before
        return new and training is not None and call_sites.same_calls(use.call_path, training.call_path)

    def record_use(self, dataset: Any, role: str, how: str) -> Consumption:
        """Returns the record of a dataset's use, updated with its role and the current location in the script."""
        frame, _ = call_sites.user_frame(sys._getframe(1))
        use: Consumption | None = getattr(dataset, _USE, None)
        if use is None:
            use = self._use_of_rebuilt(dataset, role, frame)
            if use is None:
                use = Consumption(dataset=dataset, variable="", role=role, consumer_call=how)
            use.dataset = dataset
            self._attach(use)
        elif role != "training" and use.role != "preview" and (use.role, role) != ("evaluation", "validation"):
            return self._keep_use(use)  # its role is known already
        elif role != "preview":
            use.role, use.consumer_call = role, how
            use.readings = consumption.LoopReadings()  # a loop that only looked at it says nothing of this use
        if frame is not None:  # the location of the last use: a preview comes before training
            use.variable = variable_name(frame, dataset) or use.variable
            use.file, use.line = frame.f_code.co_filename, frame.f_lineno
            use.call_path = call_sites.path_from(frame)
        return self._keep_use(use)

    def _attach(self, use: Consumption) -> None:
        """Makes `use` the record of its dataset."""
        object.__setattr__(use.dataset, _USE, use)
        self._used_datasets.add(use.dataset)

    def _use_of_rebuilt(self, dataset: Any, role: str, frame: FrameType | None) -> Consumption | None:
        """Returns the record of the dataset that the last iteration of a loop built and read in place of this one."""
        made = call_sites.path_of(dataset)
        if role != "preview" or frame is None or not made:
            return None
        read = call_sites.path_from(frame)
        for seen in reversed(self.uses):
            again = seen.role == role and call_sites.same_calls(seen.call_path, read)
            if again and call_sites.same_calls(call_sites.path_of(seen.dataset), made):
                turn = rebuilding.rebuild_loop(made, read)
                return seen if turn is not None and turn.reads_one_after_another else None
        return None

    def _keep_use(self, use: Consumption) -> Consumption:
        """Keeps the uses that the session may need, the most consumed of other previews and the last two; returns it.

        The last may be the other one of two datasets that each training step reads, or of what training reads; the one
        before it then shows where the dataset is read further upstream.
        """
        if not any(seen is use for seen in self.uses):
            self.uses.append(use)
        previews = [seen for seen in self.uses if seen.role == "preview" and seen is not use]
        previews = [use, *previews[-2:], max(previews, key=lambda seen: seen.elements, default=use)]
        kept = [one for one in self.uses if one.role != "preview" or any(one is seen for seen in previews)]
        self.uses = kept[-_MAX_USES:]
        return use

    def record_resuming(self, found: ResumePoint) -> None:
        """Records that the script saves its position in the data, to resume there in another run."""
        if not self.training_begun and found not in self.resuming:
            self.resuming.append(found)

    def describe_other_uses(self) -> str:
        """Returns what was seen in place of training, as clauses: fits on other data, glances, predictions; or ""."""
        glances = [
            f"it took only one element of {use.name} ({os.path.basename(use.file)}:{use.line})"
            for use in self.uses
            if use.role == "preview" and use.elements == PREVIEW_ELEMENTS
        ]
        whole = [
            f"it passed {use.name} to {use.consumer_call} ({os.path.basename(use.file)}:{use.line}), whose input can "
            f"be tuned with --dataset {use.name}"
            for use in self.uses
            if use.inference is not None
        ]
        graphs = [] if tf.executing_eagerly() else [_IN_GRAPHS]
        return "; ".join(dict.fromkeys([*self.notes, *glances, *whole, *graphs]))

    def role(self) -> str:
        """Returns what this thread consumes for at the moment, such as Keras's evaluation; '' for the script itself."""
        own: str = getattr(self._context, "role", "")
        return own or ("a worker" if tensorflow_private.in_coordinator_dispatch() else "")

    @contextlib.contextmanager
    def as_role(self, role: str) -> Iterator[None]:
        """Context manager: consumption on this thread is attributed to `role`; the outermost role takes precedence."""
        before = self.role()
        self._context.role = before or role
        try:
            yield
        finally:
            self._context.role = before

    def close(self) -> None:
        """Removes all that was installed: a notebook goes on, with the iterators and datasets that it has."""
        self.patches.close()
        for iterator in list(self.iterators):
            iterator.__class__ = iterator._base
        for dataset in list(self._used_datasets):
            object.__delattr__(dataset, _USE)
        self._used_datasets.clear()
