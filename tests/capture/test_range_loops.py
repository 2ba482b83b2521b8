"""Which loops of the script are restarted during measurements, and what stays unchanged."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pipetune.capture import loops

NAMES = ("__pipetune_lasting__", "__pipetune_leaves__")


class Steps:
    """A training of which so many steps are measured; then its iterator ends the script."""

    def __init__(self, measured: int) -> None:
        self.measured, self.taken = measured, 0

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> int:
        if self.taken == self.measured:
            raise StopAsyncIteration  # the script is stopped
        self.taken += 1
        return self.taken


def run(source: str, measured: int = 1_000, **names: Any) -> dict[str, Any]:
    """Runs the script and returns its globals."""
    steps = Steps(measured)
    found = {"steps": steps, "done": [], **names}
    thread = threading.get_ident()
    kept = loops.LoopExtender(lambda: steps.taken if threading.get_ident() == thread else 0)
    kept.install()
    try:
        exec(loops.compile_with_extended_loops(source, "train.py"), found)
    except StopAsyncIteration:
        found["stopped"] = True
    finally:
        kept.uninstall()
    found["kept"] = kept
    return found


LASTS = {
    "next": "for _ in range(3):\n    done.append(next(steps))",
    "two functions down": "def one(): next(steps)\ndef two(): one()\nfor _ in range(3):\n    two()",
    "a method": "class T:\n    def go(self): next(steps)\nfor _ in range(3):\n    T().go()",
    "left early": "for epoch in range(2):\n    for step in steps:\n        if step % 3 == 0:\n            break",
    "a condition": "turn = 0\nwhile turn < 3:\n    turn += next(steps)",
    "a range that is shown": "class tqdm:\n    def __init__(self, iterable):\n        self.iterable = iterable\n"
    "    def __iter__(self):\n        yield from self.iterable\nfor _ in tqdm(range(3)):\n    next(steps)",
    "break": "for turn, step in enumerate(steps):\n    if turn >= 2:\n        break",
    "break in a range": "for turn in range(9):\n    next(steps)\n    if turn == 2:\n        break",
    "two conditions": "step = 0\nwhile step < 9:\n    step = next(steps)\n    if step == 9:\n        break",
    "what comes before break": "for step in steps:\n    if step >= 3:\n"
    "        done.append('evaluated')\n        break\n"
    "    elif step > 30:\n        done.append(step)\n        break",
    "break of an endless loop": "it = iter(steps)\nwhile True:\n    if next(it) > 5:\n        break",
    "return": "def run():\n    for turn, step in enumerate(steps):\n        for _ in [1]:\n            if turn >= 2:\n"
    "                return step\nrun()",
    "return of a generator": "def some():\n    for turn, step in enumerate(steps):\n        if turn == 2:\n"
    "            return\n        yield step\nfor step in some():\n    done.append(step)",
    "in a function that runs": "def main():\n    for epoch in range(2):\n        for _ in range(3):\n"
    "            next(steps)\nmain()",
}


@pytest.mark.parametrize("source", LASTS.values(), ids=LASTS)
def test_training_loop_restarts_until_measurement_ends(source: str) -> None:
    found = run(source, measured=50)
    assert found["steps"].taken == 50 and found["stopped"] and "evaluated" not in found["done"]
    assert found["kept"].restarted


ENDS = {
    "other things": "for turn in range(3):\n    done.append(turn)",
    "nothing measured in it": "it = iter(range(9))\nfor _ in range(3):\n    done.append(next(it))",
    "no turn": "for _ in range(0):\n    next(steps)\ndone.extend([0, 1, 2])",
    "else": "for step in steps:\n    if step <= 3:\n        done.append(step)\n    else:\n        break",
    "at its end": "for step in steps:\n    try:\n        if step == 3:\n            raise StopIteration\n"
    "    except StopIteration:\n        done.extend([0, 1, 2])\n        break",
    "a condition of nothing": "while len(done) < 3:\n    done.append(len(done))",
    "a list": "for turn in [0, 1, 2]:\n    next(steps)\n    done.append(turn)",
    "a name of its own": "range = list\nfor turn in range('abc'):\n    next(steps)\n    done.append(turn)",
}


@pytest.mark.parametrize("source", ENDS.values(), ids=ENDS)
def test_other_loops_end_as_in_the_script(source: str) -> None:
    found = run(source)
    assert "stopped" not in found and len(found["done"]) == 3 and not found["kept"].restarted


def test_inner_loop_keeps_its_number_of_steps() -> None:
    text = "for _ in range(5):\n    for part in range(4):\n        next(steps)\n    done.append(part)"
    found = run(text, measured=100)
    assert found["done"] == [3] * 25 and found["kept"].restarted


def test_loop_after_exited_loop_is_extended() -> None:
    left = "try:\n    for _ in range(9):\n        next(steps)\n        raise ValueError\nexcept ValueError:\n    pass\n"
    assert run(f"{left}for _ in range(3):\n    next(steps)", measured=20)["steps"].taken == 20


def test_loop_of_other_thread_is_not_extended() -> None:
    source = (
        "import threading\nit = iter(range(99))\ndef beside():\n    for _ in range(3):\n        done.append(next(it))\n"
        "for _ in range(3):\n    next(steps)\n    other = threading.Thread(target=beside)\n    other.start()\n"
        "    other.join()\n    if steps.taken > 5: raise StopAsyncIteration"
    )
    assert len(run(source)["done"]) == 18


def test_script_without_training_loop_is_compiled_unchanged() -> None:
    source = "total = 0\nfor turn in range(3):\n    total += turn\n"
    assert loops.compile_with_extended_loops(source, "a.py").co_code == compile(source, "a.py", "exec").co_code


def test_function_compiled_so_runs_as_it_is_after_uninstall() -> None:
    found = run(
        "def train():\n    for _ in range(3):\n        next(steps)\n"
        "def wait():\n    while next(steps) < 0:\n        pass\nnext(steps)"
    )
    found["train"]()
    assert found["steps"].taken == 4, "no loop begins again"
    found["wait"]()
    assert found["steps"].taken == 5, "nor does one go on"


def test_call_sites_are_unchanged() -> None:
    source = "from __future__ import annotations\nfor _ in range(3):\n    train(next(it),\n          kind='a')\n"
    code, as_is = loops.compile_with_extended_loops(source, "a.py"), compile(source, "a.py", "exec")
    places = set(as_is.co_positions())
    assert set(code.co_positions()) == places and NAMES[0] in code.co_consts


@pytest.mark.parametrize("deep", [
    f"a = {' + '.join(['1'] * 600)}",
    f"a = {' + '.join(['1'] * 1500)}",
    "if done: pass\n" + "".join(f"elif done == {number}: pass\n" for number in range(600)),
], ids=["sum", "long sum", "elif"])  # fmt: skip
def test_code_that_is_nested_deep_is_compiled(deep: str) -> None:
    found = run(f"for _ in range(3):\n    next(steps)\n{deep}", measured=20)
    assert found["steps"].taken in (3, 20)


def test_declared_encoding_of_bytes_is_used() -> None:
    source = "# -*- coding: latin-1 -*-\nname = 'é'\nfor _ in range(0):\n    next(it)\n".encode("latin-1")
    found: dict[str, Any] = {}
    kept = loops.LoopExtender(lambda: 0)
    kept.install()
    try:
        exec(loops.compile_with_extended_loops(source, "a.py"), found)
    finally:
        kept.uninstall()
    assert found["name"] == "é"


def test_invalid_python_is_rejected() -> None:
    with pytest.raises(SyntaxError):
        loops.compile_with_extended_loops("for in range(3): next(it)", "a.py")


def test_function_runs_in_a_process_where_nothing_is_installed() -> None:
    source = (
        "def first(values, least):\n    for value in values:\n        if value >= least:\n            return value\n"
        "def count(steps):\n    done = 0\n    while done < 5:\n        next(steps)\n        done += 1\n"
        "    for _ in range(2):\n        next(steps)\n    return next(steps)\n"
    )
    found: dict[str, Any] = {}
    exec(loops.compile_with_extended_loops(source, "a.py"), found)
    assert found["first"]([1, 2, 3], 2) == 2 and found["count"](iter(range(9))) == 7
