"""Where the calls of a captured pipeline are after a plan for another one was written: several plans, one patch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pipetune.core.pipeline import Pipeline, SourceLocation
from pipetune.source.draft import CallSite, Draft
from pipetune.source.source_files import BYTE_ORDER_MARK, line_starts

_REMOVED = -1  # the line and column of a call that is no longer there


def tracking(draft: Draft, pipelines: Iterable[Pipeline]) -> Draft:
    """Returns the draft, before any edit, that keeps track of the calls of these pipelines in its files."""
    starts = {file: line_starts(code) for file, code in draft.codes.items()}
    sites = (
        CallSite(place.file, starts[place.file][place.end_line - 1] + place.end_column)
        for pipeline in pipelines
        for place in locations(pipeline)
        if place.file in starts and 0 < place.end_line <= len(starts[place.file])
    )
    return replace(draft, tracked={site: site for site in sites})


def relocated(pipeline: Pipeline, files: Mapping[str, tuple[str, str]], moved: Mapping[CallSite, CallSite]) -> Pipeline:
    """Returns a captured pipeline with the locations that its calls have after the files were changed.

    An operator whose call was removed, moved or written anew by the change has no location.

    Args:
        pipeline: as it was captured.
        files: path -> captured text, changed text.
        moved: where the calls are now, by where they were captured: `Emission.moved`.
    """
    starts = {path: tuple(line_starts(_bytes(text)) for text in texts) for path, texts in files.items()}

    def now(place: SourceLocation) -> SourceLocation | None:
        if place.file not in starts:
            return place
        before, after = starts[place.file]
        if not place.exact or not 0 < place.end_line <= len(before):
            return None
        site = moved.get(CallSite(place.file, before[place.end_line - 1] + place.end_column))
        if site is None or site.end < 0:
            return None
        line = max(number for number, start in enumerate(after, 1) if start <= site.end)
        return replace(
            place,
            line=place.line + line - place.end_line,
            end_line=line,
            end_column=site.end - after[line - 1],
        )

    def stack(calls: tuple[SourceLocation, ...]) -> tuple[SourceLocation, ...]:
        return tuple(now(one) or replace(one, end_line=_REMOVED, end_column=_REMOVED) for one in calls)

    nodes = tuple(
        replace(
            node,
            location=now(node.location) if node.location is not None else None,
            calls=stack(node.calls),
            other_calls=tuple(map(stack, node.other_calls)),
        )
        for node in pipeline
    )
    return replace(pipeline, nodes=nodes)


def locations(pipeline: Pipeline) -> Iterator[SourceLocation]:
    """Yields the calls that built a pipeline and those around them, with repetitions."""
    for node in pipeline:
        if node.location is not None:
            yield node.location
        yield from node.calls
        for stack in node.other_calls:
            yield from stack


def _bytes(text: str) -> bytes:
    return text.removeprefix(BYTE_ORDER_MARK).encode()
