"""Runs `pipetune analyze` on scripts whose right answer is known, and judges the answers.

A script is analyzed in a copy of its folder, as users do, if need be beside processes that now and then take a core.
Its patch is applied to the copy, and the stopwatch times the copy against the original. A patch that an earlier run of
the case had is not timed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import random
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks import EXAMPLES, ProgressCallback
from benchmarks.decisions import cases as known
from benchmarks.decisions.cases import Case, Decision, PossibleGain, Run
from benchmarks.decisions.stopwatch import TimedScript, Timing, median_interval, time_scripts
from benchmarks.neighbours import neighbours
from benchmarks.processes import PIPETUNE_COMMAND, Analysis, analyze, run_process
from pipetune.core import files
from pipetune.core.machine import Machine
from pipetune.core.measurement import RunFailed
from pipetune.core.messages import Job
from pipetune.core.session import Session, outcome_of

QUIET_SHARE = 0.1
"""Share of the cores that other processes may use during an analysis beside nobody. By judgement: an idle machine's
services took 0 to 3 %; beside tests at the lowest priority, which took 27 and 46 %, two answers of 18 were others."""

_PAIRS = 16  # of a patch at a time: some will not be quiet
_START_SHARE = 0.2
"""Of a step: where the start of an epoch takes more, as many pairs are taken as of an expert's script. By judgement: it
waits for up to 2 s at random. Where it was half of a step (replicas_records), 16 pairs gave 2.20x, and 60 pairs of the
same change 2.82x."""

_ATTEMPTS = 3
_EXPERT_PAIRS, _PAIRS_PER_START = 60, 10  # at a time, at most; some will not be quiet
_ANALYZE_SECONDS = 900.0  # after which an analysis is given up


@dataclass(frozen=True)
class Answer(Analysis):
    """What `pipetune analyze` answered, and how fast its patch is."""

    ratios: tuple[float, ...] = ()  # of the quiet pairs of the patched script; none if there is no patch that counts


def measure(name: str, job: Job, progress: ProgressCallback) -> tuple[Decision, Machine | None]:
    """Judges the run with this name, of `known.runs_of`.

    Raises:
        RunFailed, PipetuneError, OSError: the run failed, or does not count because the machine was busy.
    """
    case, run = known.runs_of(known.choose_cases(()).values())[name]
    commit = _commit()
    answer = answer_run(case, run, Path(job.out) / "decisions" / name, progress)
    load = answer.session.load
    if not run.neighbours and load is not None and load.others_share > QUIET_SHARE:
        raise RunFailed(f"it does not count, as other processes used {load.others_share:.0%} of the cores")
    possible = known.load_gains().gains.get(case.name)
    return judge(case, run, answer, possible, commit=commit), answer.session.machine


def judge(case: Case, run: Run, answered: Answer, possible: PossibleGain | None, *, commit: str) -> Decision:
    """Returns the decision of one run."""
    session = answered.session
    outcome = outcome_of(session).value
    enough = len(answered.ratios) >= known.JUDGING_PAIRS
    gain = statistics.median(answered.ratios) if enough else None
    shipped = bool(shipped_patch(session, run))
    holder = session.candidate if outcome == known.LIKELY else session
    decision = Decision(
        name=case.name,
        neighbours=run.neighbours,
        seed=run.seed,
        wanted=case.wanted,
        answer=outcome,
        right=None,
        harmful=False if not shipped else None if gain is None else gain < known.HARMFUL_BELOW,
        seconds_to_verdict=_seconds_to_verdict(session),
        seconds_to_patch=session.seconds.get("budget") if shipped else None,
        seconds_total=round(answered.seconds, 1),
        commit=commit,
        gain=gain,
        wanted_gain=None,
        pairs=len(answered.ratios),
        rules=tuple(rewrite.rule for rewrite in holder.plan.rewrites) if shipped and holder and holder.plan else (),
        others_share=session.load.others_share if session.load else None,
    )
    return known.judged_by(decision, case, possible)


def _seconds_to_verdict(session: Session) -> float | None:
    """Returns the time from the first training step to the verdict: two phases of the analysis."""
    seconds = session.seconds
    return round(seconds.get("profile", 0.0) + seconds["verdict"], 3) if "verdict" in seconds else None


def shipped_patch(session: Session, run: Run) -> str:
    """Returns the patch that counts: a proven one; beside neighbours a likely one does, too. "" if there is none."""
    outcome = outcome_of(session).value
    if outcome == known.LIKELY and run.neighbours and session.candidate is not None:
        return session.candidate.diff
    return session.patch.diff if outcome == known.PROVEN and session.patch is not None else ""


def answer_run(case: Case, run: Run, out: Path, say: ProgressCallback) -> Answer:
    """Analyzes a copy of the script, applies the patch to it, and times it against the original.

    Args:
        case: the case.
        run: beside how many neighbours, with which seed.
        out: the folder for the session and the log.
        say: called with what is being done.

    Raises:
        RunFailed, PipetuneError, OSError: an analysis left no session, or a script could not be timed.
    """
    with files.temporary_folder("decisions") as name:
        script = copy_script(case.path, Path(name, "patched"))
        log = out / "command.log"
        with neighbours(_seeds(run)):
            analysis = analyze(
                script,
                case.arguments,
                out,
                seed=run.seed,
                log=log,
                progress=say,
                options=case.options,
                timeout_seconds=_ANALYZE_SECONDS,
            )
        session, seconds = analysis.session, analysis.seconds
        if not shipped_patch(session, run):
            return Answer(session, seconds)
        unproven = () if outcome_of(session).value == known.PROVEN else ("--unproven",)
        run_process((*PIPETUNE_COMMAND, "apply", *unproven, str(out)), activity="pipetune apply", log=log, progress=say)
        pairs = PairsOfPatch(out, case.name, script.parent)
        if len(pairs.ratios) < known.JUDGING_PAIRS:
            original = copy_script(case.path, Path(name, "original"))
            for attempt in range(_ATTEMPTS):
                if len(pairs.ratios) < known.JUDGING_PAIRS:
                    seed = run.seed + attempt
                    timing = _timing(case, original, script, pairs=_PAIRS, seed=seed, say=say)
                    if timing.start_share > _START_SHARE:
                        starts = _EXPERT_PAIRS // _PAIRS_PER_START
                        timing = _timing(case, original, script, pairs=_EXPERT_PAIRS, starts=starts, seed=seed, say=say)
                    pairs.add(timing.quiet)
        pairs.save()
        return Answer(session, seconds, pairs.ratios)


class PairsOfPatch:
    """Quiet pairs of a patched script, kept beside the session: another run with the same patch needs none of its own.

    Args:
        out: the folder of the run's session, beside those of other runs of the case.
        case: its name.
        patched: the folder of the patched script.
    """

    def __init__(self, out: Path, case: str, patched: Path):
        self._path = out / "pairs.json"
        digest = hashlib.sha256()
        for path in sorted(patched.rglob("*.py")):
            digest.update(f"{path.relative_to(patched)}\0".encode() + path.read_bytes() + b"\0")
        self._digest = digest.hexdigest()
        saved = [json.loads(path.read_text(encoding="utf-8")) for path in out.parent.glob(f"{case}-[0-9]*/pairs.json")]
        same = (tuple(one["ratios"]) for one in saved if one["digest"] == self._digest)
        self.ratios: tuple[float, ...] = max(same, key=len, default=())

    def add(self, ratios: tuple[float, ...]) -> None:
        self.ratios += ratios

    def save(self) -> None:
        files.write_json(self._path, {"digest": self._digest, "ratios": self.ratios})


def measure_gains(names: tuple[str, ...], *, say: ProgressCallback) -> None:
    """Times the experts' scripts until the gain of each case is fixed, and saves each result at once.

    Pairs that are not quiet do not count, so that this may have to be repeated on a busy machine.

    Args:
        names: of the cases; if empty: all.
        say: called with what is being done, and with each result.

    Raises:
        PipetuneError: a name is unknown, or the results cannot be written.
        RunFailed: a script could not be timed.
    """
    for name, case in known.choose_cases(names).items():
        before = known.load_gains().gains.get(name)
        if case.expert is None or (before and before.fixed):
            continue
        ratios = before.ratios if before else ()
        pairs = min(_EXPERT_PAIRS, math.ceil(1.2 * (known.FIXED_PAIRS - len(ratios))))
        say(f"{name}: the expert's script")
        starts = math.ceil(pairs / _PAIRS_PER_START)
        timing = _timing(case, case.path, case.expert, pairs=pairs, starts=starts, seed=len(ratios), say=say)
        add_gain(name, timing)
        median, low, high = median_interval(timing.ratios)
        say(
            f"{name}: {median:.3f}x ({low:.3f} to {high:.3f}) in {len(timing.pairs)} pairs, "
            f"{len(timing.quiet)} of them quiet, {len(ratios) + len(timing.quiet)} quiet in all"
        )


def add_gain(name: str, timing: Timing) -> None:
    """Adds the quiet pairs of an expert's script to gains.json."""
    if not timing.quiet:
        return
    gains = known.load_gains()
    before = gains.gains.get(name)
    ratios = (*(before.ratios if before else ()), *(round(ratio, 4) for ratio in timing.quiet))
    counted = timing.starts_counted and (before is None or before.starts_counted)
    gain = PossibleGain(ratios, counted, _commit())
    known.save_gains(known.Gains(_machine(), {**gains.gains, name: gain}))


def copy_script(script: Path, folder: Path, examples: Path = EXAMPLES) -> Path:
    """Returns a copy of `script`, in a copy of its folder; everything else below `examples` is linked to.

    What the script or a patch changes in its own folder is then no change of the original. The expert's script is left
    out: it is no part of what is analyzed.

    Args:
        script: the script, somewhere below `examples`.
        folder: takes the place of `examples`; it is created.
        examples: the folder with the data that scripts find by their own path.
    """
    here, there = examples.resolve(), folder
    for part in (*script.resolve().relative_to(here).parts[:-1], ""):
        there.mkdir(parents=True)
        for entry in here.iterdir():
            if not part and entry.is_file():
                if entry.name != "expert.py":
                    shutil.copy2(entry, there)
            elif entry.name not in (part, "__pycache__"):
                (there / entry.name).symlink_to(entry)
        here, there = here / part, there / part
    return there / script.name


def _timing(
    case: Case, original: Path, changed: Path, *, pairs: int, seed: int, say: ProgressCallback, starts: int = 4
) -> Timing:
    arguments = (*case.arguments, *case.timed_arguments)
    first, second = (TimedScript(path, arguments, case.loop, case.cold_files) for path in (original, changed))
    return time_scripts(first, second, pairs=pairs, starts=starts, seed=seed, say=say)


def _seeds(run: Run) -> list[int]:
    """Returns the seeds of the neighbours of a run."""
    return random.Random(run.seed).sample(range(1_000_000), run.neighbours)


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}"


def _commit() -> str:
    """Returns the commit of the clone, with "+" if files differ from it; "" outside a clone."""
    command = ("git", "-C", str(EXAMPLES), "describe", "--always", "--abbrev=9", "--dirty=+", "--exclude=*")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()
