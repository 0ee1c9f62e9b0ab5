"""headroom advise: from a time budget to a config that trains."""

import json

import pytest

import test_synthetic
import train_runs

ASKED = ["--threads", 1, "--keep", "size,batch", "--set", "model.n_layers=1", "--set", "model.attention.projection=dense",
         "--set", "model.memory_length=0", "--set", "model.attention.position=rope"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("advise")
    train_runs.prepare(folder)
    return folder


def replace_measured_times(headroom, folder):
    """Writes fixed timings to folder/out, so that trials have the same length on every machine."""
    headroom("advise", folder / "tiny.toml", "--budget", "0.01s", "--out", folder / "out", *ASKED, status=2)
    file = folder / "out" / "advice.json"
    advice = json.loads(file.read_text())
    advice["request"]["budget_seconds"] = 90.0
    (key,) = advice["measured"]
    advice["measured"][key] = {"step_seconds": 0.005, "start_seconds": 0.02}
    file.write_text(json.dumps(advice))
    return key


def test_writes_a_config_that_trains_and_continues(headroom, folder):
    key = replace_measured_times(headroom, folder)
    asked = ["advise", folder / "tiny.toml", "--budget", "90s", "--out", folder / "out", *ASKED]
    first = headroom.json(*asked)
    assert list(json.loads((folder / "out" / "advice.json").read_text())["measured"]) == [key]
    assert {"config", "file", "runs", "sentences", "report"} <= first.keys()
    assert {run["stage"] for run in first["runs"]} == {"learning_rate"}
    assert all(run["round"] in (1, 2, 3) and run["bits_per_byte"] > 0 for run in first["runs"] if not run["diverged"])
    assert headroom.json(*asked) == first
    done = headroom(*asked)
    assert "Learning rate: " in done.stdout and "round 3" in done.stdout
    assert "<script" not in (folder / "out" / "report.html").read_text()

    trained = headroom.json("train", first["file"], "--out", folder / "run", "--set", "train.steps=3")
    assert trained["steps"] == 3
    line = headroom.refusal("train", folder / "tiny.toml", "--out", folder / "out")
    assert "holds advice" in line
    line = headroom.refusal("advise", folder / "tiny.toml", "--budget", "91s", "--out", folder / "out", *ASKED)
    assert "90" in line and "91" in line
    text = (folder / "train.txt").read_text()
    (folder / "train.txt").write_text(text[:len(text) // 2])
    assert "training data" in headroom.refusal(*asked, "--quiet")  # the pilot runs had another text
    (folder / "train.txt").write_text(text)


@pytest.mark.parametrize("task", ["lookup", "recall", "copying", "induction", "needles", "parity", "permutations"])
def test_every_synthetic_task_is_measured(headroom, tmp_path, task):
    """The refusal names a budget that is derived from the measured speed."""
    (tmp_path / "task.toml").write_text(test_synthetic.CONFIG)
    items = 0 if task in ("induction", "parity", "permutations") else 4
    line = headroom.refusal("advise", tmp_path / "task.toml", "--budget", "0.01s", "--out", tmp_path / "out", "--set",
                            f"data.synthetic={task}", "--set", f"data.synthetic_items={items}")
    assert "ask for about" in line
    assert len(json.loads((tmp_path / "out" / "advice.json").read_text())["measured"]) >= 1


@pytest.mark.parametrize("options, part", [
    (["--budget", "2 hours"], 'advise: --budget: '),
    (["--budget", "0s"], "advise: --budget: "),
    (["--budget", "0.01s"], "budget"),
    (["--budget", "1h", "--keep", "shape"], "--keep"),
    (["--budget", "1h", "--variants", "switchhaed"], "switchhaed"),
    (["--budget", "1h", "--set", 'data.train=["nowhere.txt"]'], "nowhere.txt"),
    (["--budget", "1h", "--set", "train.start_from=nowhere"], "train.start_from"),
    ([], "--budget"),
])
def test_user_errors_leave_no_files(headroom, folder, options, part):
    line = headroom("advise", folder / "tiny.toml", "--out", folder / "none", *ASKED, *options, "--quiet", status=2).stderr
    assert line.startswith("headroom: ") and line.count("\n") == 1
    assert part in line
    assert not (folder / "none" / "advised.toml").exists()
