"""How much of a training step is spent waiting for input: the real step against one cached batch repeated.

The differential measurement of the tf.data paper (VLDB 2021, section 4.2) and FastFlow (VLDB 2023, section
4), in pairs and with an interval.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace

from pipetune.core.measurement import Interval, Pause, Window
from pipetune.core.profile import NOT_BOUND_BELOW
from pipetune.core.time_plan import Clock
from pipetune.search.meter import FEWEST_SLOW_STEPS, FEWEST_STEPS
from pipetune.search.statistics import expected_interval, undisturbed

ROUNDS = (4, 8, 16)
"""Pairs after which the interval may be looked at; the error is divided over the looks."""

PATIENCE_SECONDS = 2.0
"""Of half of the pairs until a look: if they are as short, the first look is taken even where time is up, and so is the
second where there seems to be no wait. By judgement: two pairs alone, and four where one was disturbed, seldom tell a
wait of nothing from one of 5 %, and half a minute of trials would follow."""


@dataclass(frozen=True)
class Stall:
    """Seconds per step, and the share of a step that an input costing nothing would save."""

    real_seconds: float
    bound_seconds: float
    share: Interval
    steps: int  # per window
    ratios: tuple[float, ...] = ()  # bound over real, pair by pair
    bound_cpu_seconds: float = 0.0  # of the process, per step on the repeated batch
    real_cpu_seconds: float = 0.0  # of the process, per real step
    start_seconds: float = 0.0  # of a real step: what the start of an epoch takes longer, per step, than on that batch


def measure_stall(
    real: Callable[[int], Window],
    bound: Callable[[int], Window],
    *,
    clock: Clock,
    limit_seconds: float,
    input_seconds: float = 0.0,
    pause: Pause | None = None,
    ahead: int = 0,
    epoch_steps: int | None = None,
    seed: int,
    steps: int | None = None,
    window_seconds: float = 0.7,
    most_steps: int = 500,
) -> Stall:
    """Measures pairs of windows, in random order, until it is clear whether a gain is possible, or time is up.

    Args:
        real: runs that many steps on the input as written.
        bound: runs that many steps on one repeated batch.
        input_seconds: what the input alone takes for a step, as far as known.
        limit_seconds: after which no pair is begun once there are two, but for looks that are soon reached.
        pause: of the input alone. Windows of real steps begin with an iterator, so that shorter ones see none; where
            longer ones do not fit into the time, the share allows for it.
        ahead: elements that the input prepares ahead.
        epoch_steps: elements of an epoch; windows that are longer cover whole epochs. None: unknown.
        steps: per window; None: chosen so that a window takes about `window_seconds`, or less where time is short.
        most_steps: in a window so chosen; few where the consumer may run out of steps.

    Raises:
        RunFailed: a window could not be measured.
    """
    started = clock.now()
    draw = random.Random(seed)
    warm = bound(FEWEST_SLOW_STEPS)  # traces and warms what the first steps of a model need
    slowest = max(warm.step_seconds, input_seconds)
    # Few where two pairs of windows of more do not fit into the time.
    fewest = FEWEST_SLOW_STEPS if 4 * FEWEST_STEPS * slowest > limit_seconds else FEWEST_STEPS
    first = real(fewest)
    seconds = min(window_seconds, limit_seconds / (2 * ROUNDS[0]))
    count = steps or max(fewest, min(most_steps, round(seconds / first.step_seconds)))
    if not steps and epoch_steps and count > epoch_steps:
        count -= count % epoch_steps
    real_count, waited = count, 0.0
    unbridged = pause.unbridged(ahead, warm.step_seconds) if pause is not None else None
    if pause is not None and unbridged is not None and unbridged.missed_by(count, first.step_seconds):
        whole = pause.elements * first.step_seconds + 2 * pause.seconds  # the first element takes as long as a pause
        if steps is None and 2 * whole <= limit_seconds:
            real_count = pause.elements
        else:
            waited = unbridged.seconds_per_element
    reals: list[Window] = []
    bounds: list[Window] = []
    longest = 0.0
    if count == fewest == FEWEST_SLOW_STEPS:  # too slow to be thrown away
        reals.append(first)
        bounds.append(bound(count))
    waits = True
    for look in ROUNDS:
        patient = look == ROUNDS[0] or (look == ROUNDS[1] and not waits)
        while len(reals) < look:
            before = clock.now()
            soon = patient and look / 2 * longest <= PATIENCE_SECONDS
            if len(reals) >= 2 and before - started + longest > limit_seconds and not soon:
                break
            if draw.random() < 0.5:
                reals.append(real(real_count))
                bounds.append(bound(count))
            else:
                bounds.append(bound(count))
                reals.append(real(real_count))
            longest = max(longest, clock.now() - before)
        real_seconds, bound_seconds = ([one.step_seconds for one in arm] for arm in undisturbed(reals, bounds))
        real_seconds = [seconds + waited for seconds in real_seconds]
        share = share_of(real_seconds, bound_seconds)
        if len(reals) < look or share.high < NOT_BOUND_BELOW or share.low >= NOT_BOUND_BELOW:
            break
        waits = share.median >= NOT_BOUND_BELOW
    if waited:
        share = replace(share, method=f"{share.method}; pauses of {pause} are added")
    start, bound_start = (statistics.median(one.start_seconds for one in windows) for windows in (reals, bounds))
    return Stall(
        real_seconds=statistics.median(real_seconds),
        bound_seconds=statistics.median(bound_seconds),
        share=share,
        steps=real_count,
        ratios=tuple(b / r for b, r in zip(bound_seconds, real_seconds, strict=True)),
        bound_cpu_seconds=statistics.median(window.cpu_seconds / window.steps for window in bounds),
        real_cpu_seconds=statistics.median(window.cpu_seconds / window.steps for window in reals),
        start_seconds=max(0.0, start - bound_start),
    )


def share_of(real_seconds: list[float], bound_seconds: list[float]) -> Interval:
    """The share of a real step that is not in the bound step; 0 where the bound is not shorter."""
    ratios = [bound / real for bound, real in zip(bound_seconds, real_seconds, strict=True)]
    ratio = expected_interval(ratios, error=0.05 / len(ROUNDS))
    share, low, high = (max(0.0, 1 - value) for value in (ratio.median, ratio.high, ratio.low))
    return Interval(share, low, high, ratio.pairs, ratio.method)
