"""Removes the user's private data from a session: source text, paths, arguments.

What remains is what is needed to understand a measurement: operators and their numeric arguments, line numbers,
costs, verdicts. Free text (reasons, notes, warnings) may quote a path or an argument anywhere, so every text in the
session is searched for each of them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pipetune.core.codec import Json, decode, encode
from pipetune.core.session import PatchResult, Session
from pipetune.core.settings import Command

WITHHELD = "withheld"
_PATH_KEYS = frozenset({"file", "files", "directory", "out"})
_PUBLIC_KEYS = frozenset(  # keys whose values come from pipetune or TensorFlow, never from the user
    {"op", "id", "node", "rule", "inputs", "after", "outcome", "kind", "unit", "role", "verdict", "stage"}
    | {"safety", "needs", "consent", "method", "type", "digest", "operations", "inner", "status", "code"}
    | {"devices", "device", "processor", "system", "bottleneck", "sequential_segments", "version"}
    | {"cause", "cause_node", "allow", "without"}
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
