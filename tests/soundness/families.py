"""The families of cases, by name, with the functions that run a case and reduce its failures."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from tests.soundness import chains, functions, pipelines, programs, scripts
from tests.soundness.cases import Case

FAMILIES = ("function", "pipeline", "script", "hand")
"""Functions, pipelines and scripts composed at random; pipelines written by hand."""

_RUN = {"function": functions.run, "pipeline": pipelines.run, "script": scripts.run, "hand": pipelines.run_by_hand}


def run(family: str, seed: str, index: int, *, folder: str, **given: Any) -> Case:
    """The case of this seed; an error of the suite itself is recorded in it, not raised."""
    try:
        return _RUN[family](seed, index, folder=folder, **given)
    except Exception:
        return Case(family, seed, unbuilt="the suite itself failed: " + traceback.format_exc()[-1500:])


def reduced(case: Mapping[str, Any], rules: Sequence[str], kind: str, *, folder: str) -> dict[str, Any]:
    """The smallest case found in which these rules are accepted and wrong in this way."""
    if case["family"] == "function":
        return functions.reduced(programs.unpacked(case["material"]), rules[0], kind, folder=folder)
    if case["family"] == "script":
        return scripts.reduced(scripts.unpacked(case["material"]), list(rules), kind, folder=folder)
    return pipelines.reduced(chains.unpacked(case["material"]), rules, kind, folder=folder)
