"""plan.json: edits and the pipeline they were created for, so that they can be applied without the source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipetune.core.codec import Json, decode, encode
from pipetune.core.edits import Edit, Plan, Rewrite
from pipetune.core.errors import PlanMismatch
from pipetune.core.files import read_value, write_json
from pipetune.core.machine import Machine
from pipetune.core.pipeline import Pipeline
from pipetune.core.session import SCHEMA, DatasetResult, Session
from pipetune.core.version import VERSION

PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class PlanFile:
    """Contents of plan.json for one dataset; without edits the pipeline stays unchanged."""

    fingerprint: str  # `Pipeline.fingerprint`
    operators: tuple[dict[str, object], ...]  # `Pipeline.describe()`
    edits: tuple[Edit, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()  # the same edits grouped by rule, for the report
    machine: Machine | None = None
    pipetune: str = VERSION
    name: str = "dataset"
    more: tuple[PlanFile, ...] = ()  # further datasets of the script

    @property
    def plan(self) -> Plan:
        return Plan(self.name, self.rewrites)

    def check(self, pipeline: Pipeline) -> None:
        """Checks that `pipeline` is the one the plan was created for.

        Raises:
            PlanMismatch: it is a different one; the message names the first operator that differs.
        """
        if pipeline.fingerprint == self.fingerprint:
            return
        found = first_difference(pipeline, self.operators, there="the plan")
        raise PlanMismatch(
            f"The plan was made for another pipeline{f': {found}' if found else ''}.",
            hint="Run `pipetune analyze` again on the script as it is now.",
        )


def plan_file(session: Session) -> PlanFile | None:
    """Returns the contents of plan.json for `session`; None if no pipeline was profiled."""
    plans = tuple(_of_dataset(dataset, session) for dataset in session.studied)
    return replace(plans[0], more=plans[1:]) if plans else None


def save_plan(plan: PlanFile, path: Path | str) -> None:
    """Writes plan.json atomically."""
    fields = encode(plan)
    assert isinstance(fields, dict)
    head: dict[str, Json] = {"schema": SCHEMA, "pipetune": fields.pop("pipetune")}
    write_json(Path(path), head | {name: fields.pop(name) for name in ("machine", "fingerprint")} | fields)


def load_plan(path: Path | str) -> PlanFile:
    """Loads the plan from `path`, a plan.json or the folder that contains one.

    Raises:
        PipetuneError: the file does not exist, is damaged, or was written by another release.
    """
    return read_value(path, lambda data: decode(PlanFile, data), name=PLAN_FILE, kind="plan", schema=SCHEMA)


def _of_dataset(dataset: DatasetResult, session: Session) -> PlanFile:
    rewrites = dataset.plan.rewrites if dataset.plan else ()
    return PlanFile(
        fingerprint=dataset.pipeline.fingerprint,
        operators=tuple(json.loads(json.dumps(dataset.pipeline.describe()))),
        edits=tuple(edit for rewrite in rewrites for edit in rewrite.edits),
        rewrites=rewrites,
        machine=session.machine,
        pipetune=session.version,
        name=dataset.pipeline.name,
    )


def first_difference(pipeline: Pipeline, operators: Sequence[dict[str, object]], *, there: str) -> str:
    """Describes the first operator of `pipeline` that differs from `operators`; "" if all are equal.

    Args:
        operators: as returned by `Pipeline.describe`.
        there: what `operators` belong to, in words: "the plan".
    """
    found = json.loads(json.dumps(pipeline.describe()))
    for index in range(max(len(found), len(operators))):
        ours = found[index] if index < len(found) else None
        theirs = operators[index] if index < len(operators) else None
        if ours != theirs:
            location = pipeline.nodes[index].location if index < len(pipeline.nodes) else None
            return _difference(index, ours, theirs, there) + (f" ({location})" if location else "")
    return ""


def _difference(index: int, here: dict[str, object] | None, other: dict[str, object] | None, there: str) -> str:
    if here is None:
        return f"operator {index} of {there}, {_named(other)}, is missing here"
    if other is None:
        return f"operator {index} here, {_named(here)}, is not in {there}"
    if here["op"] != other["op"]:
        return f"operator {index} is {_named(here)} here and {_named(other)} in {there}"
    if here["function"] != other["function"]:
        return f"the function of operator {index}, {_named(here)}, is another one"
    return f"operator {index}, {_named(here)}, has other arguments: {_differing(here, other, there)}"


def _named(operator: dict[str, object] | None) -> str:
    return str(operator["op"]) if operator else "nothing"


def _differing(here: dict[str, object], other: dict[str, object], there: str) -> str:
    ours, theirs = here["arguments"], other["arguments"]
    assert isinstance(ours, dict) and isinstance(theirs, dict)
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not names:
        return "it reads other operators"
    return ", ".join(f"{name}={ours.get(name)!r} here, {theirs.get(name)!r} in {there}" for name in names)
