"""How the script uses one of its datasets, and whether its loop trains; consumers: each can run a window of training
steps on any dataset.

A loop that prints, previews, counts or evaluates takes elements like one that trains, but changes no weights. Read
without any change of the script: trainable variables of TensorFlow and Keras, calls of `torch.optim.Optimizer.step`,
and JAX arrays that an iteration of the loop reads and rebinds.
"""

from __future__ import annotations

import dis
import enum
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NoReturn, Protocol

from pipetune.capture.distributed_input import DistributedInput
from pipetune.core.distribution import INFERENCE, CapturedObject
from pipetune.core.measurement import RunFailed, StepSeries, Window
from pipetune.core.time_plan import SLOW_START_SECONDS
from pipetune.pipelines import call_sites
from pipetune.timing.windows import readable_trainable_variables


class WayOut(enum.Enum):
    """How a loop may leave an iterator before its end."""

    FOR = enum.auto()  # the loop over it has a `break` or `return`, or stops with something else
    NEXT = enum.auto()  # what calls `next` makes a new one in each iteration of a loop


@dataclass(eq=False)
class Reading:
    """What a loop has read by one of its iterators."""

    elements: int = 0
    ended: bool = False  # another iterator has been read since


@dataclass
class LoopReadings:
    """What a loop reads by one iterator after another, while it gets as many elements as it asks for."""

    way_out: WayOut | None = None
    surely: int = 0  # elements that it reads by an iterator before it leaves it, as its code says; 0: not known
    fewest: int | None = None  # elements after which it has left an iterator; None: it has not
    most: int = 0  # elements that it has read by one iterator
    _last: Reading | None = None
    _in_turn: bool = False  # it reads by several iterators in turn: that it turns to another one says nothing

    def add(self, reading: Reading) -> None:
        """Counts one more element, read by the iterator of `reading`."""
        if self._last is not None and reading is not self._last:
            self._in_turn = self._in_turn or reading.ended
            self._last.ended = True
            self.end()
        self._last = reading
        reading.elements += 1
        self.most = max(self.most, reading.elements)

    def end(self) -> None:
        """Notes that the loop would read no further now, and goes on only while pipetune measures."""
        if self._last is not None:
            self.fewest = min(self.fewest or self._last.elements, self._last.elements)

    @property
    def elements(self) -> int | None:
        """The elements that are surely read by each iterator; None if all are."""
        if self.fewest is not None and not self._in_turn:
            return self.fewest
        if self.way_out is WayOut.NEXT:
            return 0  # however many it got: pipetune lets a counted loop last while it measures
        return max(self.most, self.surely) if self.way_out is WayOut.FOR else None


@dataclass
class Consumption:
    """How the script has used one of its datasets so far."""

    dataset: Any
    variable: str  # the name of the user's variable that holds it, or ''
    role: str  # "training", "validation", "evaluation", "prediction", "adapt", "preview", "other"
    consumer_call: str
    elements: int = 0
    passes: int = 0  # iterators of the script's that gave more than one element before training began
    file: str = ""
    line: int = 0
    steps_per_epoch: int | None = None
    epochs: int | None = None  # requested by the call
    epochs_certain: bool = False  # the call is made only once: `epochs` is the total number of training epochs
    restarts_iterator: bool = False  # each epoch that reaches the end of the data starts a new iterator: Keras 3
    distributed_input: DistributedInput | None = None  # how a strategy distributes it to the replicas
    captured: tuple[CapturedObject, ...] = ()  # objects of this process that the function for the workers uses
    sharded_across_workers: bool = False  # a strategy distributes the dataset to the workers of a job
    call_path: call_sites.CallPath = ()  # the user's call stack where it is consumed
    training_sign: str = ""  # what shows that it is trained on: "it changes trainable variables"; "" if nothing does
    signs: TrainingSigns | None = None  # of a Python loop over it
    last_look: tuple[int | None, int] = (None, 0)  # at them: in which `loop`, and at which element of its iterator
    elements_before: tuple[tuple[Consumption, int], ...] = ()  # of all uses, when the loop was first looked at
    in_turn: bool = False  # each training step takes an element of it, too
    loop: int | None = None  # the last loop over it, counted among the script's loops over datasets from 0
    wall_seconds: float = 0.0  # spent fetching elements: in `iter` and `next`, or in the whole call
    cpu_seconds: float = 0.0  # CPU time of the whole process in that time
    readings: LoopReadings = field(default_factory=LoopReadings)  # of a Python loop over it
    every: int = 1  # of validation: so many epochs of training, or steps, for each pass
    every_in_steps: bool = False
    later_fit: tuple[str, int] | None = None  # another dataset that `fit` trains on further down, and the line
    inference: Consumer | None = None  # of a dataset that `predict` or `evaluate` reads
    whole_call: bool = False  # evaluate, predict, adapt, reduce: the times include the model's work
    first_dataset: Any = field(init=False)  # `dataset`, or the first of those that a loop has built one after another

    def __post_init__(self) -> None:
        self.first_dataset = self.dataset

    def settle_epochs(self) -> None:
        """Takes the passes so far for all that there are: the script has ended, and reads the dataset no more."""
        if self.passes:
            self.epochs, self.epochs_certain = self.passes, True

    @property
    def name(self) -> str:
        """Name of the dataset: the user's variable, else its role."""
        return self.variable or self.role

    @property
    def title(self) -> str:
        """What reads it, and the user's variable, if one holds it: "Model.fit over train_ds"."""
        return f"{self.consumer_call} over {self.variable}" if self.variable else self.consumer_call


def describe_training(training: Consumption, uses: Sequence[Consumption]) -> str:
    """Returns one sentence on what is taken for training, and one on how to choose another of the uses so far."""
    sign = f" ({training.training_sign})" if training.training_sign else ""
    text = f"Training: {training.title}{_place(training)}{sign}."
    if training.consumer_call in INFERENCE:
        text = (
            "No training on a dataset was seen: what is said of training below is said of "
            f"{training.title}{_place(training)}."
        )
    if training.later_fit is not None:
        name, line = training.later_fit
        text += f" Model.fit trains on {name} in line {line}, too: --dataset {name} analyzes that."
    # A glance at one element is no use of its own; validation read later may have begun with one.
    shown = [one for one in uses if one is not training and (one.elements != 1 or one.role == "validation")]
    others = [f"{one.name}{_place(one)}" for one in shown]
    if others:
        text += f" Also consumed: {', '.join(dict.fromkeys(others))}; --dataset NAME analyzes another."
    return text


def describe_start(seconds: float, uses: Sequence[Consumption], *, certain: bool = True) -> str:
    """Returns a sentence on what the script did before its first training step; "" if that was soon.

    Args:
        seconds: from the start of the script to its first training step.
        uses: every dataset that the script has consumed so far.
        certain: whether it was seen to train; if not, `seconds` end where it is taken for training.
    """
    if seconds < SLOW_START_SECONDS:
        return ""
    long = sorted((one for one in uses if one.wall_seconds >= 0.1 * seconds), key=lambda one: -one.wall_seconds)
    parts = [f"{one.wall_seconds:.0f} s in {one.title}{_place(one)}" for one in long]
    rest = seconds - sum(one.wall_seconds for one in long)
    if parts and rest >= 1:
        parts.append(f"{rest:.0f} s outside datasets")
    causes = f": {', '.join(parts)}" if parts else ""
    begun = "The first training step came" if certain else "Nothing else trained, and measuring began"
    return f"{begun} after {seconds:.0f} s{causes}."


def _place(use: Consumption) -> str:
    return f" at {os.path.basename(use.file)}:{use.line}" if use.file else ""


class Stopwatch:
    """Context manager: adds the wall and CPU time inside it to consumptions, also if the block raises.

    Costs two reads of two clocks, about a microsecond; measuring windows do not use it.
    """

    __slots__ = ("_cpu", "_uses", "_wall")

    def __init__(self, *uses: Consumption) -> None:
        self._uses = uses

    def __enter__(self) -> Stopwatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_error: object) -> None:
        self._wall, self._cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        for use in self._uses:
            self.charge(use)

    def charge(self, use: Consumption) -> None:
        """Adds the measured time to `use`."""
        use.wall_seconds += self._wall
        use.cpu_seconds += self._cpu


def whole_call_stopwatch(uses: list[Consumption]) -> Stopwatch:
    """Returns a stopwatch for a call that consumes datasets as a whole; its time includes the model's work."""
    for use in uses:
        use.whole_call = True
    return Stopwatch(*uses)


def variable_name(frame: FrameType | None, dataset: Any) -> str:
    """Returns the variable that holds the dataset in `frame` or a user frame that called it; '' if none does.

    Attributes of the object whose method runs count, too: `train` for `self.train`.
    """
    return _first_of_variables(frame, lambda name, value: name if value is dataset else "")


def place_in_table(frame: FrameType | None, dataset: Any) -> str:
    """Returns where a dict, list or tuple in a variable holds the dataset: `tests['a']`; '' if none does."""

    def place(name: str, value: Any) -> str:
        items = value.items() if type(value) is dict else enumerate(value) if type(value) in (list, tuple) else ()
        return next((f"{name}[{key!r}]" for key, one in items if one is dataset), "")

    return _first_of_variables(frame, place)


def _first_of_variables(frame: FrameType | None, text_of: Callable[[str, Any], str]) -> str:
    """Returns the first text that is not empty, of the variables in `frame` and in the user frames that called it."""
    while frame is not None:
        attributes: dict[str, Any] = getattr(frame.f_locals.get("self"), "__dict__", {})
        for scope in (frame.f_locals, attributes, frame.f_globals):
            for name, value in list(scope.items()):
                if not name.startswith("_") and (text := text_of(name, value)):
                    return text
        frame, _ = call_sites.user_frame(frame.f_back)
    return ""


class ScriptStopped(BaseException):
    """Ends the user's script once everything is measured; a BaseException, so no `except Exception` catches it."""


class Consumer(Protocol):
    """Something that trains on a dataset."""

    kind: str  # "keras-fit", "loop", "function", "coordinator", "step", "emulated", "none"
    description: str  # description for the report

    def window(self, dataset: Any, *, steps: int, warmup: int) -> Window:
        """Trains on a fresh iterator of `dataset` and returns the measured window.

        Args:
            dataset: a `tf.data.Dataset`.
            steps: elements of `dataset` to measure.
            warmup: training steps before them, which are not counted.

        Raises:
            RunFailed: the consumer cannot run a window (any more); the message is the reason.
        """
        ...

    def record_steps(self, dataset: Any, *, steps: int, seconds: float) -> StepSeries:
        """Trains on `dataset`, from its beginning, with a new iterator in each epoch, and returns single steps.

        Args:
            dataset: a `tf.data.Dataset`.
            steps: number of steps, at most.
            seconds: after which no further step begins.

        Raises:
            RunFailed: as in `window`.
        """
        ...


class NoConsumer:
    """Nothing trains, and the input is measured alone: both methods raise RunFailed, whose message says why."""

    kind = "none"

    def __init__(self, why: str) -> None:
        self.description = why

    def window(self, *_: Any, **_counts: Any) -> NoReturn:
        raise RunFailed(self.description)

    record_steps = window


FIRST_ELEMENTS = 20
"""Elements a loop must have taken before it is looked at; a loop that takes fewer is a preview. By judgement: one that
shows some examples shows fewer, and models are built within the first few steps."""

UNCERTAIN_ELEMENTS, UNCERTAIN_SECONDS = 200, 15.0
"""A loop that shows no sign is taken for training after so many elements and seconds, whichever is later: it may train
in a way that cannot be seen, such as on NumPy arrays."""

CHANGES_VARIABLES = "it changes trainable variables"

_MOST_VARIABLES, _MOST_VALUES = 200, 1_000_000  # read at a time, the smallest first: some ten milliseconds
_LONGEST_GAP = 64  # elements between two looks
_FRAMES = 5  # of the user's code, from the innermost: an iterator may be wrapped in generators


class TrainingSigns:
    """What a loop would change if it trained, as it was when the object was made.

    Args:
        frame: the innermost frame of the user's code in the loop.
    """

    def __init__(self, frame: FrameType | None) -> None:
        self._started = time.monotonic()
        optimizer = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizer, "register_optimizer_step_post_hook", None)  # PyTorch 2.0 and later
        self._torch_hook = register(self._add_torch_step) if register is not None else None
        self.renew(frame)

    def renew(self, frame: FrameType | None) -> None:
        """Counts from now on, not from when the object was made."""
        self._variables = [(variable, variable.numpy()) for variable in _smallest(readable_trainable_variables())]
        self._torch_steps = 0
        self._jax = dict(_jax_arrays(frame))
        self._gap = 1

    def describe(self, frame: FrameType | None) -> str:
        """Returns what shows that the loop trains; "" if nothing does so far."""
        for variable, value in self._variables:
            if variable.numpy().tobytes() != value.tobytes():  # a NaN equals nothing
                return CHANGES_VARIABLES
        if self._torch_steps:
            return "it calls torch.optim.Optimizer.step"
        for where, array in _jax_arrays(frame):
            if where in self._jax and array is not self._jax[where]:
                return f"it updates {where[1]}, which holds JAX arrays"
        return ""

    def waited_enough(self, elements: int) -> bool:
        return elements >= UNCERTAIN_ELEMENTS and time.monotonic() - self._started >= UNCERTAIN_SECONDS

    def next_look(self, elements: int) -> int:
        """Returns how many elements the loop shall have taken when it is looked at again: rarely after a while."""
        gap, self._gap = self._gap, min(2 * self._gap, _LONGEST_GAP)
        return elements + gap

    def close(self) -> None:
        """Frees what was copied, and ends counting."""
        self._variables, self._jax = [], {}
        if self._torch_hook is not None:
            self._torch_hook.remove()
            self._torch_hook = None

    def _add_torch_step(self, *_: object) -> None:
        self._torch_steps += 1


def _smallest(variables: list[Any]) -> list[Any]:
    chosen: list[Any] = []
    values = 0
    for variable in sorted(variables, key=lambda one: one.shape.num_elements() or 0)[:_MOST_VARIABLES]:
        size = variable.shape.num_elements() or 0
        if values > _MOST_VALUES or (chosen and size > 50 * _MOST_VALUES):
            break
        values += size
        chosen.append(variable)
    return chosen


def _jax_arrays(frame: FrameType | None) -> Iterator[tuple[tuple[int, str], Any]]:
    """Yields the first JAX array with at least one axis in each variable that an iteration of a loop carries over.

    With each array, its place: the position of its frame, and the name of the variable. A running sum of numbers is
    none: it has no axis.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return
    position = 0
    while frame is not None and position < _FRAMES:
        for name in sorted(_loop_carried(frame.f_code, frame.f_lasti)):
            value = frame.f_locals.get(name, frame.f_globals.get(name))
            for leaf in jax.tree_util.tree_leaves(value):
                if isinstance(leaf, jax.Array) and leaf.ndim:
                    yield (position, name), leaf
                    break
        frame, _ = call_sites.user_frame(frame.f_back)
        position += 1


_LOADS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


@functools.lru_cache
def _loop_carried(code: CodeType, position: int) -> frozenset[str]:
    """Returns the names that the innermost loop around an instruction reads before it stores them, and stores.

    `position` is the byte offset of the instruction, as in `frame.f_lasti`.
    """
    instructions = list(dis.get_instructions(code))
    jumps = [one for one in instructions if one.opname.startswith("JUMP_BACKWARD")]
    loops = [(jump.argval, jump.offset) for jump in jumps if jump.argval <= position <= jump.offset]
    if not loops:
        return frozenset()
    start, end = min(loops, key=lambda loop: loop[1] - loop[0])
    body = [one for one in instructions if start <= one.offset <= end]
    after = [one for one in body if one.offset > position] + [one for one in body if one.offset <= position]
    read, stored = set[str](), set[str]()
    for instruction in after:  # from where the element arrives
        for kind, name in _accesses(instruction):
            if kind == "load" and name not in stored:
                read.add(name)
            elif kind == "store":
                stored.add(name)
    return frozenset(read & stored)


def _accesses(instruction: dis.Instruction) -> Iterator[tuple[str, str]]:
    """Yields ("load" or "store", name) for each variable an instruction accesses; some access two (Python 3.13)."""
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    if not instruction.opname.startswith((*_LOADS, *_STORES)):
        return
    kinds = [part.lower() for part in instruction.opname.split("_") if part in ("LOAD", "STORE")]
    for kind, name in zip(kinds, names, strict=False):
        if isinstance(name, str):
            yield kind, name
