"""Tests sweeps, and reports that are written again."""

import json
import signal
import subprocess

import train_runs


def test_a_sweep_puts_the_best_first_and_continues(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    asked = ["sweep", config, "--vary", "train.learning_rate=1e-5,3e-3", "--out", tmp_path / "out", "--set",
             "train.steps=8"]
    first = headroom.json(*asked)
    assert [run["values"] for run in first["runs"]] == [{"train.learning_rate": 3e-3}, {"train.learning_rate": 1e-5}]
    text = headroom(*asked).stdout
    assert text.splitlines()[2].startswith("0.003") and "best validation perplexity of 2 combinations" in text
    more = headroom.json(*asked[:3], "train.learning_rate=1e-5,3e-3,1e-3", *asked[4:])
    assert len(more["runs"]) == 3
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Effect of each key" in page
    # A smaller sweep does not overwrite this one.
    assert "train.learning_rate" in headroom.refusal(*asked)
    assert (tmp_path / "out" / "report.html").read_text() == page


def test_a_sweep_varies_an_entry_of_the_layers(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    key = "model.layers.0.attention.window"
    made = headroom.json("sweep", config, "--vary", f"{key}=3,5", "--out", tmp_path / "out", "--set",
                         "model.layers=[{attention={window=2}}, {}]", "--set", "train.steps=4")
    assert sorted(run["values"][key] for run in made["runs"]) == [3, 5]
    for window in (3, 5):
        assert f"window = {window}" in next((tmp_path / "out").rglob(f"*window*{window}*/**/config.toml")).read_text()


def test_report_of_comparison_and_run(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    dense = tmp_path / "dense.toml"
    dense.write_text(config.read_text().replace('"experts"', '"dense"'))
    out = tmp_path / "out"
    made = headroom.json("compare", dense, config, "--out", out, "--seeds", 2, "--sample-tokens", 4, "--set",
                         "train.steps=8", "--set", "train.evaluate_every=4")
    page = (out / "report.html").read_text()
    (out / "report.html").unlink()
    again = headroom.json("report", out)
    assert again["report"] == str(out / "report.html") and again["runs"] == made["runs"]
    lines = (out / "report.html").read_text().splitlines()
    assert [a for a, b in zip(lines, page.splitlines()) if a != b and "This page" not in a] == []
    assert "Use of experts" in page and "Quality against MACs of a training step" in page

    assert str(out) in headroom.refusal("sweep", config, "--vary", "train.steps=8", "--out", out)
    assert (out / "report.html").read_text().splitlines() == lines

    run = headroom.json("report", out / "dense")
    assert run["report"] == str(out / "dense" / "report.html") and len(run["runs"]) == 1
    page = (out / "dense" / "report.html").read_text()
    assert "Training of dense" in page and "Sample text" in page
    assert str(out / "dense" / "checkpoints") in headroom.refusal("report", out / "dense" / "checkpoints")
    assert "nowhere" in headroom.refusal("report", tmp_path / "nowhere")


def test_existing_runs_are_listed_and_compared(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    runs = tmp_path / "runs"
    for name, heads in ("one", 1), ("two", 2):
        headroom("train", config, "--out", runs / name, "--set", "train.steps=8", "--set", f"model.attention.n_heads={heads}")
    listed = headroom.json("report", runs)["runs"]
    assert [run["name"] for run in listed] == ["one", "two"]
    assert all(run["steps"] == 8 and run["perplexity"] > 1 and "headroom train" in run["command"] for run in listed)
    assert "one" in headroom("report", runs).stdout

    compared = headroom.json("report", runs / "one", runs / "two")
    assert compared["report"] == str(runs / "overlay.html")
    assert [run["perplexity"] for run in compared["runs"]] == [run["perplexity"] for run in listed]
    assert "headroom report" in (runs / "overlay.html").read_text()
    twice = headroom("report", runs / "one", runs / "one", "--json")
    assert len(json.loads(twice.stdout)["runs"]) == 1 and "named twice" in twice.stderr
    assert headroom.json("report", runs, "--page", runs / "all.html")["runs"] == compared["runs"]
    (tmp_path / "mine.html").write_text("my own page")
    assert "mine.html" in headroom.refusal("report", runs / "one", runs / "two", "--page", tmp_path / "mine.html")
    headroom("train", config, "--out", runs / "other", "--set", "train.steps=8", "--set",
             f'data.validation=["{tmp_path}/train.txt"]')
    line = headroom.refusal("report", runs / "one", runs / "other")
    assert "validation data" in line and "other" in line
    assert str(runs / "one") in headroom.refusal("generate", runs, "--prompt", "a")


def test_report_watches_a_run(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    process = train_runs.start(config, out, "--set", "train.steps=100000", "--set", "train.schedule=constant")
    train_runs.wait_until(lambda: (out / "metrics.jsonl").exists() and len(train_runs.metrics(out)) > 2, process)
    page = out / "report.html"
    watching = subprocess.Popen([train_runs.program(), "report", "--watch", str(out), "--json"], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    train_runs.wait_until(lambda: page.exists() and '"refresh":5' in page.read_text(), watching)
    first = page.read_text()
    train_runs.wait_until(lambda: page.read_text() != first, watching)
    assert " of 100000 steps" in page.read_text() and "Gradient norm" in page.read_text()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=train_runs.PATIENCE)
    stdout, _ = watching.communicate(timeout=train_runs.PATIENCE)
    assert watching.returncode == 0 and json.loads(stdout)["report"] == str(page)
    assert '"refresh":0' in page.read_text(), "training has ended"
    assert json.loads(stdout)["runs"][0]["peak_memory_bytes"] > 1 << 20

    done = headroom("report", "--watch", out)
    assert done.stderr
