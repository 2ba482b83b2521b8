"""The report as Markdown, for a pull request or an issue."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.session import Session
from pipetune.report.changes import RewriteRow
from pipetune.report.circumstances import Warning
from pipetune.report.markdown_own_work import own_work_lines
from pipetune.report.markdown_shards import division_lines, shard_lines, table_lines
from pipetune.report.markdown_text import block, code, escape, table
from pipetune.report.values import Figure
from pipetune.report.view import DatasetView, View, make_view


def markdown(session: Session) -> str:
    """The report. Foreign text is escaped, so that it renders as what it says and links nothing."""
    return "\n".join(_parts(make_view(session))) + "\n"


def _parts(view: View) -> Iterator[str]:
    speedup = view.headline.speedup
    yield f"# pipetune: {escape(view.title)}"
    yield ""
    first = f"{speedup.text}, {speedup.basis}" if speedup.known else f"{speedup.text}: {speedup.why}"
    yield f"**Training speedup {escape(first)}**"
    yield ""
    yield escape(view.headline.sentence)
    for detail in view.headline.details:
        if detail:
            yield ""
            yield from block(detail) if "\n" in detail else [escape(detail)]
    if view.studied:
        yield ""
        yield f"Verdict: **{escape(view.verdict.word)}**. {escape(view.verdict.sentence)}"
    for dataset in view.studied:
        yield from _dataset(view, dataset)
    yield from _trials(view)
    yield from _told("Warnings about the script as it is", view.warnings)
    yield from _told("Advice beside the patch", view.advice)
    yield from _patch(view)
    yield from _distributed(view)
    yield from _circumstances(view)


def _dataset(view: View, dataset: DatasetView) -> Iterator[str]:
    steps = {rung.name: rung.step for rung in view.steps} if dataset is view.main else {}
    yield from ("", f"## Dataset {escape(dataset.name)}", "")
    if dataset.handover:
        yield from (escape(dataset.handover), "")
    if dataset.division:
        yield from division_lines(dataset.division)
    yield from table(
        ("variant", "training step", "examples", "CPU per example", "first batch", "peak memory"),
        (
            (
                rung.label,
                *map(_cell, (steps.get(rung.name, Figure()), rung.examples, rung.cpu, rung.first, rung.memory)),
            )
            for rung in dataset.ladder.rungs
        ),
    )
    yield ""
    yield f"Bound: {_cell(steps.get('bound', Figure()))} per step, {_cell(dataset.ladder.bound)} examples."
    yield ""
    yield from table(
        ("operator", "source", "stage", "CPU us", "waiting us", "share", "bytes out", "buffered", "marks"),
        (
            (
                escape(f"{row.title} {row.function}".strip()),
                code(row.where, cell=True),
                row.stage_letter,
                *map(_cell, (row.cpu, row.waiting, row.share, row.bytes_out, row.buffered)),
                row.flags,
            )
            for row in dataset.operators.rows
        ),
    )
    if dataset.files:
        said = (dataset.files.which, dataset.files.limit, dataset.files.warm)
        yield from ("", f"Files: {escape(' '.join(part for part in said if part))}")
        yield from (f"- {escape(sweep.title)}: {escape(sweep.sentence)}" for sweep in dataset.files.sweeps)
    for sentence in (dataset.operators.total, *dataset.operators.notes):
        if sentence:
            yield from ("", escape(sentence))
    if dataset.operators.why:
        yield from ("", f"No costs: {escape(dataset.operators.why)}.")
    yield from _timeline(dataset)
    yield from _foresight(dataset)
    yield from own_work_lines(dataset.own_work)
    if dataset.course.facts:
        yield ""
        for fact in dataset.course.facts:
            yield f"- {escape(fact.label)}: {escape(fact.text)}{f' ({escape(fact.note)})' if fact.note else ''}"
    yield from _rewrites("Rewrites in the plan", dataset.changes.plan)
    yield from _rewrites("Offered, if you consent", dataset.changes.offered)
    if dataset.changes.rejected:
        yield from ("", "### Rejected", "")
        for rejected in dataset.changes.rejected:
            gain = f" {rejected.gain.text}" if rejected.gain.known else ""
            times = f" ({rejected.times} variants)" if rejected.times > 1 else ""
            yield f"- {escape(rejected.rule)} {code(rejected.where)}{gain}{times}: {escape(rejected.why)}"
    yield from ("", "### Equality and order", "", escape(dataset.equality.sentence), "")
    for check in dataset.equality.checks:
        yield f"- {check.outcome}: {escape(check.name)}{f' ({escape(check.detail)})' if check.detail else ''}"
    yield from ("", escape(dataset.order.sentence))


def _timeline(dataset: DatasetView) -> Iterator[str]:
    yield ""
    if dataset.step_bar.sentence:
        yield from (escape(dataset.step_bar.sentence), "")
    if dataset.timeline.why:
        yield f"No timeline: {escape(dataset.timeline.why)}."
        return
    yield from table(
        ("step", "per step", "input", "model", "model waits", "overlap"),
        (
            (
                f"{row.label}{'' if row.measured else ' (predicted)'}",
                *(f"{value:.3g} ms" for value in (row.period_ms, row.input_ms, row.model_ms, row.wait_ms)),
                f"{row.overlap_ms:.3g} ms",
            )
            for row in dataset.timeline.rows
        ),
    )


def _foresight(dataset: DatasetView) -> Iterator[str]:
    seen = dataset.foresight
    if seen.rows:
        yield from ("", "### Predicted and measured", "", escape(seen.sentence), "")
        yield from table(
            ("plan", "predicted", "measured", "error"),
            ((escape(row.label), *map(_cell, (row.predicted, row.measured, row.error))) for row in seen.rows),
        )
    if seen.scenarios:
        yield from ("", "### What if", "")
        yield from table(
            ("if there were", "the input delivers", "a step takes", "then binds"),
            ((escape(row.label), _cell(row.input), _cell(row.step), escape(row.binds)) for row in seen.scenarios),
        )
    elif seen.no_scenarios:
        yield from ("", f"What if: not predicted: {escape(seen.no_scenarios)}.")


def _rewrites(title: str, rows: tuple[RewriteRow, ...]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", f"### {title}", "")
    for row in rows:
        head = f"- **{escape(row.rule)}** {code(row.where)} {row.gain.text}, {row.safety}."
        yield f"{head} {escape(row.summary)}"
        for edit in row.edits:
            yield f"  - {code(edit)}"
        if row.why and not (row.consent and row.gain.known):
            yield f"  - {escape(row.why)}"
        if row.consent:
            yield f"  - consent with {code(row.consent)}"


def _trials(view: View) -> Iterator[str]:
    if not view.attempts.rows:
        return
    yield from ("", "## Every trial", "", escape(view.attempts.sentence), "")
    for note in view.notes:
        yield from (escape(note), "")
    yield from table(
        ("tried", "kind", "gain", "outcome", "why"),
        (
            (
                escape(row.label),
                escape(row.kind),
                _cell(row.gain),
                row.outcome,
                escape(f"{row.why} {row.outliers}".strip()),
            )
            for row in view.attempts.rows
        ),
    )


def _told(title: str, warnings: tuple[Warning, ...]) -> Iterator[str]:
    if not warnings:
        return
    yield from ("", f"## {title}", "")
    for warning in warnings:
        said = escape(f"{warning.message} {warning.hint}".strip())
        yield f"- **{escape(warning.code)}** {code(warning.where)} {said}"


def _patch(view: View) -> Iterator[str]:
    if not view.studied:
        return
    yield from ("", "## Patch", "", escape(view.patch.sentence))
    for rule, why in view.patch.not_covered:
        yield f"- not in the patch: {escape(rule)}. {escape(why)}"
    if view.patch.diff:
        yield ""
        yield from block(view.patch.diff, "diff")


def _distributed(view: View) -> Iterator[str]:
    form = view.distributed
    if form is None:
        return
    yield from ("", f"## Distributed form: {escape(form.kind)}", "", escape(form.sentence), "")
    for line in form.advice:
        yield from (escape(line), "")
    yield from table(
        ("workers", "elements", "missing", "duplicated", "equal batches", "dropped by full batches", "filled instead"),
        (
            map(
                escape,
                (
                    *(row.workers, row.elements, row.missing, row.duplicated, row.equal_batches),
                    *(row.dropped or "-", row.filled or "-"),
                ),
            )
            for row in form.coverage
        ),
    )
    for found in form.shards:
        yield from shard_lines(found, f"**{escape(found.title)}**: {escape(found.sentence)}")
    if form.as_written:
        yield from division_lines(form.as_written, "**The script as it is**: ")
    if form.shards:
        yield from table_lines(form.table)


def _circumstances(view: View) -> Iterator[str]:
    groups = (("Machine", view.machine), ("Suppressed", view.suppressed), ("Seconds", view.seconds))
    for title, facts in groups:
        if facts:
            yield from ("", f"## {title}", "")
            for fact in facts:
                note = f" ({escape(fact.note)})" if fact.note else ""
                yield f"- {escape(fact.label)}: {escape(fact.text)}{note}"
    if view.next_steps:
        yield from ("", "## Next", "")
        for step in view.next_steps:
            yield f"- {code(step.label)} {escape(step.text)}"


def _cell(figure: Figure) -> str:
    return escape(figure.text) if figure.known else "-"
