"""`python -m benchmarks.decisions JOB`: judges the runs that a job names.

python -m benchmarks.decisions --gains [CASE...]    times the experts' scripts until their gains are fixed
"""

from __future__ import annotations

import sys

from benchmarks.decisions.judging import measure, measure_gains
from benchmarks.measuring_process import run_job


def main() -> int:
    if sys.argv[1:2] != ["--gains"]:
        return run_job(measure)
    measure_gains(tuple(sys.argv[2:]), say=lambda activity: print(activity, file=sys.stderr, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
