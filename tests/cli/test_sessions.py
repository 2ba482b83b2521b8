"""Commands that read sessions: report, compare, check, apply, doctor."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipetune.cli import apply, doctor
from pipetune.cli.main import main
from pipetune.core import session_file
from pipetune.core.codec import encode
from pipetune.core.profile import Finding, Verdict
from pipetune.core.redaction import redact
from pipetune.core.results import Outcome, Trial
from pipetune.core.session import Rejection, RejectionReason, Session, SessionOutcome, outcome_of
from pipetune.core.settings import Settings
from pipetune.supervisor.request import AnalysisRequest, AnalysisResult
from pipetune.supervisor.results_folder import Results
from tests.cli.results import AFTER, BEFORE, run, saved
from tests.core.sessions import MACHINE, WINDOW, session


def text(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


# -- report


def test_report_prints_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", saved(tmp_path, session())]) == 0
    shown = text(capsys)
    assert shown.startswith("1.30x faster training") and "Machine, time and command" in shown


def test_places_of_the_report_open_the_editor_that_is_asked_for(tmp_path: Path) -> None:
    found = saved(tmp_path, session())
    assert main(["report", found, "--format", "html", "--editor", "idea"]) == 0
    assert "idea://open?file=" in (Path(found).parent / "report.html").read_text()


def test_report_prints_or_writes_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["report", saved(tmp_path, session()), "--format", "markdown"]
    assert main(words) == 0
    printed = text(capsys)
    assert printed.startswith("#") and len(printed) > 100
    assert main([*words, "--out", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_text().strip() == printed.strip()


def test_report_open_opens_the_written_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_browser(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_browser)
    assert main(["report", str(Path(saved(tmp_path, session())).parent), "--open"]) == 0
    assert opened == [(tmp_path / "one" / "report.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    assert main(["report", str(tmp_path / "one"), "--open"]) == 1
    assert "Open " in capsys.readouterr().err
    assert main(["report", str(tmp_path / "one"), "--open", "--format", "csv"]) == 2


# -- check


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["check", *words])
    return code, text(capsys)


@pytest.mark.parametrize(
    ("wait", "limit", "code", "says"),
    [
        (0.30, "5%", 1, "failed        input wait"),
        (0.05, "5%", 0, "undetermined  input wait"),
        (0.30, "40%", 0, "passed        input wait"),
    ],
)
def test_check_fails_only_what_the_interval_proves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wait: float, limit: str, code: int, says: str
) -> None:
    answer = check(capsys, saved(tmp_path, session(wait=wait, spread=0.02)), "--max-input-wait", limit)
    assert answer[0] == code
    assert says in answer[1]


@pytest.mark.parametrize(("wanted", "code"), [("1.1", 0), ("1.5", 1), ("1.25", 0)])
def test_check_of_the_speedup(tmp_path: Path, capsys: pytest.CaptureFixture[str], wanted: str, code: int) -> None:
    found, printed = check(capsys, saved(tmp_path, session(speedup=1.3)), "--min-speedup", wanted)
    assert found == code and "input wait" not in printed


def test_unmeasured_session_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = saved(tmp_path, replace(session(), datasets=(), training=None))
    assert check(capsys, empty, "--max-input-wait", "5%")[0] == 1
    assert check(capsys, empty, "--min-speedup", "1.1")[0] == 1


def test_incomplete_session_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, replace(session(wait=0.01, spread=0.01), status="interrupted"))
    code, printed = check(capsys, path)
    assert code == 1 and "interrupted" in printed and "at most 5.0 %" in printed, "which is the default"


def against(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], now: Session, before: Session, *words: str
) -> tuple[int, str]:
    return check(capsys, saved(tmp_path, now), "--baseline", saved(tmp_path, before, "before"), *words)


def test_more_input_wait_than_the_baseline_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now, before = session(wait=0.3, spread=0.02), session(wait=0.1, spread=0.02)
    assert "failed        input wait against baseline: +20.0 points" in against(tmp_path, capsys, now, before)[1]
    assert against(tmp_path, capsys, now, before)[0] == 1
    assert against(tmp_path, capsys, now, before, "--tolerance", "30%")[0] == 0
    assert against(tmp_path, capsys, before, now)[0] == 0  # an improvement is not a failure


def test_new_room_for_improvement_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now, before = session(speedup=2.0, spread=0.05), session(speedup=1.3, spread=0.05)
    code, printed = against(tmp_path, capsys, now, before)
    assert code == 1 and "failed        room for improvement: 2.00x now, 1.30x in the baseline" in printed
    nothing = replace(before, training=None)
    assert against(tmp_path, capsys, now, nothing)[0] == 1
    assert against(tmp_path, capsys, nothing, now)[0] == 0


def test_new_warning_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = session(spread=0.02)
    new = replace(now, findings=(*now.findings, Finding("cached-augmentation", "Frozen.")))
    code, printed = against(tmp_path, capsys, new, now)
    assert code == 1 and "failed        warnings: cached-augmentation: Frozen." in printed


def test_baseline_of_another_machine_is_undetermined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = replace(session(wait=0.1, spread=0.02), machine=replace(MACHINE, cores_granted=8.0))
    code, printed = against(tmp_path, capsys, session(wait=0.3, spread=0.02), elsewhere)
    assert code == 0 and "undetermined  input wait against baseline" in printed
    assert "cores: 2.0 instead of 8.0" in printed


def test_baseline_of_another_pipeline_is_refused_without_any(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """B21: it used to pass silently."""
    now = session(spread=0.02)
    dataset = now.datasets[0]
    shorter = replace(dataset, pipeline=replace(dataset.pipeline, nodes=dataset.pipeline.nodes[:3]), tuned=None)
    other = replace(now, datasets=(shorter,))
    assert against(tmp_path, capsys, now, other)[0] == 2
    main(["check", saved(tmp_path, now), "--baseline", saved(tmp_path, other, "before")])
    error = capsys.readouterr().err
    assert "pipetune: The baseline belongs to a different pipeline: operator 3 here, " in error and "--any" in error
    assert against(tmp_path, capsys, now, other, "--any")[0] == 0
    before = replace(now, datasets=(replace(dataset, tuned=shorter.pipeline),))
    assert against(tmp_path, capsys, other, before)[0] == 0, "the patch of the baseline is in the script now"


def test_folder_whose_last_run_failed_does_not_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fine = session(wait=0.01, spread=0.01)
    for value in (fine, replace(fine, status="failed")):
        results = Results(tmp_path / "out").with_new_run()
        results.write_all(value)
    code, printed = check(capsys, str(tmp_path / "out"))
    assert code == 1 and f"a later run did not complete: {results.folder}" in printed
    assert check(capsys, str((tmp_path / "out/latest").resolve()))[0] == 0, "named, it is what was asked for"


# -- compare


def compare(tmp_path: Path, capsys: pytest.CaptureFixture[str], one: Session, two: Session) -> str:
    assert main(["compare", saved(tmp_path, one), saved(tmp_path, two, "two")]) == 0
    return text(capsys)


def test_compare_marks_changes_that_the_interval_proves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = session(speedup=1.3, wait=0.4, spread=0.04), session(speedup=2.0, wait=0.1, spread=0.04)
    printed = compare(tmp_path, capsys, one, two)
    rows = {line[:29].strip(): line for line in printed.splitlines()}
    assert rows["training speedup"].endswith("better") and "1.54x (1.48 to 1.60)" in rows["training speedup"]
    assert rows["input wait"].endswith("-30 (-33 to -27) points better")
    assert rows["training step, current"].endswith("1.00x")
    assert "better" not in rows["input speedup"] and "worse" not in rows["input speedup"]
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "training speedup" in compare(tmp_path, capsys, two, one)
    assert "worse" in compare(tmp_path, capsys, two, one)


def test_compare_does_not_mark_noise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = compare(tmp_path, capsys, session(speedup=1.3), session(speedup=1.35))
    assert "better" not in printed and "worse" not in printed


def test_compare_lists_added_and_removed_rewrites_and_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = session()
    (dataset, other) = one.datasets
    assert dataset.plan is not None
    smaller = replace(dataset, plan=replace(dataset.plan, rewrites=(WINDOW,)))
    two = replace(one, datasets=(smaller, other), findings=())
    printed = compare(tmp_path, capsys, one, two)
    assert "  - parallel-map (map, line 5): Run two calls at a time." in printed
    assert "  - validation-leak: " in printed
    assert "prefetch" not in printed


def test_compare_cautions_about_other_machines_and_pipelines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = session()
    dataset = one.datasets[0]
    shorter = replace(dataset.pipeline, nodes=dataset.pipeline.nodes[:3])
    two = replace(one, datasets=(replace(dataset, pipeline=shorter),), machine=replace(MACHINE, device="gpu"))
    printed = compare(tmp_path, capsys, one, two)
    assert "Caution: measured on a different machine (device: gpu instead of cpu)." in printed
    assert "Caution: the pipelines differ." in printed
    assert "Caution" not in compare(tmp_path, capsys, one, one)


# -- apply


def test_apply_check_and_revert(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "--check"]) == 1
    assert text(capsys) == f"not applied: {patched}\n"
    assert main(["apply"]) == 0
    assert patched.read_text() == AFTER
    shown = capsys.readouterr()
    assert shown.out == f"patched: {patched}\n`pipetune apply --revert` reverts it.\n"
    assert shown.err == "pipetune: reports/train (train.py, 2026-03-01T14:15:00+00:00)\n", "which was taken"
    for words in (["reports/train"], ["reports/train/session.json"], ["reports/train/latest"]):
        assert main(["apply", "--check", *words]) == 0
    assert text(capsys) == f"applied: {patched}\n" * 3
    assert main(["apply", "reports/train/session.json"]) == 0
    assert "The patch is already applied." in text(capsys)
    assert main(["apply", "--revert"]) == 0
    assert patched.read_text() == BEFORE
    assert main(["apply", "--revert"]) == 1
    assert "not applied" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "words"), [("done", []), ("failed", []), ("done", ["reports/train"])])
def test_later_run_does_not_prevent_revert(
    patched: Path, capsys: pytest.CaptureFixture[str], status: str, words: list[str]
) -> None:
    """B1: `--revert` used to report that there is nothing to change, and left the source patched."""
    assert main(["apply"]) == 0
    run(replace(session(), patch=None, trials=(), status=status))
    assert main(["apply", "--check", *words]) == 0
    assert f"applied: {patched}" in text(capsys)
    patched.write_text(f"# mine\n{patched.read_text()}")
    assert main(["apply", "--revert", *words]) == 0
    assert f"reverted: {patched}" in text(capsys)
    assert patched.read_text() == f"# mine\n{BEFORE}"


def test_revert_needs_no_session(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply"]) == 0
    for name in ("runs", "latest"):
        Path("reports/train", name).rename(name)
    assert main(["apply", "--revert", "reports/train"]) == 0
    assert patched.read_text() == BEFORE


def test_apply_diff_shows_the_patch_and_changes_nothing(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", "--diff"]) == 0
    assert text(capsys).startswith("--- a/train.py\n")
    assert patched.read_text() == BEFORE


def test_apply_finds_the_place_in_an_edited_file(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    patched.write_text(f"# mine\n{BEFORE}\n\ndef more(): ...\n")
    assert main(["apply"]) == 0
    assert patched.read_text() == f"# mine\n{AFTER}\n\ndef more(): ...\n"
    assert "edited after the analysis" in text(capsys)


def test_apply_shows_both_versions_of_a_conflict(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = BEFORE.replace("map(decode)", "map(other)")
    patched.write_text(now)
    assert main(["apply"]) == 1
    error = capsys.readouterr().err
    assert f"pipetune: training() in {patched} changed after it was analyzed. Nothing was written.\n" in error
    assert "  analyzed, line 6:\n    return dataset.map(decode)\n" in error
    assert "  now, line 6:\n    return dataset.map(other)\n" in error
    assert patched.read_text() == now
    assert main(["apply", "--check"]) == 1
    assert text(capsys) == f"changed: {patched}\n"


def test_apply_warns_of_another_machine_and_of_an_unverified_patch(
    patched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = session_file.load("reports/train")
    assert one.patch is not None
    assert apply.machine_warnings(one) == []
    elsewhere = replace(one, machine=replace(MACHINE, cores_affinity=64), patch=replace(one.patch, verified=None))
    session_file.save(elsewhere, "reports/train/session.json")
    assert main(["apply"]) == 0
    error = capsys.readouterr().err
    assert "not verified by running" in error and "measured on 64 cores" in error


@pytest.mark.parametrize(
    ("changes", "says", "code"),
    [
        ({}, "the plan has no form in the source", 1),
        ({"status": "interrupted"}, "the run did not finish", 1),
        ({"datasets": "busy"}, "the input is not what holds training back, there is nothing to change", 0),
        ({"datasets": "none"}, "no rewrite is faster, there is nothing to change", 0),
        (
            {"datasets": "none", "advice": (Finding("x", "x", "x"),)},
            "no rewrite that pipetune makes is faster; the advice",
            0,
        ),
        ({"datasets": "none", "trials": ()}, "no rewrite can be applied", 0),
        ({"datasets": "none", "trials": (), "command": "--no-trials"}, "no rewrite was tried", 1),
        ({"datasets": "none", "trials": "undecided"}, "the time was over before it was decided", 1),
        ({"datasets": "none", "trials": "accepted"}, "a plan was faster in its trials, and was not", 1),
        ({"datasets": "open"}, "the time was over before it was decided", 1),
    ],
)
def test_missing_patch_exits_0_only_if_nothing_can_be_improved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], says: str, code: int
) -> None:
    """B5: an undecided run used to be reported in the same way."""
    one = session()
    first = replace(one.datasets[0], plan=None, rejected=(), offered=())
    assert first.diagnosis is not None
    datasets = {
        "busy": replace(first, diagnosis=replace(first.diagnosis, verdict=Verdict.NOT_INPUT_BOUND)),
        "none": first,
        "open": replace(first, rejected=(Rejection("cache", "n1", "not tried", reason=RejectionReason.NO_TIME),)),
    }
    tried = Trial(one.trials[0].plan, Outcome.REJECTED, "no gain")
    trials = {outcome.value: replace(tried, outcome=outcome) for outcome in (Outcome.UNDECIDED, Outcome.ACCEPTED)}
    given = dict(changes)
    if "datasets" in given:
        given = {"trials": (tried,)} | given | {"datasets": (datasets[str(given["datasets"])],)}
    if "command" in given:
        given["command"] = replace(one.command, options=replace(one.command.options, trials=False))
    if isinstance(given.get("trials"), str):
        given["trials"] = (trials[str(given["trials"])],)
    path = saved(tmp_path, replace(one, patch=None, **given))  # type: ignore[arg-type]
    assert main(["apply", path]) == code
    assert f"This session holds no patch: {says}" in text(capsys)
    assert main(["apply", "--check", path]) == code


def test_an_unproven_patch_is_applied_only_if_that_is_asked_for(
    unproven: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["apply", "reports/train"]) == 1
    said = text(capsys)
    assert "This session holds no patch: a plan is probably faster, and that is not proven." in said
    assert "1.40x as fast (1.10 to 1.80 in 80 of 100 cases): pipetune apply --unproven reports/train" in said
    assert unproven.read_text() == BEFORE
    assert main(["apply", "--unproven", "--diff"]) == 0
    assert "+++" in text(capsys)
    assert main(["apply", "--unproven"]) == 0
    assert "pipetune: The patch is not proven to be faster. The time was over." in capsys.readouterr().err
    assert unproven.read_text() == AFTER
    assert main(["apply", "--revert"]) == 0
    assert unproven.read_text() == BEFORE


def test_a_session_with_an_unproven_patch_says_so_everywhere(
    unproven: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = session_file.load("reports/train")
    assert outcome_of(kept) is SessionOutcome.LIKELY
    summary = json.loads(Path("reports/train/session.json").read_text())["summary"]
    assert summary["outcome"] == "likely" and summary["datasets"][0]["candidate"]["probability"] == 0.9
    assert main(["report", "reports/train"]) == 0
    shown = text(capsys)
    assert shown.startswith("Likely 1.40x not proven")
    assert "pipetune apply --unproven" in shown
    hidden = redact(kept)
    assert hidden.candidate is not None and hidden.candidate.patch is not None
    assert hidden.candidate.patch.diff == "" and "train.py" not in json.dumps(encode(hidden))


def test_resumed_request_is_that_of_the_session(
    unproven: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[AnalysisRequest] = []

    def analyze(request: AnalysisRequest, *, screen: object) -> AnalysisResult:
        asked.append(request)
        return AnalysisResult(session(), 0, request.results)

    monkeypatch.setattr("pipetune.supervisor.analysis.analyze", analyze)
    one = session_file.load("reports/train")
    command = replace(one.command, options=Settings(seed=7, budget_seconds=40.0))
    session_file.save(replace(one, command=command), "reports/train/session.json")
    assert main(["analyze", "--resume", "reports/train", "--quiet"]) == 0
    assert main(["analyze", "--resume", "reports/train", "--budget", "90", "--quiet"]) == 0
    assert tuple(capsys.readouterr()) == ("", "")
    first, second = asked
    assert first.target.script == str(unproven) and first.settings == Settings(seed=7, budget_seconds=40.0)
    assert second.settings.budget_seconds == 90.0
    assert first.resumptions == 1 and Path(first.resumed).name == "session.json"
    assert first.results.root == Path("reports/train").resolve()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.py"], "--resume takes no script"),
        (["--allow", "reorder"], "--resume goes on with the options of the session"),
        (["--out", "elsewhere"], "--resume goes on with the options of the session"),
    ],
)
def test_resume_takes_nothing_that_the_session_says(
    unproven: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert main(["analyze", "--resume", "reports/train", *words]) == 2
    assert says in capsys.readouterr().err


def test_resume_needs_an_unproven_plan(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "--resume", "reports/train"]) == 2
    assert "no unproven plan to go on with" in capsys.readouterr().err


def test_earlier_run_with_a_patch_is_named(patched: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (earlier,) = Path("reports/train/runs").glob("2*")
    run(replace(session(), patch=None))
    assert main(["apply"]) == 1
    assert f"An earlier run holds a patch: pipetune apply {earlier}\n" in text(capsys)
    assert main(["apply", str(earlier)]) == 0
    assert patched.read_text() == AFTER
    assert main(["apply"]) == 1
    assert "has the patch of an earlier session: pipetune apply --revert reports/train\n" in text(capsys)


def test_apply_without_a_session_names_the_command_that_creates_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["apply"], ["apply", "--revert"]):
        assert main(words) == 2
        assert "pipetune analyze" in capsys.readouterr().err


def test_apply_uses_the_newest_completed_session(patched: Path) -> None:
    os.utime("reports/train/session.json", (1, 1))
    session_file.save(replace(session(), status="failed"), "reports/failed/session.json")
    assert apply.newest_session(Path("reports")) == Path("reports/train/session.json")
    session_file.save(replace(session(), patch=None), "reports/newer/session.json")
    assert apply.newest_session(Path("reports")) == Path("reports/newer/session.json")


def test_apply_of_a_confidential_session_names_the_patch_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = session()
    path = saved(tmp_path, replace(one, command=replace(one.command, confidential=True)))
    assert main(["apply", path]) == 2
    assert "tuned.patch" in capsys.readouterr().err


# -- doctor


def test_doctor_warns_about_what_disturbs_measurements() -> None:
    assert list(doctor.machine_warnings(MACHINE)) == []
    busy = replace(MACHINE, cores_granted=1.0, quota_cores=1.0, load_average=2.5, memory_available_bytes=1 << 20)
    quota, load, memory = doctor.machine_warnings(busy)
    assert "TensorFlow detects 2 cores, but only 1 are available" in quota
    assert "load 2.5" in load and "memory" in memory
