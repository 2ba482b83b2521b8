"""plan.json: edits and the pipeline they were created for, so that they can be applied without the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from pipetune.core.codec import Json, decode, encode
from pipetune.core.edits import Edit, Plan, Rewrite
from pipetune.core.errors import PlanMismatch
from pipetune.core.files import read_value, write_json
from pipetune.core.machine import Machine
from pipetune.core.pipeline import OperatorIdentity, Pipeline
from pipetune.core.session import SCHEMA, DatasetResult, Session
from pipetune.core.version import VERSION

PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class PlanFile:
    """Contents of plan.json for one dataset; without edits the pipeline stays unchanged."""

    fingerprint: str  # `Pipeline.fingerprint`
    operators: tuple[OperatorIdentity, ...]  # `Pipeline.identities()`
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
            f"The plan was created for a different pipeline{f': {found}' if found else ''}.",
            hint="Run `pipetune analyze` again on the script as it is now.",
        )


def plan_file(session: Session) -> PlanFile | None:
    """Returns the contents of plan.json for `session`; None if no pipeline was profiled."""
    plans = tuple(_of_dataset(dataset, session) for dataset in session.profiled_datasets)
    return replace(plans[0], more=plans[1:]) if plans else None


def save_plan(plan: PlanFile, path: Path | str) -> None:
    """Writes plan.json atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    fields = encode(plan)
    assert isinstance(fields, dict)
    head: dict[str, Json] = {"schema": SCHEMA, "pipetune": fields.pop("pipetune")}
    write_json(Path(path), head | {name: fields.pop(name) for name in ("machine", "fingerprint")} | fields)


def load_plan(path: Path | str) -> PlanFile:
    """Returns the plan in `path`, a plan.json or the folder that contains one.

    Raises:
        PipetuneError: the file does not exist, is damaged, or was written by another release.
    """
    return read_value(path, lambda data: decode(PlanFile, data), name=PLAN_FILE, kind="plan", schema=SCHEMA)


def _of_dataset(dataset: DatasetResult, session: Session) -> PlanFile:
    plan = dataset.plan or Plan("")
    return PlanFile(
        fingerprint=dataset.pipeline.fingerprint,
        operators=dataset.pipeline.identities(),
        edits=plan.edits,
        rewrites=plan.rewrites,
        machine=session.machine,
        pipetune=session.version,
        name=dataset.pipeline.name,
    )


def first_difference(pipeline: Pipeline, operators: Sequence[OperatorIdentity], *, there: str) -> str:
    """Returns a description of the first operator of `pipeline` that differs from `operators`; "" if all are equal.

    `there` says what these operators belong to: "the plan".
    """
    for index, (here, other) in enumerate(zip_longest(pipeline.identities(), operators)):
        if here != other:
            location = pipeline.nodes[index].location if here is not None else None
            return _difference(index, here, other, there) + (f" ({location})" if location else "")
    return ""


def _difference(index: int, here: OperatorIdentity | None, other: OperatorIdentity | None, there: str) -> str:
    if here is None:
        return f"operator {index} of {there}, {other.op if other else 'nothing'}, is missing here"
    if other is None:
        return f"operator {index} here, {here.op}, is not in {there}"
    if here.op != other.op:
        return f"operator {index} is {here.op} here and {other.op} in {there}"
    if here.function != other.function:
        return f"the function of operator {index}, {here.op}, is different"
    ours, theirs = here.arguments, other.arguments
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    differing = ", ".join(f"{name}={ours.get(name)!r} here, {theirs.get(name)!r} in {there}" for name in names)
    differing = differing or "its inputs are different operators"
    return f"operator {index}, {here.op}, has different arguments: {differing}"
