"""plan.json: the edits, and the pipeline they were made for, to be applied without the source."""

from __future__ import annotations

import json
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
    """What plan.json says of one dataset; no edits: leave the pipeline as it is."""

    fingerprint: str  # `Pipeline.fingerprint`
    operators: tuple[dict[str, object], ...]  # `Pipeline.describe()`
    edits: tuple[Edit, ...] = ()
    rewrites: tuple[Rewrite, ...] = ()  # the same edits with their rules, for the report
    machine: Machine | None = None
    pipetune: str = VERSION
    name: str = "dataset"
    more: tuple[PlanFile, ...] = ()  # further datasets of the script

    @property
    def plan(self) -> Plan:
        return Plan(self.name, self.rewrites)

    def check(self, pipeline: Pipeline) -> None:
        """Make sure that `pipeline` is the one the plan was made for.

        Raises:
            PlanMismatch: it is not; the message names the first operator that differs.
        """
        if pipeline.fingerprint == self.fingerprint:
            return
        found = json.loads(json.dumps(pipeline.describe()))
        for index in range(max(len(found), len(self.operators))):
            here = found[index] if index < len(found) else None
            there = self.operators[index] if index < len(self.operators) else None
            if here != there:
                raise _mismatch(index, here, there, pipeline)
        raise PlanMismatch("The plan was made for another pipeline.", hint="Run `pipetune analyze` again.")


def plan_file(session: Session) -> PlanFile | None:
    """What plan.json says for `session`; None where no pipeline was profiled."""
    plans = tuple(_of_dataset(dataset, session) for dataset in session.studied)
    return replace(plans[0], more=plans[1:]) if plans else None


def save_plan(plan: PlanFile, path: Path | str) -> None:
    """Write plan.json in one step."""
    fields = encode(plan)
    assert isinstance(fields, dict)
    head: dict[str, Json] = {"schema": SCHEMA, "pipetune": fields.pop("pipetune")}
    write_json(Path(path), head | {name: fields.pop(name) for name in ("machine", "fingerprint")} | fields)


def load_plan(path: Path | str) -> PlanFile:
    """The plan in `path`, a plan.json or the folder that holds one.

    Raises:
        PipetuneError: there is none, it is damaged, or another release wrote it.
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


def _mismatch(
    index: int, here: dict[str, object] | None, there: dict[str, object] | None, pipeline: Pipeline
) -> PlanMismatch:
    if here is None:
        problem = f"operator {index} of the plan, {_named(there)}, is missing here"
    elif there is None:
        problem = f"operator {index} here, {_named(here)}, is not in the plan"
    elif here["op"] != there["op"]:
        problem = f"operator {index} is {_named(here)} here and {_named(there)} in the plan"
    elif here["function"] != there["function"]:
        problem = f"the function of operator {index}, {_named(here)}, is another one"
    else:
        problem = f"operator {index}, {_named(here)}, has other arguments: {_differing(here, there)}"
    location = pipeline.nodes[index].location if index < len(pipeline.nodes) else None
    where = f" ({location})" if location else ""
    return PlanMismatch(
        f"The plan was made for another pipeline: {problem}{where}.",
        hint="Run `pipetune analyze` again on the script as it is now.",
    )


def _named(operator: dict[str, object] | None) -> str:
    return str(operator["op"]) if operator else "nothing"


def _differing(here: dict[str, object], there: dict[str, object]) -> str:
    ours, theirs = here["arguments"], there["arguments"]
    assert isinstance(ours, dict) and isinstance(theirs, dict)
    names = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
    if not names:
        return "it reads other operators"
    return ", ".join(f"{name}={ours.get(name)!r} here, {theirs.get(name)!r} in the plan" for name in names)
