"""Loads the text of a stand-alone module and calls its `dataset_fn`, without touching the user's modules."""

from __future__ import annotations

import importlib.util
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipetune.core.distribution import DeliveryMode
from pipetune.core.errors import CannotExpress
from pipetune.core.files import temporary_folder
from pipetune.core.functions import GRAPH_EDITS, FunctionVariant
from pipetune.core.pipeline import Pipeline
from pipetune.pipelines import files, live
from pipetune.pipelines.replay import OUTPUT, replay_nodes

_NAME = "_pipetune_standalone"

Maker = Callable[[int, int, int], Any]
"""Creates a dataset, given the number of input pipelines, the index of this one, and the total number of replicas."""


@contextmanager
def emitted(
    text: str,
    *,
    delivery: DeliveryMode,
    parameter: Any = None,
    global_batch_size: int | None = None,
    indexed: bool = False,
    fill: bool = False,
) -> Iterator[Maker]:
    """Context manager: loads a module and yields its `dataset_fn`, or its `pipeline` for a service.

    Args:
        text: source text of the module.
        parameter: value of its argument `source`; None if it has none.
        global_batch_size: the module's constant, in rows; it is lowered to a multiple of the number of replicas.
        indexed: create datasets of (index, element).
        fill: create datasets whose last batches are filled.

    Raises:
        CannotExpress: the module, or its function, raises.
    """
    given = {} if parameter is None else {"source": parameter}
    given |= {"fill": True} if fill else {}
    prefix = "indexed_" if indexed else ""
    with loaded(text) as module:

        def make(pipelines: int, number: int, replicas: int) -> Any:
            if global_batch_size is not None:
                module.GLOBAL_BATCH_SIZE = fitting_batch_size(global_batch_size, replicas)
            if delivery is DeliveryMode.SERVICE:
                return _call(getattr(module, f"{prefix}pipeline"), **given)
            function = getattr(module, f"{prefix}dataset_fn")
            if delivery is DeliveryMode.RANKS:
                steps = () if indexed else (None,)
                return _call(function, *steps, size=pipelines, rank=number, **given)
            return _call(function, tf.distribute.InputContext(pipelines, number, replicas), **given)

        yield make


@contextmanager
def loaded(text: str) -> Iterator[Any]:
    """Context manager: loads a module and yields it.

    Raises:
        CannotExpress: the module raises.
    """
    with temporary_folder("module") as folder, files.private_files_for_new_code():
        # A real file is needed: AutoGraph reads the source of functions that it converts.
        path = os.path.join(folder, f"{_NAME}.py")
        Path(path).write_text(text, encoding="utf-8")
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


def opened() -> Any:
    """Returns the module that is loaded at the moment."""
    return sys.modules[_NAME]


def fitting_batch_size(global_batch_size: int, replicas: int) -> int:
    """Returns the largest multiple of `replicas` up to this global batch size; at least one row per replica."""
    return max(replicas, global_batch_size // replicas * replicas)


def check_same(made: live.LivePipeline, source: live.LivePipeline, tuned: Pipeline) -> None:
    """Checks that `made`, the module's dataset for one worker, is the tuned pipeline, function by function.

    Functions whose graphs an edit changes are compared as they were: only a patch writes that change.

    Raises:
        CannotExpress: a function has a different graph or different captured values, or the element specs differ.
    """
    as_traced = {
        node.id: replace(node.function, form=FunctionVariant.AS_TRACED)
        for node in tuned
        if node.function is not None and node.function.form in GRAPH_EDITS
    }
    built = replay_nodes(source, tuned.with_functions(as_traced))
    # As replayed, not as planned: with batches of another size, a function created by an edit has another graph.
    tuned_form = live.read(built[OUTPUT])
    functions, copies = _functions(tuned_form.pipeline), _functions(made.pipeline)
    for (node_id, name, digest), (other_id, _, other) in zip(functions, copies, strict=False):
        if digest == "unreadable":
            raise CannotExpress(f"The function {name} has no graph to compare a copy with.")
        if digest != other or not _same_values(tuned_form.datasets[node_id], made.datasets[other_id]):
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
    for attribute in live.kind_of(dataset).functions:
        function, copied = getattr(dataset, attribute).function, getattr(other, attribute).function
        mine, copies = function.captured_inputs, copied.captured_inputs
        if len(mine) != len(copies) or _unhashed_constants(function) != _unhashed_constants(copied):
            return False
        for tensor, copy in zip(mine, copies, strict=True):
            if tensor.dtype != copy.dtype:
                return False
            readable = tensor.dtype not in (tf.resource, tf.variant) and hasattr(tensor, "numpy")
            if readable and not np.array_equal(tensor.numpy(), copy.numpy()):
                return False
    return True


def _unhashed_constants(concrete: Any) -> list[bytes]:
    """Returns the constants that a function's digest omits: those over 1 kB, and file names."""
    graph_def = concrete.graph.as_graph_def()
    nodes = [*graph_def.node, *(node for part in graph_def.library.function for node in part.node_def)]
    tensors = [node.attr["value"].tensor for node in nodes if node.op == "Const"]
    texts = [tensor.SerializeToString(deterministic=True) for tensor in tensors]
    return sorted(text for text in texts if len(text) > 1024 or os.sep.encode() in text)


def _call(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    try:
        return function(*arguments, **keywords)
    except Exception as error:  # the user's functions run here and may raise anything
        why = next(iter(str(error).strip().splitlines()), "")
        raise CannotExpress(f"The stand-alone module does not run: {type(error).__name__}: {why}") from error
