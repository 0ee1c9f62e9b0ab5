"""Comparisons over several seeds and tuned values, killed and resumed."""

import json
import re
import shutil
import signal
import statistics
import subprocess
import time

import pytest

import train_runs


@pytest.fixture
def configs(tmp_path):
    """Returns two configs that differ in their projection."""
    experts = train_runs.prepare(tmp_path)
    dense = tmp_path / "dense.toml"
    dense.write_text(experts.read_text().replace('"experts"', '"dense"'))
    return dense, experts


def arguments(configs, out, *more):
    return ["compare", *configs, "--out", out, "--sample-tokens", 4, "--set", "train.steps=8", *more]


def test_three_seeds(headroom, configs, tmp_path):
    document = headroom.json(*arguments(configs, tmp_path / "out", "--seeds", 3))
    dense, experts = document["runs"]
    for run in dense, experts:
        assert [seed["seed"] for seed in run["seeds"]] == [1, 2, 3]
        losses = [seed["validation_loss"] for seed in run["seeds"]]
        assert run["validation_loss"] == losses[0] and len(set(losses)) == 3
        assert run["validation_loss_mean"] == pytest.approx(statistics.mean(losses))
        assert run["validation_loss_std"] == pytest.approx(statistics.stdev(losses))
        assert {"perplexity_mean", "perplexity_std", "bits_per_byte_mean"} <= run.keys()
    pairs = [b["validation_loss"] - a["validation_loss"] for a, b in zip(dense["seeds"], experts["seeds"])]
    assert experts["difference"]["low"] < experts["difference"]["mean"] == pytest.approx(statistics.mean(pairs))
    assert dense["difference"] is None

    text = headroom(*arguments(configs, tmp_path / "out", "--seeds", 3)).stdout
    assert re.search(r"\d ± \d", text) and "3 seeds" in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert '"chart":"intervals"' in page and "Difference from dense" in page
    assert max(map(len, text.split("\n\nThe ")[0].splitlines())) <= 80


def test_interrupted_runs_have_no_figures(headroom, configs, tmp_path):
    asked = [train_runs.program(), *map(str, arguments(configs, tmp_path / "out")), "--set", "train.steps=1000000",
             "--set", "train.schedule=constant", "--set", "train.evaluate_every=0", "--json"]
    process = subprocess.Popen(asked, env=headroom.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, start_new_session=True)
    metrics = tmp_path / "out" / "dense" / "metrics.jsonl"
    train_runs.wait_until(lambda: metrics.exists() and metrics.read_text(), process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=train_runs.PATIENCE)
    assert process.returncode == 130
    document = json.loads(out)
    assert document["interrupted"] is True
    run, = document["runs"]
    assert run["interrupted"] is True
    for key in "validation_loss", "perplexity", "bits_per_byte", "validation_loss_mean":
        assert run[key] is None, key
    assert run["seeds"][0]["validation_loss"] is None


def test_continues_after_a_kill_at_any_moment(headroom, configs, tmp_path):
    asked = ["--seeds", 2, "--tune", "train.learning_rate=1e-3,3e-3"]
    whole = headroom.json(*arguments(configs, tmp_path / "whole", *asked))
    out = tmp_path / "killed"
    command = [train_runs.program(), *map(str, arguments(configs, out, *asked)), "--json"]
    for results in 0, 1, 2, 4, 7:  # finished runs, of eight, at the time of the kill
        process = subprocess.Popen(command, env=headroom.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, start_new_session=True)
        train_runs.wait_until(lambda: len(list(out.glob("**/result.json"))) >= results or process.poll() is not None)
        time.sleep(0.05)
        train_runs.kill(process)
    document = headroom.json(*arguments(configs, out, *asked))
    for run, undisturbed in zip(document["runs"], whole["runs"]):
        assert run["values"] == undisturbed["values"]
        assert [s["parameters_sha256"] for s in run["seeds"]] == [s["parameters_sha256"] for s in undisturbed["seeds"]]
        assert run["validation_loss_mean"] == undisturbed["validation_loss_mean"]
    assert not list(out.glob("**/*.tmp-*"))


def test_the_table_shows_the_heads_of_layers_that_differ(headroom, configs, tmp_path):
    dense, _ = configs
    layers = tmp_path / "layers.toml"
    layers.write_text(dense.read_text() + "\n[[model.layers]]\nattention = {}\n[[model.layers]]\nattention = {n_heads = 4}\n")
    table = headroom("compare", dense, layers, "--out", tmp_path / "out", "--sample-tokens", 1, "--set", "train.steps=1",
                     "--set", "train.warmup_steps=0").stdout
    assert re.search(r"^dense .*  2  ", table, re.MULTILINE) and re.search(r"^layers .*  2, 4  ", table, re.MULTILINE), table


@pytest.mark.parametrize("split", ["train", "validation"])
def test_runs_of_a_file_that_has_changed_are_not_compared_with_new_ones(headroom, configs, tmp_path, split):
    headroom(*arguments(configs, tmp_path / "out"))
    file = tmp_path / f"{split}.txt"
    before = file.read_text()
    file.write_text(before + "more")
    assert split in headroom.refusal(*arguments(configs, tmp_path / "out", "--seeds", 2, "--quiet"))
    assert len(headroom.json(*arguments(configs, tmp_path / "out"))["runs"]) == 2  # nothing is trained
    file.write_text(before)
    assert [len(run["seeds"]) for run in headroom.json(*arguments(configs, tmp_path / "out", "--seeds", 2))["runs"]] == [2, 2]


def test_runs_of_a_teacher_that_has_changed_are_refused(headroom, configs, tmp_path):
    def train_teacher(seed):
        headroom("train", configs[0], "--out", tmp_path / "teacher", "--quiet", "--set", f"train.seed={seed}", "--set", "train.steps=2",
                 "--set", "model.memory_length=0")
    compare = arguments(configs, tmp_path / "out", "--set", f"train.teacher={tmp_path / 'teacher'}", "--set", "model.memory_length=0")
    train_teacher(1)
    assert headroom.json(*compare)["runs"] == headroom.json(*compare)["runs"]
    shutil.rmtree(tmp_path / "teacher")
    assert len(headroom.json(*compare)["runs"]) == 2, "finished runs do not need the teacher"
    train_teacher(2)
    assert "train.teacher_sha256" in headroom.refusal(*compare, "--quiet")


def test_a_repeat_that_fails_keeps_the_sample_texts(headroom, configs, tmp_path):
    headroom(*arguments(configs, tmp_path / "out"))
    before = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert before["prompts"] and len(before["samples"]) == 2
    headroom.refusal(*arguments(configs, tmp_path / "out", "--prompt", "\udcff", "--quiet"))
    after = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert after["samples"] == before["samples"] and after["prompts"] == before["prompts"]
