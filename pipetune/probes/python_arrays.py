"""Probes whether the Python code that functions call with eager tensors could get arrays."""

from __future__ import annotations

from dataclasses import replace

import tensorflow as tf

from pipetune.core.functions import PythonArrays
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.python_functions import EAGER_CALL, TensorsNeeded, call_with_arrays
from pipetune.probes.branching import ShapesLost, edited_digest


def annotate_python(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that call Python annotated with whether that could get arrays.

    Args:
        pipeline: that of `source`, with or without other annotations.
    """
    facts = {
        node.id: replace(node.function, arrays=probe_python(source, node))
        for node in pipeline
        if node.op == "map" and node.inputs and node.function is not None and EAGER_CALL in node.function.operations
    }
    return pipeline.with_functions(facts)


@unknown_on_error(PythonArrays)
def probe_python(source: live.LivePipeline, node: Node) -> PythonArrays:
    """Returns whether the Python code that the function of `node` calls could get arrays, or why not."""
    try:
        return PythonArrays(digest=edited_digest(source, node, call_with_arrays(source.datasets[node.id]._map_func)))
    except (TensorsNeeded, ShapesLost) as reason:
        return PythonArrays(why_not=str(reason))
    except (tf.errors.OpError, ValueError, TypeError) as error:  # the graph cannot be rebuilt
        return PythonArrays(why_not=f"its graph cannot be changed ({type(error).__name__})")
