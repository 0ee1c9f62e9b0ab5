"""Tests headroom try: decisions as exit statuses, the record, and refusals."""

import json
import tomllib

import pytest

import train_runs

BROKEN = ["--set", "train.learning_rate=1e-9"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("try")
    train_runs.prepare(folder)
    config = folder / "tiny.toml"
    config.write_text(config.read_text().replace("steps = 60", "steps = 12").replace("checkpoint_every = 1", "checkpoint_every = 0"))
    return folder


def ask(headroom, folder, *arguments, status):
    done = headroom("try", folder / "tiny.toml", *arguments, "--out", folder / "out", "--threads", 1, "--json", status=status)
    return json.loads(done.stdout)


def test_no_effect_and_a_broken_change_are_discarded_and_recorded(headroom, folder):
    same = ask(headroom, folder, folder / "tiny.toml", status=3)
    assert same["decision"] == "discard" and same["difference"]["mean"] == 0.0 and same["changed"] == []
    assert {pair["base_sha256"] == pair["change_sha256"] for pair in same["pairs"]} == {True}
    broken = ask(headroom, folder, *BROKEN, status=3)
    assert broken["decision"] == "discard" and broken["difference"]["mean"] > 0
    assert broken["runs"] == 1 and broken["reused"] == 3  # the first trial trained the base
    assert broken["changed"][0].startswith("train.learning_rate: ")
    record = [json.loads(line) for line in (folder / "out" / "trials.jsonl").read_text().splitlines()]
    assert [line["decision"] for line in record] == ["discard", "discard"]
    runs = sorted((folder / "out" / "runs").glob("tiny-*/seed_*"))
    assert [run.name for run in runs] == ["seed_1", "seed_2", "seed_3"]
    assert json.loads((runs[0] / "result.json").read_text())["parameters_sha256"] == same["pairs"][0]["base_sha256"]


def test_a_better_change_is_kept(headroom, folder):
    slow = folder / "slow.toml"
    slow.write_text((folder / "tiny.toml").read_text().replace("learning_rate = 3e-3", "learning_rate = 1e-6"))
    kept = json.loads(headroom("try", slow, folder / "tiny.toml", "--pairs", 3, "--out", folder / "kept", "--threads", 1,
                               "--json").stdout)
    assert kept["decision"] == "keep" and kept["difference"]["high"] < 0 and len(kept["pairs"]) <= 3


def test_refuses_to_compare_with_runs_of_other_data(headroom, folder, tmp_path):
    ask(headroom, folder, *BROKEN, status=3)
    validation = folder / "validation.txt"
    before = validation.read_text()
    validation.write_text(before + "more")
    assert "validation data" in headroom.refusal("try", folder / "tiny.toml", "--set", "train.learning_rate=2e-9", "--out",
                                                 folder / "out", "--threads", 1, "--quiet")
    validation.write_text(before)


def test_tuning_looks_for_a_rate_that_does_not_diverge(headroom, folder):
    tuned = headroom("try", folder / "tiny.toml", *BROKEN, "--both", "train.learning_rate=1e25", "--both", "train.clip_norm=0",
                     "--tune", "--pairs", 2, "--out", folder / "tuned", "--threads", 1, status=2)
    assert "diverged with all 6 learning rates" in tuned.stderr
    configs = [tomllib.loads(file.read_text()) for file in (folder / "tuned" / "runs").glob("*/seed_1/config.toml")]
    rates = {config["train"]["learning_rate"] for config in configs}
    assert len([rate for rate in rates if rate > 1e20]) == 6, "half the lowest rate is tried as long as all diverge"
