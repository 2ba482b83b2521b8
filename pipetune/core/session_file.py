"""session.json, the only file passed from measuring to reporting: repeated values are stored once, and the user's
private data (source text, paths, arguments) is removed from a confidential session.

What remains is what is needed to understand a measurement: operators and their numeric arguments, line numbers,
costs, verdicts. Free text (reasons, notes, warnings) may quote a path or an argument anywhere, so every text in the
session is searched for each of them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipetune.core.codec import Json, decode, encode
from pipetune.core.files import read_value, write_text
from pipetune.core.session import SCHEMA, PatchResult, Session
from pipetune.core.settings import Command
from pipetune.core.summary import summary


def deduplicate(data: dict[str, Json]) -> None:
    """Replaces repeated values in the JSON data of a session by references, in place."""
    named: dict[str, Json] = {}  # contents of "rewrites", by name
    names: dict[str, str] = {}  # serialized rewrite -> name
    for holder in (*_objects(data.get("trials")), *_objects(data.get("datasets"))):
        plan = holder.get("plan")
        if plan is not None and "rewrites" in plan:
            plan["rewrites"] = [_reference(rewrite, named, names) for rewrite in plan["rewrites"]]
    data["rewrites"] = named
    for dataset in _objects(data.get("datasets")):
        tuned = dataset.get("tuned")
        if tuned is not None:
            written = {node["id"]: node for node in dataset["pipeline"].get("nodes", ())}
            tuned["nodes"] = [_difference(node, written) for node in tuned.get("nodes", ())]


def _difference(node: dict[str, Any], written: dict[str, dict[str, Any]]) -> Json:
    """Returns an unchanged node as its id, a changed one as its differences, a new or reduced one in full."""
    before = written.get(node["id"])
    if before == node:
        return str(node["id"])
    if before is None or not before.keys() <= node.keys():
        return node
    differing = {key: value for key, value in node.items() if key not in before or before[key] != value}
    return {"like": node["id"], **differing}


def _reference(rewrite: dict[str, Any], named: dict[str, Json], names: dict[str, str]) -> str:
    """Returns the name of a rewrite; different rewrites of one rule at one operator get a number."""
    content = json.dumps(rewrite, sort_keys=True)
    if content not in names:
        stem = name = f"{rewrite['rule']}@{rewrite['node']}"
        count = 1
        while name in named:
            count += 1
            name = f"{stem}#{count}"
        names[content] = name
        named[name] = rewrite
    return names[content]


def restore_duplicates(data: dict[str, Any]) -> None:
    """Resolves the references of `deduplicate` in the JSON data of a session, in place.

    Data without references is kept, and damaged data is left for the decoder to report.
    """
    named = data.get("rewrites")
    for holder in (*_objects(data.get("trials")), *_objects(data.get("datasets"))):
        plan = holder.get("plan")
        if isinstance(named, dict) and isinstance(plan, dict) and isinstance(plan.get("rewrites"), list):
            plan["rewrites"] = [named.get(one, one) if isinstance(one, str) else one for one in plan["rewrites"]]
    for dataset in _objects(data.get("datasets")):
        pipeline, tuned = dataset.get("pipeline"), dataset.get("tuned")
        if isinstance(pipeline, dict) and isinstance(tuned, dict) and isinstance(tuned.get("nodes"), list):
            written = {node["id"]: node for node in _objects(pipeline.get("nodes")) if "id" in node}
            tuned["nodes"] = [_restored_node(node, written) for node in tuned["nodes"]]


def _restored_node(node: Any, written: dict[str, Any]) -> Any:
    if isinstance(node, str):
        return written.get(node, node)
    if not isinstance(node, dict) or "like" not in node:
        return node
    differing = {key: value for key, value in node.items() if key != "like"}
    return {**written.get(str(node["like"]), {}), **differing}


def _objects(data: object) -> list[dict[str, Any]]:
    return [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []


SESSION_FILE = "session.json"

MAX_READABLE_BYTES = 1_000_000
"""Maximum size of a readable file; a larger one has no line breaks, and no fields with default values."""

_LEADING_KEYS = ("machine", "command", "datasets", "trials")


def session_data(session: Session, *, sparse: bool = False) -> dict[str, Json]:
    """Returns the contents of session.json: the documented keys, then the rest that is needed to restore the session.

    With `sparse`, fields of datasets that have their default value are omitted.
    """
    fields = encode(session)
    assert isinstance(fields, dict)
    del fields["version"]
    if sparse:
        fields["datasets"] = encode(session.datasets, sparse=True)
    deduplicate(fields)
    return {
        "schema": SCHEMA,
        "pipetune": session.version,
        **{name: fields.pop(name) for name in _LEADING_KEYS},
        "summary": summary(session),
        **fields,
    }


def save(session: Session, path: Path | str) -> None:
    """Writes `session` to `path` atomically.

    Raises:
        PipetuneError: the folder cannot be written to.
    """
    text = json.dumps(session_data(session), indent=1, allow_nan=False)
    if len(text) > MAX_READABLE_BYTES:
        text = json.dumps(session_data(session, sparse=True), separators=(",", ":"), allow_nan=False)
    write_text(Path(path), text + "\n")


def load(path: Path | str) -> Session:
    """Returns the session in `path`, a session.json or the folder that contains one.

    Raises:
        PipetuneError: the file does not exist, is damaged, or was written by another release.
    """

    def make(data: dict[str, object]) -> Session:
        restore_duplicates(data)
        return decode(Session, {**data, "version": data.get("pipetune")})

    return read_value(path, make, name=SESSION_FILE, kind="session", schema=SCHEMA)


WITHHELD = "withheld"
_PATH_KEYS = frozenset({"file", "files", "directory", "out"})
_PUBLIC_KEYS = frozenset(  # keys whose values come from pipetune or TensorFlow, never from the user
    {"op", "id", "node", "rule", "inputs", "after", "outcome", "kind", "unit", "role", "verdict", "stage"}
    | {"safety", "needs", "consent", "method", "type", "digest", "operations", "inner", "status", "code"}
    | {"devices", "device", "processor", "system", "bottleneck", "sequential_segments", "version"}
    | {"cause", "cause_node", "allow", "without", "form", "called_forms", "cost_source", "told_by", "way", "reason"}
    | {"reader", "basis", "limit", "held_by", "host_limit"}
)
_PATH_IN_TEXT = re.compile(
    r"(?!https?:)\b[a-z]\w+://[^\s'\",;()<>]+"  # of a bucket: only pages of the web are public
    r"|(?<![\w/.])(?:~|\.{1,2})?(?:/[^\s/'\",;:()<>]+){2,}/?"
)
_BELOW = r"(?:(?<=/)|/)[^\s'\",;:()<>]+"  # the rest of a path that begins with a secret
_MIN_SECRET_LENGTH = 3  # hiding a shorter argument ("3") would remove digits from figures


def redact(session: Session) -> Session:
    """Returns `session` without source text, paths and arguments; it can still be shown, compared and checked."""
    secrets = sorted(set(_secrets(session)), key=len, reverse=True)
    texts = "|".join(re.escape(secret) + ("" if secret.endswith("/") else r"(?!\w)") for secret in secrets)
    hidden = re.compile(rf"(?<!\w)(?:{texts})(?:{_BELOW})?") if secrets else None
    return decode(Session, _clean(encode(_without_source(session)), hidden))


def _without_source(session: Session) -> Session:
    command = session.command
    return replace(
        session,
        command=Command(options=command.options, date=command.date, confidential=True),
        datasets=tuple(
            replace(
                one,
                candidate=replace(one.candidate, patch=_without_text(one.candidate.patch)) if one.candidate else None,
                patch=_without_text(one.patch),
                calls={},
            )
            for one in session.datasets
        ),
        patch=_without_text(session.patch),
        distributed=replace(session.distributed, module="") if session.distributed else None,
    )


def _without_text(patch: PatchResult | None) -> PatchResult | None:
    return replace(patch, diff="", digests={}, texts={}) if patch else None


def _secrets(session: Session) -> Iterator[str]:
    """Yields every path, script argument and text argument of an operator in the session."""
    command = session.command
    words = [part for word in command.arguments for part in (word, word.partition("=")[2])]  # --project=NAME
    paths = [command.script, command.module, command.directory, command.out]
    paths += [finding.file or "" for finding in (*session.findings, *session.advice)]
    candidate = session.candidate
    for patch in (session.patch, session.patch_to_verify, candidate.patch if candidate else None):
        paths += patch.files if patch else ()
    for dataset in session.datasets:
        for node in (*dataset.pipeline.nodes, *(dataset.tuned.nodes if dataset.tuned else ())):
            paths.append(node.location.file if node.location else "")
            words += _texts(node.arguments.values())
    yield from (word for word in words if len(word) >= _MIN_SECRET_LENGTH)
    for path in paths:
        yield from (part for part in (path, os.path.basename(path)) if len(part) >= _MIN_SECRET_LENGTH)


def _texts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts(value)


def _clean(value: Json, hidden: re.Pattern[str] | None, key: str = "") -> Json:
    if isinstance(value, dict):
        if key == "arguments":  # of an operator: numbers are kept, because they are what was tuned
            return {name: _without_texts(item) for name, item in value.items()}
        if key == "bases":  # by field of a job: where its value is from
            return value
        quotes = key == "gains"  # its keys are rewrite keys, which quote argument values
        return {_hide(name, hidden) if quotes else name: _clean(item, hidden, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, hidden, key) for item in value]
    if not isinstance(value, str) or not value or key in _PUBLIC_KEYS:
        return value
    return WITHHELD if key in _PATH_KEYS else _hide(value, hidden)


def _hide(text: str, hidden: re.Pattern[str] | None) -> str:
    return _PATH_IN_TEXT.sub(WITHHELD, hidden.sub(WITHHELD, text) if hidden else text)


def _without_texts(value: Json) -> Json:
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return WITHHELD if isinstance(value, str) else value
