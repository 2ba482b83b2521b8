"""Loops that begin to read their data anew before it ends: seen in the code, and while they are measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.tensorflow

from pipetune.capture.consumption import LoopReadings, Reading, WayOut
from pipetune.capture.early_ends import way_out
from pipetune.capture.loops import LoopExtender, compile_with_extended_loops
from pipetune.capture.rebuilding import is_repeated
from pipetune.pipelines import call_sites

START = """import itertools
class Data:
    def __iter__(self):
        begin()
        return iter([1, 2])
class Loader:
    def __iter__(self):
        return iter(data)
class Reader:
    most = None
    def __iter__(self):
        self.rest = iter(data)
        return self
    def __next__(self):
        return next(self.rest)
class Done(Exception):
    pass
def made():
    return iter(data)
def each():
    for x in data:
        yield x
data, other, ever, loader, reader = Data(), [3, 4, 5], range(2), Loader(), Reader()
class Options:
    def __init__(self):
        self.steps, self.few = None, 3
options, debug, limit, config = Options(), False, None, {'steps': None}
"""

CODE: list[tuple[str, WayOut | None]] = [
    # To the end.
    ("for epoch in ever:\n    for x in data:\n        print(x)\n", None),
    ("for epoch in ever:\n    for n, x in enumerate(data):\n        if n:\n            continue\n    break\n", None),
    ("for x in data:\n    for y in other:\n        break\n    while x:\n        break\n", None),
    ("def run():\n    for x in data:\n        def inner():\n            return x\n    return 3\nrun()\n", None),
    ("for x in data:\n    try:\n        abs(x)\n    except KeyboardInterrupt:\n        break\n", None),
    ("it = iter(data)\nfor n in ever:\n    next(it)\n", None),
    ("for epoch in ever:\n    it = iter(data)\n    while True:\n        try:\n            next(it)\n"
     "        except StopIteration:\n            break\n", None),
    ("for epoch in ever:\n    it = iter(data)\n    while next(it, None):\n        pass\n", None),
    ("for epoch in ever:\n    print([x for x in data], sum(x for x in data), list(map(abs, data)))\n", None),
    ("for epoch in ever:\n    for x in loader:\n        print(x)\n    list(loader)\n", None),
    ("for epoch in ever:\n    for x in each():\n        print(x)\n", None),
    ("it = made()\nfor n in ever:\n    next(it)\n", None),
    ("def some():\n    it = iter(data)\n    return it\nfor epoch in ever:\n    for x in some():\n        pass\n", None),
    ("for epoch in ever:\n    for x in reader:\n        print(x)\n", None),
    ("for epoch in ever:\n    it = iter(data)\n    for x in map(abs, it):\n        print(x)\n", None),
    ("def run():\n    it = iter(data)\n    for x in it:\n        print(x)\nfor epoch in ever:\n    run()\n", None),
    # What is raised is an error, is handled within the loop, or is not what the code around it handles.
    ("try:\n    for x in data:\n        if x < 0:\n            raise ValueError\nexcept KeyError:\n    pass\n", None),
    ("try:\n    for x in data:\n        if x < 0:\n            raise ValueError\nexcept Exception:\n    pass\n", None),
    ("try:\n    for x in data:\n        if x < 0:\n            raise Done\nexcept Done:\n    raise\n", None),
    ("try:\n    for x in data:\n        try:\n            if x < 0:\n                raise Done\n"
     "        except Done:\n            continue\nexcept Done:\n    pass\n", None),
    ("def check(x):\n    if x < 0:\n        raise ValueError\ntry:\n    for x in data:\n        check(x)\n"
     "except ValueError:\n    pass\n", None),
    ("class Trainer:\n    def __init__(self):\n        self.it = None\n    def train(self):\n"
     "        if self.it is None:\n            self.it = iter(data)\n        next(self.it)\n"
     "trainer = Trainer()\nfor n in ever:\n    trainer.train()\n", None),
    # Its variables exclude it.
    ("for n, x in enumerate(data):\n    if n == options.steps:\n        break\n", None),
    ("for n, x in enumerate(data):\n    if limit is not None and n >= limit or debug:\n        break\n", None),
    ("def run(options, n=0):\n    for x in data:\n        n += 1\n        if options.steps and n >= options.steps:\n"
     "            return\nrun(options)\n", None),
    ("for n, x in enumerate(data):\n    if not options.few:\n        break\n", None),
    ("for x in data:\n    if options.few is None or data == None:\n        break\n", None),
    ("for n, x in enumerate(data):\n    if config['steps'] and n >= config['steps']:\n        break\n", None),
    ("for epoch in ever:\n    for x in loader:\n        if debug:\n            break\n", None),
    # It may be left.
    ("for epoch in ever:\n    for n, x in enumerate(loader):\n        if n:\n            break\n", WayOut.FOR),
    ("for epoch in ever:\n    for n, x in enumerate(each()):\n        if n:\n            break\n", WayOut.FOR),
    ("for epoch in ever:\n    for n, x in zip(ever, loader):\n        pass\n", WayOut.FOR),
    ("for n in ever:\n    next(made())\n", WayOut.NEXT),
    ("for n in ever:\n    it = loader.__iter__()\n    next(it)\n", WayOut.NEXT),
    ("for n, x in enumerate(data):\n    if n == options.few:\n        break\n", WayOut.FOR),
    ("for x in data:\n    found = other.count(x) or None\n    if found is None:\n        break\n", WayOut.FOR),
    ("for x in data:\n    found = other.count(x) or None\n    if found == None:\n        break\n", WayOut.FOR),
    ("for x in data:\n    if options.steps is None:\n        break\n", WayOut.FOR),
    ("for n, x in enumerate(data):\n    debug = n == 1\n    if debug:\n        break\n", WayOut.FOR),
    ("for n, x in enumerate(data):\n    if options.steps:\n        pass\n    elif n:\n        break\n", WayOut.FOR),
    ("for n, x in enumerate(data):\n    options.steps = 1\n    if n == options.steps:\n        break\n", WayOut.FOR),
    ("for n, x in enumerate(data):\n    config['steps'] = 1\n    if config['steps']:\n        break\n", WayOut.FOR),
    ("for epoch in ever:\n    for n, x in enumerate(data):\n        if n == 9:\n            break\n", WayOut.FOR),
    ("def run():\n    for x in data:\n        with open(__file__):\n            return x\nrun()\n", WayOut.FOR),
    ("for x in data:\n    for y in other:\n        pass\n    else:\n        break\n", WayOut.FOR),
    ("for n, x in zip(range(9), data):\n    pass\n", WayOut.FOR),
    ("for x in itertools.islice(data, 9):\n    pass\n", WayOut.FOR),
    ("for x in itertools.takewhile(lambda x: True, data):\n    pass\n", WayOut.FOR),
    ("class Trainer:\n    done = False\n    def step(self):\n        self.done = True\n    def train(self):\n"
     "        for x in data:\n            self.step()\n            if self.done:\n                break\n"
     "Trainer().train()\n", WayOut.FOR),
    ("done = False\ndef step():\n    global done\n    done = True\nfor x in data:\n    step()\n    if done:\n"
     "        break\n", WayOut.FOR),
    ("try:\n    for x in data:\n        if x > 1:\n            raise Done()\nexcept (KeyError, Done):\n    pass\n",
     WayOut.FOR),
    ("def run():\n    for x in data:\n        if x > 1:\n            raise KeyError(x)\ntry:\n    run()\n"
     "except KeyError:\n    pass\n", WayOut.FOR),
    ("class Full(Done):\n    pass\ndef stop(x):\n    if x > 1:\n        raise Full\ntry:\n    for x in data:\n"
     "        stop(x)\nexcept Done:\n    pass\n", WayOut.FOR),
    ("import sys\ntry:\n    for x in data:\n        if x > 1:\n            sys.exit()\nexcept SystemExit:\n    pass\n",
     WayOut.FOR),
    ("for epoch in ever:\n    it = iter(data)\n    for n, x in enumerate(it):\n        if n:\n            break\n",
     WayOut.FOR),
    ("class Few(Reader):\n    def __iter__(self):\n        self.rest = iter(data)\n        return self\n"
     "    def __next__(self):\n        if self.most:\n            raise StopIteration\n        return next(self.rest)\n"
     "for epoch in ever:\n    for x in Few():\n        print(x)\n", WayOut.FOR),
    ("for epoch in ever:\n    it = iter(data)\n    next(it)\n    for x in it:\n        break\n", WayOut.NEXT),
    ("for n in ever:\n    next(iter(data))\n", WayOut.NEXT),
    ("def run():\n    it = iter(data)\n    for n in ever:\n        next(it)\nfor epoch in ever:\n    run()\n",
     WayOut.NEXT),
    ("class Trainer:\n    it = None\n    def train(self):\n        if not self.it:\n            self.it = iter(data)\n"
     "        next(self.it)\n    def reset(self):\n        self.it = None\ntrainer = Trainer()\nfor n in ever:\n"
     "    trainer.train()\n", WayOut.NEXT),
    ("it = None\nfor n in ever:\n    if not it:\n        it = iter(data)\n    next(it)\n    it = None\n", WayOut.NEXT),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CODE)
def test_ways_out_are_found_in_the_code(tmp_path: Path, text: str, expected: WayOut | None) -> None:
    assert {way for way, _ in ways_out(tmp_path, text)} == {expected}


def ways_out(folder: Path, text: str) -> set[tuple[WayOut | None, int]]:
    """What is found each time that a script begins to read its data."""
    path, found = folder / "train.py", set[tuple[WayOut | None, int]]()
    path.write_text(START + text)

    def begin() -> None:
        frame = sys._getframe(2)
        found.add(way_out(call_sites.path_from(frame), frame))

    exec(compile(path.read_text(), str(path), "exec"), {"begin": begin, "__file__": str(path)})
    return found


@pytest.mark.parametrize(("text", "least"), [
    ("for n, x in enumerate(data):\n    if n >= 600:\n        break\n", 600),
    ("limit = 600\nfor n, x in enumerate(data):\n    if x and n == limit:\n        break\n", 600),
    ("def run(steps, n=7):\n    for x in data:\n        n += 1\n        if n > steps:\n            return\n"
     "run(600)\n", 593),
    ("for n, x in enumerate(data):\n    if n == 600:\n        break\n    if n > 50:\n        break\n", 50),
    ("for n, x in enumerate(data):\n    if n >= 600:\n        break\n    if x > 9:\n        break\n", 0),
    ("for n, x in enumerate(data):\n    if n >= 600 or x > 9:\n        break\n", 0),
    ("n = 0\nfor x in data:\n    n += 1\n    if x:\n        n += 1\n    if n >= 600:\n        break\n", 0),
    ("for n, x in enumerate(data, 5):\n    if n >= 600:\n        break\n", 0),
    ("for n, x in enumerate(data, start=5):\n    if n >= 600:\n        break\n", 0),
    ("for n, x in enumerate(data):\n    if n % 600 == 0:\n        break\n", 0),
    ("for n, x in zip(range(9), data):\n    pass\n", 0),
])  # fmt: skip
def test_a_known_limit_says_how_much_is_read(tmp_path: Path, text: str, least: int) -> None:
    assert ways_out(tmp_path, text) == {(WayOut.FOR, least)}


@pytest.mark.parametrize(("way", "read", "elements"), [
    (None, [0] * 20 + [1] * 19 + [2] * 20, 19),  # the shortest reading counts
    (None, [0, 1, 0, 1, 0, 1, 0, 1, 0], None),  # iterators read in turn show nothing
    (None, [0] * 30, None),
    (WayOut.FOR, [0] * 30, 30),  # a way out that was not taken
    (WayOut.NEXT, [0] * 30, 0),
])  # fmt: skip
def test_fewest_elements_of_a_reading(way: WayOut | None, read: list[int], elements: int | None) -> None:
    readings, each = LoopReadings(way), [Reading() for _ in range(3)]
    for number in read:
        readings.add(each[number])
    assert readings.elements == elements


ENDS: list[tuple[str, int | None]] = [
    ("for x in data:\n    if x == 5:\n        break\n", 5),
    ("def run():\n    for x in data:\n        if x == 5:\n            return\nrun()\n", 5),
    ("x = 0\nwhile x < 5:\n    x = next(data)\n", 5),
    ("for n in range(3):\n    next(data)\n", 3),
    ("for epoch in [1, 2]:\n    for x in data:\n        if x % 5 == 0:\n            break\n", None),
    ("def run():\n    for x in data:\n        if x % 5 == 0:\n            return\nwhile data.taken < 10:\n    run()\n",
     10),
    ("def run():\n    for x in data:\n        if x % 5 == 0:\n            return\nlist(map(lambda _: run(), [1, 2]))\n",
     5),
]  # fmt: skip


@pytest.mark.parametrize(("text", "ends_after"), ENDS)
def test_outermost_loop_goes_on_while_it_is_measured(tmp_path: Path, text: str, ends_after: int | None) -> None:
    path, readings, reading = tmp_path / "train.py", LoopReadings(), Reading()
    path.write_text(text)

    class Data:
        taken = 0

        def __iter__(self) -> Data:
            return self

        def __next__(self) -> int:
            if self.taken == 20:
                raise KeyboardInterrupt  # all is measured
            self.taken += 1
            readings.add(reading)
            return self.taken

    data = Data()
    extender = LoopExtender(lambda: data.taken, is_repeated, readings.end)
    extender.install()
    try:
        exec(compile_with_extended_loops(text, str(path)), {"data": data})
        ended = True
    except KeyboardInterrupt:
        ended = False
    finally:
        extender.uninstall()
    assert (readings.fewest, data.taken) == (ends_after, 20 if ends_after else 10)
    assert ended == (ends_after is None)
