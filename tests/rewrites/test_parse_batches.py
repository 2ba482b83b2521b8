"""`parse-batches`: where it is proposed and where not."""

from __future__ import annotations

from typing import Any

import pytest

from pipetune.testing.rules import check_no_proposal, check_proposes
from tests.rewrites.outline import outlines

_PARSE = "map rows=exact calls=ParseExampleV2"

SILENT: list[tuple[str, dict[str, Any], str | None]] = [
    ("TFRecordDataset | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE}", {}, None),
    (f"TFRecordDataset | batch 2 | {_PARSE}", {}, None),  # it is there already
    (f"TFRecordDataset | {_PARSE} | padded_batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | batch 1", {}, None),
    ("TFRecordDataset | map rows=exact | batch 2", {}, None),  # left to vectorize-map
    ("TFRecordDataset | map rows=exact calls=Mul+Cast | batch 2", {}, None),
    ("TFRecordDataset | map rows=no | batch 2", {}, None),  # vectorize-map gives the reason
    ("TFRecordDataset | map calls=ParseExampleV2 | batch 2", {}, "unknown how its function behaves"),
    ("TFRecordDataset | map rows=no calls=ParseExampleV2+DecodeJpeg | batch 2", {}, "mixes rows"),
    ("TFRecordDataset | map rows=no calls=ParseSequenceExampleV2 | batch 2", {}, "mixes rows"),
    (f"TFRecordDataset | {_PARSE} random | batch 2", {}, "random"),
    (f"TFRecordDataset | {_PARSE} python | batch 2", {}, "runs Python"),
    (f"TFRecordDataset | {_PARSE} variable=w | batch 2", {}, "reads the variable w"),
    (f"TFRecordDataset | {_PARSE} writes | batch 2", {}, "writes a variable"),
    (f"TFRecordDataset | {_PARSE} table | batch 2", {}, "table"),
    (f"TFRecordDataset | {_PARSE} print | batch 2", {}, "side effect"),
    (f"TFRecordDataset | {_PARSE} raises | batch 2", {}, "validates values"),
    (f"TFRecordDataset | {_PARSE} | batch 2 | ignore_errors", {}, "ignore_errors"),
    (f"TFRecordDataset | {_PARSE} | ignore_errors | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | filter | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | cache | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | unbatch | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | map rows=no | batch 2", {}, None),
    (f"TFRecordDataset | {_PARSE} | map random | batch 2", {}, None),
    (f"a = TFRecordDataset | {_PARSE}; b = a | batch 2; c = a | batch 3; zip b c", {}, None),
]


@pytest.mark.parametrize(("words", "fields", "why"), SILENT)
def test_no_proposal(words: str, fields: dict[str, Any], why: str | None) -> None:
    silences = check_no_proposal("parse-batches", words, **fields)
    assert [why in silence.why for silence in silences if why is not None] == ([True] if why else [])


FIRES: list[tuple[str, list[str]]] = [
    (f"TFRecordDataset | {_PARSE} | batch 2", ["EXACT n1>n2 n1 on batches"]),
    (f"TFRecordDataset | {_PARSE} | shuffle 9 | batch 2", ["EXACT n1>n3 n1 on batches"]),
    ("TextLineDataset | map rows=exact calls=DecodeCSV | batch 2", ["EXACT n1>n2 n1 on batches"]),
    ("FixedLengthRecordDataset | map rows=exact calls=DecodeRaw+Cast | batch 2", ["EXACT n1>n2 n1 on batches"]),
    ("TextLineDataset | map rows=exact calls=StringLower | batch 2", ["EXACT n1>n2 n1 on batches"]),
    ("TextLineDataset | map rows=Log calls=StringToNumber+Log | batch 2", ["APPROXIMATE n1>n2 n1 on batches"]),
    (f"TFRecordDataset | {_PARSE} | map rows=exact | batch 2",
     ["EXACT n2>n3 n2 on batches n1>n3 n1 on batches"]),
    ("FixedLengthRecordDataset | map rows=parts calls=DecodeRaw+SplitV | shuffle 9 | batch 2",
     ["EXACT n1 cut behind what takes its text apart n1>n3 n1 vectorized head@n1>n3 head@n1 on batches"]),
    (f"TFRecordDataset | {_PARSE} 2 deterministic=False | batch 2", ["REORDERS n1>n2 n1 on batches"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), FIRES)
def test_proposed_edits(words: str, expected: list[str]) -> None:
    rewrites = check_proposes("parse-batches", words)
    assert outlines(rewrites) == expected
    assert "parses 2 at a time" in rewrites[0].summary and rewrites[0].group.startswith("batch-first@")


def test_downstream_map_is_vectorized_alone_or_with_the_parser_not_both() -> None:
    words = f"TFRecordDataset | {_PARSE} | map rows=exact | batch 2"
    (together,) = check_proposes("parse-batches", words)
    (alone,) = check_proposes("vectorize-map", words)
    assert together.group == alone.group and alone.node == "n2"
