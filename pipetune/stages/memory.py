"""After the verdict: whether memory keeps growing while the input runs alone, epoch after epoch."""

from __future__ import annotations

from dataclasses import replace

from pipetune.core.measurement import RunFailed
from pipetune.core.memory import Growth
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, Profile
from pipetune.model.growth import growth
from pipetune.stages.study import Study
from pipetune.tf.measure.growth import Watched, watch

_SHARE = 0.04  # of the budget
_MOST_SECONDS = 2.5
_ALONE_SECONDS = 0.6  # without trials
_FEWEST_SECONDS = 0.4


def watch_memory(study: Study, profile: Profile) -> Profile:
    """Returns the profile with the growth of memory; growth that does not stop becomes a finding.

    Steady growth is measured a second time, on a fresh iterator: growth that only fills a cache or the free lists of an
    allocator has stopped by then.
    """
    settings, journal = study.settings, study.journal
    seconds = min(_MOST_SECONDS, _SHARE * settings.budget_seconds) if settings.trials else _ALONE_SECONDS
    seconds /= 5 if settings.quick else 1
    if seconds < _FEWEST_SECONDS:
        return profile
    with journal.phase("memory", "watching memory while the input goes on"):
        seen = _watched(study, seconds)
        if seen is None:
            return profile
        found = _growth(study, seen)
        if found is not None and found.steady:
            again = _watched(study, seconds)
            found = _growth(study, again) if again is not None else None
    profile = replace(profile, growth=found, held=seen.held)
    study.runner.profile = profile
    journal.dataset(profile=profile)
    if found is not None and found.steady:
        journal.update(findings=(*journal.session.findings, finding(study, found)))
    return profile


def _watched(study: Study, seconds: float) -> Watched | None:
    try:
        return watch(study.runner.source.dataset, seconds=seconds)
    except RunFailed:
        return None
    finally:
        study.runner.restore()


def _growth(study: Study, seen: Watched) -> Growth | None:
    count = study.subject.source.pipeline.output.cardinality
    return growth(seen.readings, epoch_elements=count if count > 0 else None)


def finding(study: Study, found: Growth) -> Finding:
    """Returns the finding about growing memory, at the Python function that may retain what it creates, if any."""
    node = _suspect(study)
    place = node.location if node is not None else None
    slope = found.bytes_per_element.median * (found.epoch_elements or 1000)
    per = "epoch" if found.epoch_elements else "1,000 elements"
    return Finding(
        code="memory-grows",
        message=(
            f"Memory grows by {slope / 2**20:,.1f} MiB per {per} while the input runs alone, and does not stop: "
            f"{found.grown_bytes / 2**20:,.0f} MiB in {found.elements:,} elements."
        ),
        hint=(
            f"Look what the Python code of {node.title} keeps from call to call."
            if node is not None
            else "Something in the input keeps what it makes: a cache without an end, a table or a Python list."
        ),
        file=place.file if place else None,
        line=place.line if place else None,
    )


def _suspect(study: Study) -> Node | None:
    return next(
        (
            node
            for node in study.subject.source.pipeline
            if node.op == "from_generator" or (node.function is not None and node.function.python)
        ),
        None,
    )
