"""`python remote_task.py FOLDER SCENARIO`: the command of one task of the cluster in `TF_CONFIG`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipetune.core.cluster import task_from_environment
from pipetune.supervisor.analysis import analyze
from pipetune.supervisor.monitoring import Timeouts
from pipetune.supervisor.results_folder import Results
from tests.supervisor.test_analysis import Recorder, request

if __name__ == "__main__":
    folder, scenario = Path(sys.argv[1]), sys.argv[2]
    place = task_from_environment(os.environ)
    results = folder / "out" if place.is_coordinator else folder / "out" / f"{place.kind}-{place.index}"
    limits = Timeouts(start=30, phases={}, other_phases=30, shutdown=5, grace=5, meeting=30)
    command = (sys.executable, str(Path(__file__).with_name("fake_cluster.py")))
    task = request(folder / "out", scenario, limits=limits, command=command, place=place)
    screen = Recorder()
    analysis = analyze(replace(task, results=Results(results)), screen=screen)
    patch = analysis.session.patch
    found = {
        "detail": analysis.session.status_detail,
        "last_lines": analysis.log_tail,
        "verified": patch is not None and patch.verified,
        "warned": screen.warned,
        "hint": analysis.failure.hint if analysis.failure else "",
        "notes": analysis.session.notes,
    }
    (folder / f"found-{place.worker_index}.json").write_text(json.dumps(found))
    sys.exit(analysis.exit_code)
