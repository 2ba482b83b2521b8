"""Probes whether the Python code that functions call with eager tensors could get arrays."""

from __future__ import annotations

from pipetune.core.functions import PythonArrays
from pipetune.core.pipeline import Node, Pipeline
from pipetune.pipelines import live
from pipetune.pipelines.errors import unknown_on_error
from pipetune.pipelines.python_functions import EAGER_CALL, TensorsNeeded, call_with_arrays
from pipetune.probes.edited_graphs import annotate_maps, probe_edit


def annotate_python(source: live.LivePipeline, pipeline: Pipeline) -> Pipeline:
    """Returns `pipeline` with its functions that call Python annotated with whether that could get arrays."""
    return annotate_maps(source, pipeline, "arrays", probe_python, lambda one: EAGER_CALL in one.operations)


@unknown_on_error(PythonArrays)
def probe_python(source: live.LivePipeline, node: Node) -> PythonArrays:
    """Returns whether the Python code that the function of `node` calls could get arrays, or why not."""
    return probe_edit(source, node, call_with_arrays, refusal=TensorsNeeded, result=PythonArrays)
