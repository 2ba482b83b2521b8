"""Describes the checks of a distributed module: for its header, its notes, and why it was not written."""

from __future__ import annotations

from pipetune.core.errors import CannotExpress
from pipetune.core.standalone import Delivery
from pipetune.source.standalone_kind import Kind

Checks = tuple[dict[str, object], ...]


def wrong_in_one(checks: Checks) -> str:
    """Why nothing is written after the module was run in one process; empty if each element was delivered once."""
    wrong = [check for check in checks if check["missing"] or check["duplicated"]]
    if not wrong:
        return ""
    return (
        f"Not written: with {wrong[0]['workers']} workers {wrong[0]['missing']} elements were missing "
        f"and {wrong[0]['duplicated']} came twice."
    )


def checked(kind: Kind, checks: Checks) -> str:
    """Describes what was checked, for the header."""
    return f"{_counting(kind, checks)} Its functions and its element_spec are those of the tuned pipeline."


def _counting(kind: Kind, checks: Checks) -> str:
    workers = ", ".join(str(check["workers"]) for check in checks)
    first = checks[0]
    how = f"by running it in one process as {workers} {'ranks' if kind.delivery is Delivery.RANKS else 'workers'}"
    if kind.delivery is Delivery.SERVICE:
        how = f"by running a service with {workers} workers on one machine"
    if first["missing"] is None:
        return f"Checked {how}; which elements come was not counted. {first['why']}"
    if first["each"] == "everything":
        return f"Checked {how}: each gave {_counted(first)}, every one once per epoch."
    counted = {
        "elements": f"all {first['elements']} elements came, each once per epoch",
        "files": f"each of the {first['elements']} files was read by one worker",
    }.get(str(first["counted"]), f"the first {first['elements']} elements came, each once")
    return f"Checked {how}: {counted}."


def _counted(check: dict[str, object]) -> str:
    return f"all {check['elements']} {'files' if check['counted'] == 'files' else 'elements'}"


def _remainders(kind: Kind, checks: Checks) -> list[str]:
    """The cost of an incomplete last batch, for every number of workers for which it was counted."""
    known = [check for check in checks if check.get("filled") is not None]
    if not known:
        return []
    who = "replicas" if kind.one_process else "workers"
    numbers, dropped, filled = (
        _joined([f"{check[key]:,}" for check in known]) for key in ("workers", "dropped", "filled")
    )
    return [
        f"of {known[0]['elements']:,} samples in an epoch drop_remainder leaves out {dropped} with {numbers} {who}; "
        f"with fill=True none is left out and {filled} rows only fill"
    ]


def _joined(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def spec(checks: Checks) -> list[str]:
    """How the element_spec of the module differs from that of the script, for the fewest workers that were run."""
    told = checks[0].get("spec")
    return [str(line) for line in told] if isinstance(told, list) else []


def notes(kind: Kind, checks: Checks) -> list[str]:
    uneven = [str(check["workers"]) for check in checks if check["equal_batches"] is False]
    found = _remainders(kind, checks)
    if uneven and kind.delivery is Delivery.PARTS:
        found.append(
            f"with {' or '.join(uneven)} workers the batches of an epoch are not equal: repeat and fix the "
            "steps per epoch, or drop the remainder"
        )
    if any(check.get("why") for check in checks):
        found += [f"{check['workers']} workers: {check['why']}" for check in checks if check.get("why")]
    return found


def clause(error: CannotExpress) -> str:
    """The message of an error as part of a sentence."""
    return error.message[0].lower() + error.message[1:].rstrip(".")
