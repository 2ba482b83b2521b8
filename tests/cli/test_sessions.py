"""Commands that read sessions: report, compare, check, apply, doctor."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipetune.cli import apply, doctor
from pipetune.core import session_file
from pipetune.core.codec import encode
from pipetune.core.profile import Finding, Verdict
from pipetune.core.results import Outcome, RejectionReason, Trial
from pipetune.core.session import Rejection, Session, SessionOutcome, outcome_of
from pipetune.core.session_file import redact
from pipetune.core.settings import Settings
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult
from pipetune.supervisor.results_folder import Results
from tests.cli.results import AFTER, BEFORE, Done, Shell, run, saved
from tests.core.sessions import MACHINE, WINDOW, session
from tests.report.reading import with_main, with_part

TUNED = session()

# -- report


def test_places_of_the_report_open_the_editor_that_is_asked_for(tmp_path: Path, pipetune: Shell) -> None:
    found = saved(tmp_path, TUNED)
    assert pipetune("report --format html --editor idea", found).code == 0
    assert "idea://open?file=" in (Path(found).parent / "report.html").read_text()


def test_report_prints_or_writes_another_format(tmp_path: Path, pipetune: Shell) -> None:
    words = ["--format", "markdown", saved(tmp_path, TUNED)]
    code, printed, _ = pipetune("report", *words)
    assert code == 0 and printed.startswith("#") and len(printed) > 100
    assert pipetune("report", *words, "--out", tmp_path / "file").code == 0
    assert (tmp_path / "file").read_text().strip() == printed.strip()


def test_report_open_opens_the_written_file(tmp_path: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, browser = Path(saved(tmp_path, TUNED)).parent, Mock(return_value=True)
    monkeypatch.setattr("webbrowser.open", browser)
    assert pipetune("report --open", folder).code == 0
    browser.assert_called_once_with((folder / "report.html").as_uri())
    browser.return_value = False
    done = pipetune("report --open", folder)
    assert done.code == 1 and "Open " in done.err
    assert pipetune("report --open --format csv", folder).code == 2


# -- check


@pytest.mark.parametrize(
    ("wait", "limit", "code", "says"),
    [
        (0.30, "5%", 1, "failed        input wait"),
        (0.05, "5%", 0, "undetermined  input wait"),
        (0.30, "40%", 0, "passed        input wait"),
    ],
)
def test_check_fails_only_what_the_interval_proves(
    tmp_path: Path, pipetune: Shell, wait: float, limit: str, code: int, says: str
) -> None:
    done = pipetune("check --max-input-wait", limit, saved(tmp_path, session(wait=wait, spread=0.02)))
    assert done.code == code and says in done.out


@pytest.mark.parametrize(("wanted", "code"), [("1.1", 0), ("1.5", 1), ("1.25", 0)])
def test_check_of_the_speedup(tmp_path: Path, pipetune: Shell, wanted: str, code: int) -> None:
    done = pipetune("check --min-speedup", wanted, saved(tmp_path, session(speedup=1.3)))
    assert done.code == code and "input wait" not in done.out


@pytest.mark.parametrize("limit", ["--max-input-wait 5%", "--min-speedup 1.1"])
def test_unmeasured_session_does_not_pass(tmp_path: Path, pipetune: Shell, limit: str) -> None:
    assert pipetune(f"check {limit}", saved(tmp_path, replace(TUNED, datasets=(), training=None))).code == 1


def test_incomplete_session_does_not_pass(tmp_path: Path, pipetune: Shell) -> None:
    done = pipetune("check", saved(tmp_path, replace(session(wait=0.01, spread=0.01), status="interrupted")))
    assert done.code == 1 and "interrupted" in done.out and "at most 5.0 %" in done.out, "which is the default"


@pytest.fixture
def against(tmp_path: Path, pipetune: Shell) -> Shell:
    """Checks a session against another one."""

    def check(now: Session, before: Session, *words: str) -> Done:
        return pipetune("check", saved(tmp_path, now), "--baseline", saved(tmp_path, before, "before"), *words)

    return check


def test_more_input_wait_than_the_baseline_fails(against: Shell) -> None:
    now, before = session(wait=0.3, spread=0.02), session(wait=0.1, spread=0.02)
    done = against(now, before)
    assert done.code == 1 and "failed        input wait against baseline: +20.0 points" in done.out
    assert against(now, before, "--tolerance", "30%").code == 0
    assert against(before, now).code == 0  # an improvement is not a failure


def test_new_room_for_improvement_fails(against: Shell) -> None:
    now, before = session(speedup=2.0, spread=0.05), session(speedup=1.3, spread=0.05)
    done, nothing = against(now, before), replace(before, training=None)
    assert done.code == 1 and "failed        room for improvement: 2.00x now, 1.30x in the baseline" in done.out
    assert (against(now, nothing).code, against(nothing, now).code) == (1, 0)


def test_new_warning_fails(against: Shell) -> None:
    now = session(spread=0.02)
    done = against(replace(now, findings=(*now.findings, Finding("cached-augmentation", "Frozen."))), now)
    assert done.code == 1 and "failed        warnings: cached-augmentation: Frozen." in done.out


def test_baseline_of_another_machine_is_undetermined(against: Shell) -> None:
    elsewhere = with_part(session(wait=0.1, spread=0.02), "machine", cores_granted=8.0)
    done = against(session(wait=0.3, spread=0.02), elsewhere)
    assert done.code == 0 and "undetermined  input wait against baseline" in done.out
    assert "cores: 2.0 instead of 8.0" in done.out


def test_baseline_of_another_pipeline_is_refused_without_any(against: Shell) -> None:
    """B21: it used to pass silently."""
    now = session(spread=0.02)
    dataset = now.datasets[0]
    shorter = replace(dataset, pipeline=replace(dataset.pipeline, nodes=dataset.pipeline.nodes[:3]), tuned=None)
    other = replace(now, datasets=(shorter,))
    code, _, error = against(now, other)
    assert code == 2 and "--any" in error
    assert "pipetune: The baseline belongs to a different pipeline: operator 3 here, " in error
    assert against(now, other, "--any").code == 0
    before = replace(now, datasets=(replace(dataset, tuned=shorter.pipeline),))
    assert against(other, before).code == 0, "the patch of the baseline is in the script now"


def test_folder_whose_last_run_failed_does_not_pass(tmp_path: Path, pipetune: Shell) -> None:
    fine = session(wait=0.01, spread=0.01)
    for value in (fine, replace(fine, status="failed")):
        results = Results(tmp_path / "out").with_new_run()
        results.write_all(value)
    done = pipetune("check", tmp_path / "out")
    assert done.code == 1 and f"a later run did not complete: {results.folder}" in done.out
    assert pipetune("check", (tmp_path / "out/latest").resolve()).code == 0, "named, it is what was asked for"


# -- compare


@pytest.fixture
def compare(tmp_path: Path, pipetune: Shell) -> Shell:
    def compared(one: Session, two: Session) -> Done:
        done = pipetune("compare", saved(tmp_path, one), saved(tmp_path, two, "two"))
        assert done.code == 0
        return done

    return compared


def test_compare_marks_changes_that_the_interval_proves(compare: Shell) -> None:
    one, two = session(speedup=1.3, wait=0.4, spread=0.04), session(speedup=2.0, wait=0.1, spread=0.04)
    lines = compare(one, two).out.splitlines()
    rows = {line[:29].strip(): line for line in lines}
    assert rows["training speedup"].endswith("better") and "1.54x (1.48 to 1.60)" in rows["training speedup"]
    assert rows["input wait"].endswith("-30 (-33 to -27) points better")
    assert rows["training step, current"].endswith("1.00x")
    assert "better" not in rows["input speedup"] and "worse" not in rows["input speedup"]
    assert all(len(line) <= 80 for line in lines)
    back = compare(two, one).out
    assert "training speedup" in back and "worse" in back


def test_compare_does_not_mark_noise(compare: Shell) -> None:
    printed = compare(session(speedup=1.3), session(speedup=1.35)).out
    assert "better" not in printed and "worse" not in printed


def test_compare_lists_added_and_removed_rewrites_and_warnings(compare: Shell) -> None:
    smaller = with_main(TUNED, "plan", rewrites=(WINDOW,))
    printed = compare(TUNED, replace(smaller, findings=())).out
    assert "  - parallel-map (map, line 5): Run two calls at a time." in printed
    assert "  - validation-leak: " in printed
    assert "prefetch" not in printed


def test_compare_cautions_about_other_machines_and_pipelines(compare: Shell) -> None:
    shorter = with_main(TUNED, "pipeline", nodes=TUNED.datasets[0].pipeline.nodes[:3])
    two = replace(shorter, datasets=shorter.datasets[:1], machine=replace(MACHINE, device="gpu"))
    printed = compare(TUNED, two).out
    assert "Caution: measured on a different machine (device: gpu instead of cpu)." in printed
    assert "Caution: the pipelines differ." in printed
    assert "Caution" not in compare(TUNED, TUNED).out


# -- apply


def test_apply_check_and_revert(patched: Path, pipetune: Shell) -> None:
    assert pipetune("apply --check")[:2] == (1, f"not applied: {patched}\n")
    done = pipetune("apply")
    assert (done.code, patched.read_text()) == (0, AFTER)
    assert done.out == f"patched: {patched}\n`pipetune apply --revert` reverts it.\n"
    assert done.err == "pipetune: reports/train (train.py, 2026-03-01T14:15:00+00:00)\n", "which was taken"
    for path in ("reports/train", "reports/train/session.json", "reports/train/latest"):
        assert pipetune("apply --check", path)[:2] == (0, f"applied: {patched}\n")
    done = pipetune("apply reports/train/session.json")
    assert done.code == 0 and "The patch is already applied." in done.out
    assert (pipetune("apply --revert").code, patched.read_text()) == (0, BEFORE)
    done = pipetune("apply --revert")
    assert done.code == 1 and "not applied" in done.err


@pytest.mark.parametrize(("status", "path"), [("done", ""), ("failed", ""), ("done", "reports/train")])
def test_later_run_does_not_prevent_revert(patched: Path, pipetune: Shell, status: str, path: str) -> None:
    """B1: `--revert` used to report that there is nothing to change, and left the source patched."""
    assert pipetune("apply").code == 0
    run(replace(TUNED, patch=None, trials=(), status=status))
    done = pipetune(f"apply --check {path}")
    assert done.code == 0 and f"applied: {patched}" in done.out
    patched.write_text(f"# mine\n{patched.read_text()}")
    done = pipetune(f"apply --revert {path}")
    assert done.code == 0 and f"reverted: {patched}" in done.out
    assert patched.read_text() == f"# mine\n{BEFORE}"


def test_revert_needs_no_session(patched: Path, pipetune: Shell) -> None:
    assert pipetune("apply").code == 0
    for name in ("runs", "latest"):
        Path("reports/train", name).rename(name)
    assert (pipetune("apply --revert reports/train").code, patched.read_text()) == (0, BEFORE)


def test_apply_finds_the_place_in_an_edited_file(patched: Path, pipetune: Shell) -> None:
    patched.write_text(f"# mine\n{BEFORE}\n\ndef more(): ...\n")
    done = pipetune("apply")
    assert done.code == 0 and "edited after the analysis" in done.out
    assert patched.read_text() == f"# mine\n{AFTER}\n\ndef more(): ...\n"


def test_apply_shows_both_versions_of_a_conflict(patched: Path, pipetune: Shell) -> None:
    now = BEFORE.replace("map(decode)", "map(other)")
    patched.write_text(now)
    code, _, error = pipetune("apply")
    assert (code, patched.read_text()) == (1, now)
    assert f"pipetune: training() in {patched} changed after it was analyzed. Nothing was written.\n" in error
    assert "  analyzed, line 6:\n    return dataset.map(decode)\n" in error
    assert "  now, line 6:\n    return dataset.map(other)\n" in error
    assert pipetune("apply --check")[:2] == (1, f"changed: {patched}\n")


def test_apply_warns_of_another_machine_and_of_an_unverified_patch(patched: Path, pipetune: Shell) -> None:
    one = session_file.load("reports/train")
    assert one.patch is not None and apply.machine_warnings(one, one.patch) == []
    elsewhere = replace(one, machine=replace(MACHINE, cores_affinity=64))
    session_file.save(with_part(elsewhere, "patch", verified=None), "reports/train/session.json")
    done = pipetune("apply")
    assert done.code == 0 and "not verified by running" in done.err and "measured on 64 cores" in done.err


UNPATCHED = replace(TUNED, patch=None)
UNTUNED = with_main(replace(UNPATCHED, datasets=TUNED.datasets[:1]), plan=None, rejected=(), offered=())
NONE, UNDECIDED, ACCEPTED = (
    replace(UNTUNED, trials=(Trial(TUNED.trials[0].plan, outcome, "no gain"),))
    for outcome in (Outcome.REJECTED, Outcome.UNDECIDED, Outcome.ACCEPTED)
)
BUSY = with_main(NONE, "diagnosis", verdict=Verdict.NOT_INPUT_BOUND)
UNTRIED = replace(NONE, trials=())
NO_TRIALS = replace(TUNED.command, options=replace(TUNED.command.options, trials=False))
OPEN = Rejection("cache", "n1", "not tried", reason=RejectionReason.NO_TIME)


@pytest.mark.parametrize(
    ("value", "says", "code"),
    [
        (UNPATCHED, "the plan has no form in the source", 1),
        (replace(UNPATCHED, status="interrupted"), "the run did not finish", 1),
        (BUSY, "the input is not what holds training back, there is nothing to change", 0),
        (NONE, "no rewrite is faster, there is nothing to change", 0),
        (replace(NONE, advice=(Finding("", "", ""),)), "no rewrite that pipetune makes is faster; the advice", 0),
        (UNTRIED, "no rewrite can be applied", 0),
        (replace(UNTRIED, command=NO_TRIALS), "no rewrite was tried", 1),
        (UNDECIDED, "the time was over before it was decided", 1),
        (ACCEPTED, "a plan was faster in its trials, and was not", 1),
        (with_main(NONE, rejected=(OPEN,)), "the time was over before it was decided", 1),
    ],
)
def test_missing_patch_exits_0_only_if_nothing_can_be_improved(
    tmp_path: Path, pipetune: Shell, value: Session, says: str, code: int
) -> None:
    """B5: an undecided run used to be reported in the same way."""
    path = saved(tmp_path, value)
    done = pipetune("apply", path)
    assert done.code == code and f"This session holds no patch: {says}" in done.out
    assert pipetune("apply --check", path).code == code


def test_an_unproven_patch_is_applied_only_if_that_is_asked_for(unproven: Path, pipetune: Shell) -> None:
    code, said, _ = pipetune("apply reports/train")
    assert (code, unproven.read_text()) == (1, BEFORE)
    assert "This session holds no patch: a plan is probably faster, and that is not proven." in said
    assert "1.40x as fast (1.10 to 1.80 in 80 of 100 cases): pipetune apply --unproven reports/train" in said
    done = pipetune("apply --unproven --diff")
    assert (done.code, unproven.read_text()) == (0, BEFORE) and done.out.startswith("--- a/train.py\n")
    done = pipetune("apply --unproven")
    assert (done.code, unproven.read_text()) == (0, AFTER)
    assert "pipetune: The patch is not proven to be faster. The time was over." in done.err
    assert (pipetune("apply --revert").code, unproven.read_text()) == (0, BEFORE)


def test_an_unproven_patch_beside_one_for_validation_is_said_to_be_unproven(unproven: Path, pipetune: Shell) -> None:
    one = session_file.load("reports/train")
    candidate = one.datasets[0].candidate
    assert candidate is not None and candidate.patch is not None
    both = replace(one, patch=replace(candidate.patch, verification="Of validation."))
    session_file.save(with_main(both, candidate=replace(candidate, patch=None)), "reports/train/session.json")
    assert pipetune("apply --unproven --diff").code == 0
    session_file.save(both, "reports/train/session.json")
    assert "not proven to be faster" in pipetune("apply --unproven").err


def test_a_session_with_an_unproven_patch_says_so_everywhere(unproven: Path, pipetune: Shell) -> None:
    kept = session_file.load("reports/train")
    assert outcome_of(kept) is SessionOutcome.LIKELY
    summary = json.loads(Path("reports/train/session.json").read_text())["summary"]
    assert summary["outcome"] == "likely" and summary["datasets"][0]["candidate"]["probability"] == 0.9
    done = pipetune("report reports/train")
    assert done.code == 0 and done.out.startswith("Likely 1.40x not proven")
    assert "Machine, time and command" in done.out, "a report is everything, not the answer alone"
    assert "pipetune apply --unproven" in done.out
    hidden = redact(kept)
    assert hidden.candidate is not None and hidden.candidate.patch is not None
    assert hidden.candidate.patch.diff == "" and "train.py" not in json.dumps(encode(hidden))


def test_resumed_request_is_that_of_the_session(
    unproven: Path, pipetune: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AnalysisRequest] = []

    def analyze(request: AnalysisRequest, *, screen: object) -> AnalysisResult:
        asked.append(request)
        return AnalysisResult(TUNED, 0, request.results)

    monkeypatch.setattr("pipetune.supervisor.analysis.analyze", analyze)
    one = session_file.load("reports/train")
    options = Settings(seed=7, budget_seconds=40.0)
    session_file.save(with_part(one, "command", options=options), "reports/train/session.json")
    for more in ("", "--budget 90 --time-limit 5"):
        assert pipetune(f"analyze --resume reports/train {more} --quiet") == (0, "", "")
    first, second = asked
    assert first.target.script == str(unproven) and first.settings == options
    assert (second.settings.budget_seconds, second.limits.phases["capture"]) == (90.0, 5.0)
    assert first.resumptions == 1 and Path(first.resumed).name == "session.json"
    assert first.results.root == Path("reports/train").resolve()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train.py", "--resume takes no script"),
        ("--allow reorder", "--resume goes on with the options of the session"),
        ("--out elsewhere", "--resume goes on with the options of the session"),
        ("--workers 1", "only --budget, --time-limit, --verbose, --quiet and --json can be given"),
    ],
)
def test_resume_takes_nothing_that_the_session_says(unproven: Path, pipetune: Shell, words: str, says: str) -> None:
    done = pipetune(f"analyze --resume reports/train {words}")
    assert done.code == 2 and says in done.err


def test_resume_needs_an_unproven_plan(patched: Path, pipetune: Shell) -> None:
    done = pipetune("analyze --resume reports/train")
    assert done.code == 2 and "no unproven plan to go on with" in done.err


def test_earlier_run_with_a_patch_is_named(patched: Path, pipetune: Shell) -> None:
    (earlier,) = Path("reports/train/runs").glob("2*")
    run(UNPATCHED)
    done = pipetune("apply")
    assert done.code == 1 and f"Another run holds a patch: pipetune apply {earlier}\n" in done.out
    assert (pipetune("apply", earlier).code, patched.read_text()) == (0, AFTER)
    done = pipetune("apply")
    assert done.code == 1
    assert "has the patch of an earlier session: pipetune apply --revert reports/train\n" in done.out


@pytest.mark.parametrize("line", ["apply", "apply --revert"])
def test_apply_without_a_session_names_the_command_that_creates_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipetune: Shell, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = pipetune(line)
    assert done.code == 2 and "pipetune analyze" in done.err


def test_apply_uses_the_newest_completed_session(patched: Path) -> None:
    os.utime("reports/train/session.json", (1, 1))
    session_file.save(replace(TUNED, status="failed"), "reports/failed/session.json")
    assert apply.newest_session(Path("reports")) == Path("reports/train/session.json")
    session_file.save(UNPATCHED, "reports/newer/session.json")
    assert apply.newest_session(Path("reports")) == Path("reports/newer/session.json")


def test_apply_of_a_confidential_session_names_the_patch_file(tmp_path: Path, pipetune: Shell) -> None:
    folder = tmp_path / "my runs"
    done = pipetune("apply", saved(folder, with_part(TUNED, "command", confidential=True)))
    assert done.code == 2 and f"run: patch -p1 < '{folder}/one/tuned.patch'\n" in done.err
    nothing = saved(folder, redact(NONE))
    for words in ("apply", "apply --check"):
        code, said, _ = pipetune(words, nothing)
        assert code == 0 and "no rewrite is faster, there is nothing to change" in said


# -- doctor


def test_doctor_warns_about_what_disturbs_measurements() -> None:
    assert list(doctor.machine_warnings(MACHINE)) == []
    busy = replace(MACHINE, cores_granted=1.0, quota_cores=1.0, load_average=2.5, memory_available_bytes=1 << 20)
    quota, load, memory = doctor.machine_warnings(busy)
    assert "TensorFlow detects 2 cores, but only 1 are available" in quota
    assert "load 2.5" in load and "memory" in memory
