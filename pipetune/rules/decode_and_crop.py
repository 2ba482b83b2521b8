"""`decode-and-crop`: decode only the crop window of a JPEG."""

from __future__ import annotations

from collections.abc import Iterator

from pipetune.core.edits import ReplaceFunction, Rewrite, Safety, Silence
from pipetune.core.functions import FunctionForm
from pipetune.core.pipeline import Node
from pipetune.rules.base import Rule, RuleContext
from pipetune.rules.legality import described, draws, reaches_outside

NAME = "decode-and-crop"

LEAST_SAVED = 0.10
"""Minimum saving, as a share of the function's cost: the rewrite adds some twenty lines to the user's code, and whether
a saving of a few percent is accepted would change from run to run."""

_OTHER_DECODERS = {
    "DecodeImage": "tf.io.decode_image takes any format, and only JPEGs can be decoded in part",
    "DecodePng": "only JPEGs can be decoded in part, and it decodes with decode_png",
}


def propose(context: RuleContext) -> Iterator[Rewrite | Silence]:
    for node in context.pipeline:
        if node.op != "map" or node.function is None:
            continue
        if node.function.cropping is None and not _decodes(node):
            continue
        why = _obstacle(node, context)
        share = _share_left(node, context)
        if why:
            yield Silence(NAME, node.id, f"{described(node)} decodes whole images: {why}.")
        elif share is not None and share > 1 - LEAST_SAVED:
            saved = f"{1 - share:.0%} of what {described(node)} costs" if share < 1 else "nothing"
            yield Silence(NAME, node.id, f"Decoding only what is cropped saves {saved}: too little for new code in it.")
        else:
            yield _rewrite(node)


def _share_left(node: Node, context: RuleContext) -> float | None:
    """Returns the measured share of its cost that the rewritten function keeps; None if not measured."""
    measured = context.profile.operator(node.id) if context.profile is not None else None
    return measured.cropping_share if measured is not None else None


def _decodes(node: Node) -> bool:
    kinds = node.function.operations if node.function is not None else ()
    return "DecodeJpeg" in kinds or any(kind in _OTHER_DECODERS for kind in kinds)


def _obstacle(node: Node, context: RuleContext) -> str:
    """Returns why the function of a map has to decode whole images; "" if it does not."""
    assert node.function is not None
    if node.function.form is not FunctionForm.AS_TRACED:
        return "its function is already called in another form"
    if node.function.cropping is None:
        other = next((why for kind, why in _OTHER_DECODERS.items() if kind in node.function.operations), "")
        return other or "it is not known what it does with them"
    if node.function.cropping.why_not:
        return node.function.cropping.why_not
    outside = reaches_outside(node)
    if outside:
        return f"its function {outside}"
    if any(other.op == "ignore_errors" for other in context.pipeline.downstream(node.id)):
        return "ignore_errors below drops damaged images, and damage outside of the window would not be seen"
    return ""


def _rewrite(node: Node) -> Rewrite:
    assert node.function is not None and node.function.cropping is not None
    answer = node.function.cropping
    notes = [
        f"Every image that was looked at is a JPEG ({answer.seen}). decode_jpeg reads other formats as well: such an "
        "image is decoded whole, as before.",
        "Damage to an image outside of the window is not noticed any more.",
    ]
    if draws(node):
        notes.append("It draws the same numbers in the same order as before.")
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.STATISTICAL,
        edits=(ReplaceFunction(node.id, FunctionForm.DECODE_AND_CROP, answer.digest),),
        summary=f"Decode only the window that {described(node)} crops out of each JPEG.",
        group=f"{NAME}@{node.id}",
        notes=tuple(notes),
    )


RULE = Rule(
    name=NAME,
    summary="Decodes only the window that is cropped out of a JPEG, not the whole image.",
    legality=(
        "The function decodes one image by decode_jpeg, at full scale, and nothing uses it "
        "but one crop (random_crop, crop_to_bounding_box, central_crop, tf.slice, image[a:b, c:d]) and ops that ask "
        "for its shape; in between only what treats all pixels alike (cast, convert_image_dtype). It is decoded two "
        "pixels wider on each side, as far as the image reaches, and sliced: without that colours at the edge differ. "
        "Elements from the start, the middle and the end of the data, as far as it can be reached, must be JPEGs. "
        "Never above ignore_errors, with state or with Python; never for decode_image or decode_png. Values are "
        "compared bit by bit on real elements before a plan holds it. Nothing is proposed where it is measured to save "
        "less than a tenth of what the function costs: the window is then most of the image."
    ),
    safety=(
        "STATISTICAL, though every pixel and every draw stays the same: an image that is damaged outside of the window "
        "is refused today and would not be, and what changes which elements are refused is never called exact."
    ),
    propose=propose,
)
