"""The program `golden`, which runs reference cases: its output and exit status."""

import json
import pathlib
import subprocess

import train_runs

CASE = train_runs.ROOT / "tests/golden/cases/switchhead/rope_vo.json"


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
    strict = json.loads(CASE.read_text())
    strict["tolerance"] = dict.fromkeys(strict["tolerance"], 1e-30)
    (tmp_path / CASE.name).write_text(json.dumps(strict))
    data = CASE.with_suffix(".safetensors")
    (tmp_path / data.name).symlink_to(data)
    assert golden(tmp_path, status=1).stdout.splitlines()[-1] == "0 passed, 1 failed"


def test_a_user_error_is_status_2(tmp_path):
    assert str(tmp_path) in golden(tmp_path, status=2).stderr
    assert "PATH" in golden(status=2).stderr
    assert "--impl" in golden(CASE, "--impl", "f", status=2).stderr
