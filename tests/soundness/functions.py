"""Cases of functions: pipetune's variants of a composed function, compared with the function on all of the data."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import tensorflow as tf

from tests.soundness import adapter, cases
from tests.soundness.cases import Case, Tried, asked, chosen
from tests.soundness.drained import Kind, Run, Unbuilt, drain, either, flush, in_order
from tests.soundness.operations import CORE, FORMULAS, OPERATIONS
from tests.soundness.programs import Program, compose
from tests.soundness.verdict import APPROXIMATE, EXACT, STATISTICAL, Verdict, judge

_PLAIN = 1  # of the proposals that keep the function; the family of pipelines covers these
_AGAIN = 4  # programs tried for one case: some cannot be traced


def run(
    seed: str, index: int, *, folder: str, manner: str | None = None, core: bool | None = None, ask_all: bool = False
) -> Case:
    """The case of this seed; its focus cycles through the operations, every second time through the core of them.

    One in ten is a formula over random numbers, except with `ask_all`, which compares every proposal: the list of right
    proposals has none of them. `manner` is that of its data, if given; `core` says whether it is of the core alone.
    """
    among = CORE if (index % 2 == 0 if core is None else core) else OPERATIONS
    place = index if core is not None else index // 2
    if core is None and not ask_all and index % 10 == 9:
        among, place, manner = FORMULAS, index // 10, "random"

    def composed(seed_of_program: str) -> Case:
        program = compose(seed_of_program, focus=among[place % len(among)], manner=manner, among=among)
        return tried(program, folder=folder, seed=seed, ask_all=ask_all)

    return cases.first_built("function", seed, _AGAIN, composed)


class Built:
    """A program as a module, which builds its pipeline repeatedly."""

    def __init__(self, program: Program, folder: str) -> None:
        self.program = program
        self._module = load(program.source(), folder)
        self._data = program.data()

    def dataset(self, *, flushed: bool = False) -> Any:
        """A new pipeline, with the same seeds each time; of the same data, or with zeros in place of denormals."""
        tf.random.set_seed(7)
        with cases.building():
            return self._module.make({name: flush(one) if flushed else one for name, one in self._data.items()})


_numbers = itertools.count(1)


def load(source: str, folder: str) -> ModuleType:
    """The source as a module in a file, so that its text can be read."""
    name = f"case_{os.getpid()}_{next(_numbers)}"
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tried(program: Program, *, folder: str, seed: str = "", ask_all: bool = False) -> Case:
    """All proposals for the program's pipeline, and the truth about each."""
    built = Built(program, folder)
    setting = program.setting
    original = drain(built.dataset(), epochs=setting.epochs)
    if not original.elements:
        raise Unbuilt("it gives no element")
    random = _varies(built, original)

    def planned() -> tuple[Sequence[adapter.Proposal], cases.Plans]:
        proposals = adapter.read(built.dataset()).proposals(adapter.Facts())
        return proposals, [[one] for one in chosen(proposals, salt=seed, plain=_PLAIN)]

    def of_plan(plan: Sequence[adapter.Proposal]) -> Tried:
        return _tried(built, plan[0], original, random=random, ask=ask_all or asked(plan[0], salt=seed))

    return cases.of_plans(Case("function", seed, operations=program.operations), planned, of_plan, program.packed)


def _draws(program: Program) -> bool:
    return any("random" in step.text or "dropout" in step.text for step in program.steps)


def _varies(built: Built, original: Run) -> bool:
    """Whether two runs of the original differ; parallel calls share a generator, even if a few runs are equal."""
    setting = built.program.setting
    if not _draws(built.program) or "num_parallel_calls" in setting.map_arguments:
        return _draws(built.program)
    return in_order(original, drain(built.dataset(), epochs=setting.epochs)) is not None


def _rounds_by_itself(built: Built, original: Run) -> bool:
    """Whether the last bits of the program's own runs differ: TensorFlow may add three numbers in any order."""
    for _ in range(3):
        again = drain(built.dataset(), epochs=built.program.setting.epochs)
        found = in_order(original, again.first_epochs(len(original.epochs)))
        if found is not None and found.kind >= Kind.ROUNDING:
            return True
    return False


def _stateful(program: Program) -> bool:
    """Whether a second iteration of a pipeline differs from that of a new one."""
    return _draws(program) or _has(program, "shuffle") or _has(program, "cache")


def _has(program: Program, operator: str) -> bool:
    one = program.setting
    return any(operator in link for link in (*one.above, *one.between, *one.below))


def _tried(built: Built, proposal: adapter.Proposal, original: Run, *, random: bool, ask: bool) -> Tried:
    program, setting = built.program, built.program.setting
    source = adapter.built(built.dataset())
    candidate = drain(source.replayed([proposal]), epochs=setting.epochs)
    if _has(program, "cache") and proposal.rule != "cache":
        sound = original.sound_epochs
        candidate, original = candidate.first_epochs(sound), original.first_epochs(sound)
    safety = STATISTICAL if random and proposal.safety == EXACT else proposal.safety

    def judged(expected: Run, notes_zeros: bool) -> Verdict:
        draws = random or ((proposal.random or proposal.safety == STATISTICAL) and _draws(program))
        spare = (setting.batch - 1) * 4 * setting.epochs if setting.drop_remainder else 0
        return judge(expected, candidate, safety, random=draws, spare=spare, notes_zeros=notes_zeros)

    def verdict(notes_zeros: bool) -> Verdict:
        found = judged(original, notes_zeros)
        if not found.right and notes_zeros and safety == APPROXIMATE:
            flushed = drain(built.dataset(flushed=True), epochs=setting.epochs)
            found = judged(either(original, flushed.first_epochs(len(original.epochs)), candidate), notes_zeros)
        rounded = not found.right and Kind.ROUNDING <= Kind[found.kind] <= Kind.TOLERANCE
        return replace(found, right=True) if rounded and _rounds_by_itself(built, original) else found

    def compared() -> adapter.Answer:
        return (adapter.built(built.dataset()) if _stateful(program) else source).compared([proposal])

    return cases.tried([proposal], proposal.safety, verdict, compared, ask=ask)


def of_rules(program: Program, rules: Sequence[str], *, folder: str) -> Iterator[Tried]:
    """The proposals of these rules for the program, and the truth about them."""
    built = Built(program, folder)
    original = drain(built.dataset(), epochs=program.setting.epochs)
    random = _varies(built, original)
    for proposal in adapter.read(built.dataset()).proposals(adapter.Facts()):
        if proposal.rule in rules:
            with contextlib.suppress(adapter.Refused):
                yield _tried(built, proposal, original, random=random, ask=False)
