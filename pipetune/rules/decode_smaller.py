"""`decode-smaller`: decode JPEGs that are only resized at half, a quarter or an eighth of their scale."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import ReplaceFunction, Rewrite, Safety, Silence
from pipetune.core.functions import SCALES, FunctionForm
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.decode_and_crop import LEAST_SAVED
from pipetune.rules.legality import described, draws, reaches_outside

NAME = "decode-smaller"

_ROOM = 1.5
"""Images that nobody looked at may be further apart than those seen: by so much the bound is above what was seen."""


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op != "map" or node.function is None or node.function.shrinking is None:
            continue
        why = _obstacle(node, context)
        measured = context.profile.operator(node.id) if context.profile is not None else None
        share = measured.shrinking_share if measured is not None else None
        if why:
            yield Silence(NAME, node.id, f"{described(node)} decodes images at full scale: {why}.")
        elif share is not None and share > 1 - LEAST_SAVED:
            saved = f"{1 - share:.0%} of what {described(node)} costs" if share < 1 else "nothing"
            yield Silence(NAME, node.id, f"Decoding at a smaller scale saves {saved}: too little for other images.")
        else:
            yield _rewrite(node, share)


def _obstacle(node: Node, context: RuleContext) -> str:
    """Why the function of a map has to decode at full scale; empty where nothing says so."""
    assert node.function is not None and node.function.shrinking is not None
    if node.function.form is not FunctionForm.AS_TRACED:
        return "its function is already called in another form"
    if node.function.shrinking.why_not:
        return node.function.shrinking.why_not
    outside = reaches_outside(node)
    if outside:
        return f"its function {outside}"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops damaged images, and another scale may not show the damage"
    return ""


def _rewrite(node: Node, share: float | None) -> Rewrite:
    assert node.function is not None and node.function.shrinking is not None
    answer = node.function.shrinking
    ratio = SCALES[answer.form]
    notes = [
        f"Pixels of the resized images were {answer.mean_apart:.1%} of the greatest value apart on average "
        f"({answer.seen}).",
        f"Every image that was looked at is at least {ratio} times as large as what it is resized to. A smaller one "
        "would lose more.",
    ]
    if draws(node):
        notes.append("It draws the same numbers in the same order as before.")
    saved = f"it costs {1 - share:.0%} less, and " if share is not None else ""
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.APPROXIMATE,
        edits=(ReplaceFunction(node.id, answer.form, answer.digest, apart=min(1.0, _ROOM * answer.most_apart)),),
        summary=f"Decode the JPEGs that {described(node)} resizes with 1/{ratio} of their rows and columns: {saved}"
        f"pixels are up to {answer.most_apart:.1%} of the greatest value apart.",
        group=f"{NAME}@{node.id}",
        notes=tuple(notes),
    )


RULE = Rule(
    name=NAME,
    summary="Decodes JPEGs that are only resized at half, a quarter or an eighth of their scale.",
    legality=(
        "The function decodes one image by decode_jpeg, at full scale, and nothing uses it but one resize to a fixed "
        "size; in between only what treats all pixels alike. Elements from the start, the middle and the end of the "
        "data must be JPEGs at least 2, 4 or 8 times as large as that size on each side: the decoder then gives 1/2, "
        "1/4 or 1/8 of the rows and columns (ratio). Never above ignore_errors, with state or with Python. Nothing is "
        "proposed where the resized images are a tenth of the greatest value apart on average, or where less than a "
        "tenth of what the function costs is saved. The other setting that makes decoding cheaper, "
        "dct_method='INTEGER_FAST', is what TensorFlow takes where none is given."
    ),
    safety=(
        "APPROXIMATE, always: the decoder averages pixels before the resize picks some of them. How far the resized "
        "images are apart is measured and said; a plan in which they are further apart is refused, and everything "
        "else in a plan is compared as if the script had been written with that scale."
    ),
    propose=propose,
)
