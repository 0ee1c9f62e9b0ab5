"""Tests runs whose length is given as a time, and the demo, whose length depends on the machine's speed."""

import json
import math
import subprocess
import tomllib

import train_runs


def config_of(run):
    return tomllib.loads((run / "config.toml").read_text())["train"]


def test_a_time_sets_the_number_of_steps(headroom, tiny, tmp_path):
    by_time = headroom.json("train", tiny, "--out", tmp_path / "time", "--set", "train.seconds=0.5", "--set", "train.evaluate_every=0")
    train = config_of(tmp_path / "time")
    assert by_time["steps"] == train["steps"] > 0
    assert train["warmup_steps"] == math.floor(5 / 60 * train["steps"] + 0.5)  # the config's fraction
    assert "# train.seconds" in next(line for line in (tmp_path / "time" / "config.toml").read_text().splitlines()
                                     if line.startswith("steps = "))
    # The measurement leaves nothing behind: the same steps without a time give the same parameters.
    sets = ["--set", f"train.steps={train['steps']}", "--set", f"train.warmup_steps={train['warmup_steps']}"]
    by_steps = headroom.json("train", tiny, "--out", tmp_path / "steps", *sets, "--set", "train.evaluate_every=0")
    assert by_steps["parameters_sha256"] == by_time["parameters_sha256"]


def test_a_resumed_run_keeps_the_number_of_steps(headroom, tiny, tmp_path):
    run = ["train", tiny, "--out", tmp_path / "run", "--set", "train.seconds=0.5"]
    first = headroom.json(*run)
    assert headroom.json(*run, "--resume")["parameters_sha256"] == first["parameters_sha256"]
    assert config_of(tmp_path / "run")["steps"] == first["steps"]
    line = headroom.refusal(*run[:-1], "train.seconds=5", "--resume")
    assert "train.seconds: must stay 0.5" in line and "got 5" in line


def test_a_time_below_a_step_is_refused(headroom, tiny, tmp_path):
    assert "train.seconds" in headroom.refusal("train", tiny, "--out", tmp_path / "run", "--set", "train.seconds=1e-6")


def test_a_comparison_by_time_is_read_again(headroom, tiny, tmp_path):
    command = ["compare", tiny, "--seeds", 2, "--out", tmp_path / "pair", "--set", "train.seconds=0.5"]
    first, again = headroom.json(*command), headroom.json(*command)
    assert [seed["parameters_sha256"] for seed in again["runs"][0]["seeds"]] == [
        seed["parameters_sha256"] for seed in first["runs"][0]["seeds"]]
    assert not any("not finished" in note for note in again["notes"])


def test_the_demo_compares_texts_and_lookups(headroom, tmp_path, counts_as_built):
    # With a trained tokenizer and the whole corpus, the test would take most of a minute.
    short = ["train.steps=2", "train.warmup_steps=0", "train.evaluate_tokens=4096", "tokenizer.kind=bytes",
             "tokenizer.vocabulary_size=256", "model.vocabulary_size=256"]
    options = ["--out", tmp_path / "demo", "--seeds", "1", "--threads", "2", "--quiet", "--json"]
    done = subprocess.run([train_runs.ROOT / "run.sh", "demo", *options,
                           *(word for one in short for word in ("--set", one))], text=True,
                          capture_output=True, env={**headroom.environment, **counts_as_built})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [run["name"] for run in result["runs"]] == ["dense_h8", "dense_h2", "switchhead_h2"]
    (lookups,) = result["further"]
    assert {run["name"]: len(run["seeds"]) for run in lookups["runs"]} == {
        "lookup_dense_h8": 3, "lookup_dense_h4": 3, "lookup_dense_h2": 3, "lookup_switchhead_h4": 3}
    assert lookups["runs"][-1]["attention_macs"] < 0.7 * lookups["runs"][0]["attention_macs"]
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "lookup_switchhead_h4" in page
    again = json.loads(headroom("report", tmp_path / "demo", "--json").stdout)
    assert [run["name"] for run in again["further"][0]["runs"]] == [run["name"] for run in lookups["runs"]]
