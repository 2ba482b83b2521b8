"""What the steps of a loop change in the names of a notebook is put back."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from pipetune.notebook.observed_cell import NamespaceCopy


class Trainer:
    steps = 0


def test_names_and_contents_are_put_back() -> None:
    losses, metrics, seen, recent = [1.0], {"loss": 1.0}, {1}, deque([1], maxlen=2)
    weights, data, raw = np.ones(3), np.arange(3), bytearray(b"ab")
    names: dict[str, Any] = {
        **{"losses": losses, "metrics": metrics, "seen": seen, "recent": recent, "weights": weights, "raw": raw},
        **{"data": data, "same": losses, "step": 1, "gone": 2},
    }
    before = NamespaceCopy(names)
    losses.append(2.0)
    metrics.clear()
    seen.add(2)
    recent.extend([2, 3])
    weights -= 0.5
    raw.extend(b"c")
    names.update(step=7, x=3, losses=[], weights=weights - 1)
    del names["gone"]
    before.restore()
    assert names["losses"] is names["same"] is losses and losses == [1.0]
    assert (metrics, seen, list(recent), recent.maxlen, raw) == ({"loss": 1.0}, {1}, [1], 2, b"ab")
    assert names["weights"] is weights and weights.tolist() == [1.0, 1.0, 1.0]
    assert (names["step"], names["gone"], "x" in names) == (1, 2, False)


def test_contents_of_containers_in_others_are_put_back() -> None:
    long = [[0]] * 100_001
    names: dict[str, Any] = {"history": {"loss": [1.0], "seen": {1}}, "logs": ([2],), "long": long, "w": np.ones(2)}
    before = NamespaceCopy(names)
    names["history"]["loss"].append(2.0)
    names["history"]["seen"].add(2)
    names["logs"][0].clear()
    long.append([1])
    names["w"] += 1
    names["w"].flags.writeable = False
    before.restore()
    assert names["history"] == {"loss": [1.0], "seen": {1}} and names["logs"] == ([2],) and len(long) == 100_001
    assert names["w"].tolist() == [1.0, 1.0]


def test_arrays_whose_shape_was_changed_in_place_are_put_back() -> None:
    names: dict[str, Any] = {"reshaped": np.arange(6), "typed": np.ones(2), "longer": np.ones(2)}
    names["again"] = names["longer"]
    before = NamespaceCopy(names)
    names["reshaped"].resize((2, 3), refcheck=False)
    names["typed"].dtype = np.int32
    names["longer"].resize(5, refcheck=False)
    before.restore()
    assert names["reshaped"].tolist() == list(range(6))
    assert [names[one].tolist() for one in ("typed", "longer")] == [[1.0, 1.0]] * 2
    assert names["again"] is names["longer"]


def test_arrays_in_containers_are_put_back() -> None:
    weights, large = {"w": np.ones(2)}, np.zeros(9 * 2**20)
    names: dict[str, Any] = {"layers": [weights], "images": [large]}
    before = NamespaceCopy(names)
    weights["w"] -= 0.5
    large += 1
    before.restore()
    assert weights["w"].tolist() == [1.0, 1.0] and large[0] == 1, "too large to be copied with all others"


def test_order_of_a_dict_is_put_back() -> None:
    losses, others = {"train": 1.0, "val": 2.0, "test": 3.0}, {"a": 1}
    before = NamespaceCopy({"losses": losses, "others": others})
    losses["train"] = losses.pop("train")
    losses["new"] = losses.pop("val")
    before.restore()
    assert list(losses.items()) == [("train", 1.0), ("val", 2.0), ("test", 3.0)] and others == {"a": 1}


def test_namespaces_among_the_values_stay_whole() -> None:
    """`exec` adds `__builtins__` to its names, and `names = globals()` the names themselves."""
    names: dict[str, Any] = {}
    exec("spaces = globals(), len", names)
    names["own"] = names
    before = NamespaceCopy(names)
    exec("added = 1\n__builtins__['of_python'] = 2", names)
    before.restore()
    assert "added" not in names and names["own"] is names and names["__builtins__"].pop("of_python") == 2


def test_what_cannot_be_copied_keeps_its_changes() -> None:
    trainer, constant, large = Trainer(), np.ones(2), np.zeros(64 * 2**20 // 8 + 1)
    constant.flags.writeable = False
    names = {"trainer": trainer, "constant": constant, "large": large}
    before = NamespaceCopy(names)
    trainer.steps, large[0] = 5, 1.0
    before.restore()
    assert trainer.steps == 5 and large[0] == 1.0
    assert names == {"trainer": trainer, "constant": constant, "large": large}
