"""Loads the text of a stand-alone module and calls its `dataset_fn`, without touching the user's modules."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core import scratch
from pipetune.core.errors import CannotExpress
from pipetune.core.pipeline import Pipeline
from pipetune.core.standalone import Delivery
from pipetune.tf.pipelines import file_caches, live, operators
from pipetune.tf.pipelines.replay import OUTPUT, replay_nodes

REPLAYS = True  # datasets made below this module are pipetune's, not the user's
_NAME = "_pipetune_standalone"

Maker = Callable[[int, int, int], Any]
"""(input pipelines, number of this one, replicas over all) -> the dataset the module makes."""


@contextmanager
def emitted(
    text: str,
    *,
    parameter: Any = None,
    global_batch_size: int | None = None,
    delivery: Delivery = Delivery.PARTS,
) -> Iterator[Maker]:
    """The module's `dataset_fn`, or its `pipeline` for a service, while open.

    Args:
        text: the module.
        parameter: what to pass as `source`, if it wants one.
        global_batch_size: the module's constant, if it batches; it is lowered to what the replicas divide.

    Raises:
        CannotExpress: the module, or its function, raises.
    """
    with loaded(text) as module:
        yield maker(module, parameter=parameter, global_batch_size=global_batch_size, delivery=delivery)


@contextmanager
def loaded(text: str) -> Iterator[Any]:
    """The module, while open.

    Raises:
        CannotExpress: it raises.
    """
    with scratch.folder("module") as folder, file_caches.of_new_code_apart():
        # A real file: AutoGraph reads the source of what it translates.
        path = os.path.join(folder, f"{_NAME}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        spec = importlib.util.spec_from_file_location(_NAME, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[_NAME] = module
        try:
            _call(spec.loader.exec_module, module)
            yield module
        finally:
            del sys.modules[_NAME]
            linecache.checkcache(path)


def maker(
    module: Any,
    *,
    parameter: Any,
    global_batch_size: int | None,
    delivery: Delivery,
    indexed: bool = False,
    fill: bool = False,
) -> Maker:
    """What makes the datasets of a module.

    Args:
        indexed: those whose elements stand behind their index.
        fill: those whose last batches are filled.
    """
    given = {} if parameter is None else {"source": parameter}
    given |= {"fill": True} if fill else {}
    prefix = "indexed_" if indexed else ""

    def make(pipelines: int, number: int, replicas: int) -> Any:
        if global_batch_size is not None:
            module.GLOBAL_BATCH_SIZE = fitting_batch_size(global_batch_size, replicas)
        if delivery is Delivery.SERVICE:
            return _call(getattr(module, f"{prefix}pipeline"), **given)
        function = getattr(module, f"{prefix}dataset_fn")
        if delivery is Delivery.RANKS:
            steps = () if indexed else (None,)
            return _call(function, *steps, size=pipelines, rank=number, **given)
        return _call(function, tf.distribute.InputContext(pipelines, number, replicas), **given)

    return make


def opened() -> Any:
    """The module that is open."""
    return sys.modules[_NAME]


def fitting_batch_size(global_batch_size: int, replicas: int) -> int:
    """The largest batch up to this size that the replicas divide."""
    return max(replicas, global_batch_size // replicas * replicas)


def check_same(made: live.LivePipeline, source: live.LivePipeline, tuned: Pipeline) -> None:
    """Checks that what the module makes for one worker is the tuned pipeline, function by function.

    Raises:
        CannotExpress: a function has another graph or other captured values, or the elements another form.
    """
    built = replay_nodes(source, tuned)
    # As replayed, not as planned: with other batches than the plan's, a function made by an edit is traced otherwise.
    wanted = live.read(built[OUTPUT])
    functions, copies = _functions(wanted.pipeline), _functions(made.pipeline)
    for (node_id, name, digest), (other_id, _, other) in zip(functions, copies, strict=False):
        if digest == "unreadable":
            raise CannotExpress(f"The function {name} has no graph to compare a copy with.")
        if digest != other or not _same_values(wanted.datasets[node_id], made.datasets[other_id]):
            raise CannotExpress(
                f"The function {name}, copied, is not the one the pipeline runs: it depends on something "
                "that has changed since, or that a copy does not see."
            )
    if len(functions) != len(copies):
        raise CannotExpress("The copied pipeline has other operators than the tuned one.")
    spec = built[OUTPUT].element_spec
    if made.dataset.element_spec != spec:
        raise CannotExpress(f"The copied pipeline gives {made.dataset.element_spec}, the tuned one {spec}.")


def _functions(pipeline: Pipeline) -> list[tuple[str, str, str]]:
    return [(node.id, node.function.name, node.function.digest) for node in pipeline if node.function]


def _same_values(dataset: Any, other: Any) -> bool:
    for attribute in operators.kind_of(dataset).functions:
        function, copied = getattr(dataset, attribute).function, getattr(other, attribute).function
        mine, theirs = function.captured_inputs, copied.captured_inputs
        if len(mine) != len(theirs) or _unhashed_constants(function) != _unhashed_constants(copied):
            return False
        for tensor, copy in zip(mine, theirs, strict=True):
            if tensor.dtype != copy.dtype:
                return False
            readable = tensor.dtype not in (tf.resource, tf.variant) and hasattr(tensor, "numpy")
            if readable and not np.array_equal(tensor.numpy(), copy.numpy()):
                return False
    return True


def _unhashed_constants(concrete: Any) -> list[bytes]:
    """The constants that a function's digest leaves out: long ones, and names of files."""
    graph_def = concrete.graph.as_graph_def()
    nodes = [*graph_def.node, *(node for part in graph_def.library.function for node in part.node_def)]
    tensors = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    texts = [tensor.SerializeToString(deterministic=True) for tensor in tensors]
    return sorted(text for text in texts if len(text) > 1024 or os.sep.encode() in text)


def _call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except Exception as error:  # the user's functions run here: whatever they raise is a reason
        text = str(error).strip().splitlines()
        raise CannotExpress(
            f"The stand-alone module does not run: {type(error).__name__}: {text[0] if text else ''}"
        ) from error
