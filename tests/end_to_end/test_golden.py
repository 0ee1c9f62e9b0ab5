"""Tests the output and the exit status of the program `golden`, which runs reference cases."""

import json
import pathlib
import subprocess

import safetensors
import train_runs

CASE = train_runs.ROOT / "tests/golden/cases/switchhead/rope_vo.safetensors"


def golden(*arguments, status=0):
    program = pathlib.Path(train_runs.program()).parent.parent / "golden"
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=train_runs.PATIENCE)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_a_case_within_its_limit():
    document = json.loads(golden(CASE, "--json").stdout)
    assert (document["passed"], document["failed"]) == (1, 0)
    assert {"case", "family", "implementation", "passed", "worst_tensor", "error", "limit"} <= document["cases"][0].keys()
    lines = golden(CASE, "--impl", "reference", "--dtype", "float64").stdout.splitlines()
    assert lines[0].startswith("pass switchhead/rope_vo (reference): ") and lines[-1] == "1 passed, 0 failed"


def test_a_case_beyond_its_limit_is_status_1(tmp_path):
    with safetensors.safe_open(CASE, "pt") as case:
        strict = json.loads(case.metadata()["case"])
    strict["tolerance"] = dict.fromkeys(strict["tolerance"], 1e-30)
    (tmp_path / CASE.name).symlink_to(CASE)
    (tmp_path / CASE.name).with_suffix(".json").write_text(json.dumps(strict))
    assert golden(tmp_path, status=1).stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_a_user_error_is_status_2(tmp_path):
    assert str(tmp_path) in golden(tmp_path, status=2).stderr
    assert "PATH" in golden(status=2).stderr
    assert "--impl" in golden(CASE, "--impl", "f", status=2).stderr
