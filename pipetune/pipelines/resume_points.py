"""Finds in a pipeline how the script resumes after an interruption: a `skip` of finished steps, ids of examples."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable, Iterator

from pipetune.core.pipeline import Pipeline, SourceLocation
from pipetune.core.profile import Finding
from pipetune.core.results import ResumeMethod, ResumePoint
from pipetune.pipelines import call_sites
from pipetune.pipelines.live import LivePipeline, has_complement

ID_FEATURE = "tfds_id"
"""The feature that TensorFlow Datasets adds with `ReadConfig(add_tfds_id=True)`."""

_ALLOWED_AFTER_SKIP = frozenset({"prefetch", "with_options", "repeat", "assert_cardinality", "copy_to_device"})
_TEXT_READERS = frozenset({"TextLineDataset", "CsvDataset"})


def find(source: LivePipeline) -> list[ResumePoint]:
    """Returns the call sites of the training pipeline that let a later run resume; a take/skip split is not one."""
    found = list(_skips(source))
    for node in source.pipeline:
        if node.element_spec.has_component(ID_FEATURE):
            file, line = (node.location.file, node.location.line) if node.location else ("", 0)
            return [*found, ResumePoint(ResumeMethod.IDS, ID_FEATURE, file=file, line=line)]
    return found


def _skips(source: LivePipeline) -> Iterator[ResumePoint]:
    pipeline = source.pipeline
    for node in pipeline:
        if node.op != "skip":
            continue
        text = argument_text(node.location)
        varies = bool(text) and not _is_literal(text)
        outermost = all(below.op in _ALLOWED_AFTER_SKIP for below in pipeline.downstream(node.id))
        skips_a_header = pipeline[node.inputs[0]].op in _TEXT_READERS
        if not (varies or outermost) or skips_a_header or has_complement(node, source):
            continue
        place, what = node.location, f"skip({text or node.argument('count')})"
        file, line = (place.file, place.end_line) if place else ("", 0)
        yield ResumePoint(ResumeMethod.SKIP, what, file=file, line=line, node=node.id)


def argument_text(location: SourceLocation | None) -> str:
    """Returns the source text of the first argument of the call at `location`; '' if it cannot be read."""
    if location is None or not location.exact:
        return ""
    place = (location.file, location.line, location.column, location.end_line, location.end_column)
    call = call_sites.call_expression(*place)
    given = [*call.args, *(one.value for one in call.keywords if one.arg == "count")] if call is not None else []
    return ast.unparse(given[0]) if given else ""


def _is_literal(text: str) -> bool:
    with contextlib.suppress(ValueError, SyntaxError):
        ast.literal_eval(text)
        return True
    return False


_MESSAGES = {
    ResumeMethod.ITERATOR_STATE: (
        "A checkpoint contains the state of the input iterator ({what}): it can only be restored with the pipeline "
        "that it was saved from.",
        "Finish a run with the pipeline that it started with; apply a patch only for a new run.",
    ),
    ResumeMethod.SKIP: (
        "The script skips the elements that an earlier run has seen ({what}) and relies on the same order in every "
        "run.",
        "If a rewrite changes the order, finish a run with the pipeline that it started with.",
    ),
    ResumeMethod.IDS: (
        "Elements carry the ids of their examples ({what}): a job that records the ids it has seen can resume in any "
        "order.",
        "",
    ),
    ResumeMethod.EPOCHS: (
        "{what} restores the epoch but not the position in the data: a resumed epoch starts again at the first "
        "element.",
        "",
    ),
}


def findings(found: Iterable[ResumePoint], pipeline: Pipeline) -> Iterator[Finding]:
    """Yields what the report says about each of them, one finding each."""
    for one in found:
        message, hint = _MESSAGES[one.way]
        message = message.format(what=one.what)
        above = pipeline.upstream(one.node) if one.way is ResumeMethod.SKIP and one.node in pipeline else ()
        if any(node.op == "shuffle" and node.argument("seed") is None for node in above):
            message += (
                " An unseeded shuffle upstream of it uses a different order in each run: a resumed job sees some "
                "examples twice and others never."
            )
            hint = "Give the shuffle a seed, or skip before shuffling."
        yield Finding("resumes", message, hint, one.file or None, one.line or None)
