"""`decode-and-crop`, and advice to decode JPEGs at a smaller scale."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pipetune.core.edits import NoProposal, ReplaceFunction, Rewrite, Safety
from pipetune.core.functions import CropDecoding, FunctionVariant
from pipetune.core.measurement import percent
from pipetune.core.pipeline import Node
from pipetune.core.profile import Finding, finding_at
from pipetune.rewrites.pricing import small_saving
from pipetune.rewrites.rule import (
    Rule,
    RuleContext,
    at_each,
    describe_external_dependency,
    describe_operator,
    draws_random_numbers,
    errors_are_ignored,
)

NAME = "decode-and-crop"

MIN_SAVED_SHARE = 0.10
"""Minimum saving, as a share of the function's cost: the rewrite adds some twenty lines to the user's code, and whether
a saving of a few percent is accepted would change from run to run."""

_DECODERS = {
    "DecodeImage": "tf.io.decode_image accepts any format, and only JPEGs can be decoded partially",
    "DecodePng": "only JPEGs can be decoded partially, and it uses decode_png",
    "DecodeJpeg": "it is unknown what its function does with the images",
}
"""Why a function that was not probed decodes whole images, by an op in it; the first one tells."""


@at_each("map")
def propose(node: Node, context: RuleContext) -> Iterator[Rewrite | NoProposal]:
    """Yields the rewrite that decodes only the crop window of JPEGs that a map decodes, or why there is none."""
    if node.function is None:
        return
    unprobed = (CropDecoding(why) for kind, why in _DECODERS.items() if kind in node.function.operations)
    answer = node.function.cropping or next(unprobed, None)
    if answer is None:
        return
    if why := answer.why_not or _obstacle(node, context):
        yield NoProposal(NAME, node.id, f"{describe_operator(node)} decodes whole images: {why}.")
    elif saved := small_saving(context, node, FunctionVariant.DECODE_AND_CROP, least=MIN_SAVED_SHARE):
        little = "too little to justify the additional code"
        yield NoProposal(NAME, node.id, f"Decoding only the crop window saves {saved}: {little}.")
    else:
        yield _rewrite(node, answer)


def _obstacle(node: Node, context: RuleContext) -> str:
    """Returns why a map has to decode whole images though its function does not need them; "" if it has not."""
    if outside := describe_external_dependency(node):
        return f"its function {outside}"
    if errors_are_ignored(node, context):
        return (
            "ignore_errors downstream drops damaged images, and damage outside of the crop window would not be detected"
        )
    return ""


def _rewrite(node: Node, answer: CropDecoding) -> Rewrite:
    notes = [
        f"Every inspected image is a JPEG ({answer.seen}). decode_jpeg also reads other formats: such images "
        "are still decoded whole.",
        "Damage to an image outside of the crop window is no longer detected.",
    ]
    if draws_random_numbers(node):
        notes.append("The function draws the same random numbers in the same order as before.")
    return Rewrite(
        rule=NAME,
        node=node.id,
        safety=Safety.STATISTICAL,
        edits=(ReplaceFunction(node.id, FunctionVariant.DECODE_AND_CROP, answer.digest),),
        summary=f"Decode only the part of each JPEG that {describe_operator(node)} keeps after cropping.",
        group=f"{NAME}@{node.id}",
        notes=tuple(notes),
    )


RULE = Rule(
    name=NAME,
    summary="Decodes only the crop window of a JPEG instead of the whole image.",
    legality=(
        "The function decodes one image with decode_jpeg at full scale, and the image is used only by one crop "
        "(random_crop, crop_to_bounding_box, central_crop, tf.slice, image[a:b, c:d]) and by ops that read its "
        "shape; in between, only ops that treat all pixels alike (cast, convert_image_dtype) are allowed. The "
        "decoded window is two pixels wider on each side, within the image, and then sliced: otherwise colors "
        "at the edge would differ. Elements from the start, the middle and the end of the data, as far as they "
        "can be reached, must be JPEGs. Never upstream of ignore_errors, and never for functions with state or "
        "Python, decode_image or decode_png. Values are compared bit by bit on real elements before the "
        "rewrite enters a plan. Nothing is proposed if the measured saving is less than a tenth of the "
        "function's cost: the window then covers most of the image."
    ),
    safety=(
        "STATISTICAL, although every pixel and every random draw stays the same: an image that is damaged "
        "outside of the window is rejected today and would be accepted, and a rewrite that changes which "
        "elements are rejected is never EXACT."
    ),
    propose=propose,
    order=0,  # map-fusion then calls the function that decodes less
)


def suggest_smaller_decoding(context: RuleContext, *, cached: Collection[str] = ()) -> Iterator[Finding]:
    """Yields the measured saving of decoding at a smaller scale, with the call to write and the error of the images.

    Yields nothing if it was not measured, or saves less than a tenth of the function's cost, nor for what does not run:
    a cache of the script, or of the plan for the operators `cached`, has its results in all epochs but the first.
    """
    for node in context.pipeline:
        measured, found = context.measured(node.id), node.function.shrinking if node.function is not None else None
        share = measured.shrinking_share if measured is not None and measured.visits != 0 else None
        if share is None or share > 1 - MIN_SAVED_SHARE or node.op != "map" or found is None or found.why_not:
            continue
        if node.id in cached:
            continue
        # ignore_errors drops damaged images, and decoding at another scale may not detect the damage.
        if describe_external_dependency(node) or errors_are_ignored(node, context):
            continue
        yield finding_at(
            "decode-smaller",
            node,
            f"{describe_operator(node)} decodes JPEGs at full scale and only resizes them. At 1/{found.ratio} of "
            f"their rows and columns it costs {percent(1 - share)} less.",
            hint=(
                f"Use tf.io.decode_jpeg(contents, ratio={found.ratio}). This changes the image: pixels after resizing "
                f"differed by {percent(found.mean_apart, digits=1)} of the maximum value on average and by "
                f"{percent(found.most_apart, digits=1)} at most ({found.seen}), so pipetune does not make this change. "
                f"Every inspected image is at least {found.ratio} times as large as the size it is resized to; a "
                "smaller one would lose more detail."
            ),
        )
