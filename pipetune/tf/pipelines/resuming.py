"""Finds in a pipeline how the script resumes after an interruption: a `skip` of finished steps, ids of examples."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from pipetune.core.location import SourceLocation
from pipetune.core.pipeline import Node, Pipeline
from pipetune.core.profile import Finding
from pipetune.core.resuming import Resuming, Way
from pipetune.tf.pipelines.halves import other_half
from pipetune.tf.pipelines.live import LivePipeline
from pipetune.tf.script import capture

IDS = "tfds_id"
"""The feature that TensorFlow Datasets adds with `ReadConfig(add_tfds_id=True)`."""

_BEHIND = frozenset({"prefetch", "with_options", "repeat", "assert_cardinality", "copy_to_device"})
_TEXT = frozenset({"TextLineDataset", "CsvDataset"})


def find(source: LivePipeline) -> list[Resuming]:
    """Returns the call sites of the training pipeline that let a later run resume; a take/skip split is not one."""
    return [*_skips(source), *_ids(source.pipeline)]


def _skips(source: LivePipeline) -> Iterator[Resuming]:
    pipeline = source.pipeline
    for node in pipeline:
        if node.op != "skip":
            continue
        text = argument_text(node.location)
        varies = bool(text) and not _literal(text)
        outermost = all(below.op in _BEHIND for below in pipeline.downstream(node.id))
        if not (varies or outermost) or _skips_a_header(node, pipeline) or other_half(node, source):
            continue
        place = node.location
        what = f"skip({text or node.argument('count')})"
        yield Resuming(
            Way.SKIP, what, file=place.file if place else "", line=place.end_line if place else 0, node=node.id
        )


def _ids(pipeline: Pipeline) -> Iterator[Resuming]:
    found = next((node for node in pipeline if f"'{IDS}'" in node.spec), None)
    if found is not None:
        place = found.location
        yield Resuming(Way.IDS, IDS, file=place.file if place else "", line=place.line if place else 0)


def _skips_a_header(node: Node, pipeline: Pipeline) -> bool:
    return pipeline[node.inputs[0]].op in _TEXT


def argument_text(location: SourceLocation | None) -> str:
    """Returns the source text of the first argument of the call at `location`; '' if it cannot be read."""
    if location is None or not location.exact:
        return ""
    place = (location.file, location.line, location.column, location.end_line, location.end_column)
    call = capture.written_call(*place)
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "count")] if call is not None else []
    return ast.unparse(given[0]) if given else ""


def _literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


_MEANING = {
    Way.ITERATOR_STATE: (
        "A checkpoint holds the state of the input iterator ({what}): it fits only the pipeline it was saved from.",
        "Let a run that has begun end with the pipeline it began with; put a patch in for a new run.",
    ),
    Way.SKIP: (
        "The script passes over what an earlier run has seen ({what}), and counts on the same order in every run.",
        "Let a run that has begun end with the pipeline it began with, where a rewrite changes the order.",
    ),
    Way.IDS: (
        "Elements carry the ids of their examples ({what}): a job that keeps those it has seen resumes in any order.",
        "",
    ),
    Way.EPOCHS: (
        "{what} keeps the epoch, not the place in the data: a resumed epoch begins with the first element again.",
        "",
    ),
}


def findings(found: Iterable[Resuming], pipeline: Pipeline) -> list[Finding]:
    """Returns what the report says about each of them, one finding each."""
    return [_finding(one, pipeline) for one in found]


def _finding(one: Resuming, pipeline: Pipeline) -> Finding:
    message, hint = _MEANING[one.way]
    message = message.format(what=one.what)
    if one.way is Way.SKIP and _shuffles_anew(one.node, pipeline):
        message += (
            " A shuffle without a seed stands above it and draws another order in each run: a resumed job sees some "
            "examples twice and others never."
        )
        hint = "Give the shuffle a seed, or skip before it."
    return Finding("resumes", message, hint, one.file or None, one.line or None)


def _shuffles_anew(node: str, pipeline: Pipeline) -> bool:
    above = pipeline.upstream(node) if node in pipeline else ()
    return any(one.op == "shuffle" and one.argument("seed") is None for one in above)
