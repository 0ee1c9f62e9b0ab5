"""Training records: made, verified by training again, and compared with an older one."""

import json
import os

import pytest

from train_runs import TINY_MODEL

CONFIG = TINY_MODEL + """
[tokenizer]
kind = "bytes"
[train]
steps = 30
batch_size = 64
learning_rate = 3e-3
threads = 1
precision = "fp32"
evaluate_every = 0
"""


@pytest.fixture(scope="module")
def record(headroom, tmp_path_factory):
    """A record with two seeds, its config beside it."""
    folder = tmp_path_factory.mktemp("record")
    (folder / "tiny.toml").write_text(CONFIG)
    made = headroom.json("record", "make", folder / "tiny.toml", "--target", 8, "--seeds", 2, "--out", folder / "record.json",
                         "--runs", folder / "runs")
    assert made == json.loads((folder / "record.json").read_text())
    return folder / "record.json"


def changed(record, path, **values):
    document = json.loads(record.read_text())
    for key, value in values.items():
        document[key] = value(document[key])
    path.write_text(json.dumps(document))
    return path


def test_a_record_holds_what_verifying_needs(record):
    document = json.loads(record.read_text())
    assert document["track"] == "time" and document["target"] == 8
    assert "steps = 30" in document["config"] and document["machine"] and document["training_data"]
    for run, seed in zip(document["runs"], [1, 2], strict=True):
        assert run["seed"] == seed and run["steps"] == 30 and run["tokens"] == 30 * 64 * 16
        assert len(run["parameters_sha256"]) == 64 and 0 < run["bits_per_byte"] < 8
        assert run["log"][-1]["step"] == 30


def test_verifying_trains_again(headroom, record, tmp_path):
    verify = ["record", "verify", record, "--runs", tmp_path / "runs", "--seeds", 2]
    first = headroom.json(*verify[:-1], 1)  # as if interrupted after the first seed
    begun = (tmp_path / "runs" / "result.json").stat().st_mtime_ns
    found = headroom.json(*verify)
    assert (tmp_path / "runs" / "result.json").stat().st_mtime_ns == begun
    assert found["verified"] and found["same_kind"]
    assert found["parameters_sha256"] == first["parameters_sha256"] == found["runs"][0]["parameters_sha256"]
    assert [run["parameters_sha256"] for run in found["runs"]] == [
        run["parameters_sha256"] for run in json.loads(record.read_text())["runs"]]
    assert "--runs" in headroom.refusal(*verify)  # these runs would be read, not trained


def test_a_run_of_other_threads_or_data_is_refused(headroom, record, tmp_path):
    make = ["record", "make", record.parent / "tiny.toml", "--target", 8, "--seeds", 1, "--runs", tmp_path / "runs"]
    headroom(*make, "--out", tmp_path / "one.json")
    if headroom.json("doctor")["physical_cores"] > 1:
        all_threads = headroom(*make, "--set", "train.threads=0", "--out", tmp_path / "two.json", status=2).stderr
        assert "another machine or precision" in all_threads and "1 thread" in all_threads
        assert not (tmp_path / "two.json").exists()
    other = changed(record, tmp_path / "other.json", training_data=lambda _: "another text")
    assert "another text" in headroom.refusal("record", "verify", other, "--runs", tmp_path / "other")
    assert not (tmp_path / "other").exists(), "refused before training"
    assert "--seeds" in headroom.refusal("record", "verify", record, "--seeds", 3, "--runs", tmp_path / "other")
    assert "--target" in headroom.refusal(*make, "--target", "inf", "--out", tmp_path / "endless.json")


@pytest.mark.parametrize("key, value, words", [
    ("parameters_sha256", "0" * 64, "other parameters"), ("bits_per_byte", 0.9, "other figures"),
    ("steps", 1, "1 is recorded")])
def test_forged_figures_are_found(headroom, record, tmp_path, key, value, words):
    def forge(runs):
        return [{**runs[0], key: value}, runs[1]]
    forged = changed(record, tmp_path / "forged.json", runs=forge)
    found = headroom.json("record", "verify", forged, "--runs", tmp_path / "runs", status=1)
    assert not found["verified"] and words in found["sentence"]


def test_a_diverged_run_is_a_failure(headroom, record, tmp_path):
    failed = headroom("record", "make", record.parent / "tiny.toml", "--target", 8, "--seeds", 1, "--set", "train.learning_rate=1e30",
                      "--out", tmp_path / "a.json", "--runs", tmp_path / "a", status=1)
    assert "diverged" in failed.stderr and "-nan" not in failed.stderr


def test_another_kind_of_cpu_compares_bits_per_byte(headroom, record, tmp_path):
    elsewhere = changed(record, tmp_path / "elsewhere.json", kind=lambda _: "another machine")
    assert headroom.json("record", "verify", elsewhere, "--runs", tmp_path / "a")["verified"]
    worse = changed(elsewhere, tmp_path / "worse.json",
                    runs=lambda runs: [{**runs[0], "bits_per_byte": 0.9 * runs[0]["bits_per_byte"]}, runs[1]])
    assert "more than 1%" in headroom.json("record", "verify", worse, "--runs", tmp_path / "b", status=1)["sentence"]


def test_records_of_other_data_or_machines_are_not_compared(headroom, record, tmp_path):
    for key in ("training_data", "machine"):
        other = changed(record, tmp_path / f"{key}.json", **{key: lambda _: "another one"})
        message = headroom.refusal("record", "verify", record, "--against", other, "--runs", tmp_path / "runs")
        assert "another one" in message and "different" in message
    assert not (tmp_path / "runs").exists()


def test_a_name_that_is_not_utf8_loses_nothing(headroom, record, tmp_path):
    config = tmp_path / os.fsdecode(b"caf\xe9.toml")
    config.write_text(CONFIG.replace("steps = 30", "steps = 1"))
    headroom("record", "make", config, "--track", "tokens", "--seeds", 1, "--out", tmp_path / "out.json", "--runs", tmp_path / "runs")
    assert json.loads((tmp_path / "out.json").read_text())["name"] == "caf\ufffd"


@pytest.mark.parametrize("faster, replaces", [(0.001, True), (1.0, False)])
def test_a_successor_must_be_better_beyond_chance(headroom, record, tmp_path, faster, replaces):
    slower = changed(record, tmp_path / "slower.json",
                     runs=lambda runs: [{**run, "seconds": seconds} for run, seconds in zip(runs, [100.0, 100.1])])
    new = changed(record, tmp_path / "new.json",
                  runs=lambda runs: [{**run, "seconds": faster * seconds} for run, seconds in zip(runs, [100.0, 100.1])])
    found = headroom.json("record", "verify", new, "--against", slower, "--runs", tmp_path / "runs")
    assert found["against"]["replaces"] is replaces and found["against"]["difference"] <= 0


def test_rule_violations_are_refused(headroom, record, tmp_path):
    make = ["record", "make", record.parent / "tiny.toml", "--seeds", 1]
    missed = headroom(*make, "--target", 0.5, "--out", tmp_path / "a.json", "--runs", tmp_path / "a", status=1)
    assert "target" in missed.stderr.splitlines()[-1] and not (tmp_path / "a.json").exists()
    assert "--target" in headroom.refusal(*make, "--out", tmp_path / "b.json")
    assert "--out" in headroom.refusal(*make, "--target", 8, "--out", record)
    assert "--out" in headroom.refusal(*make, "--target", 8, "--out", tmp_path / "none" / "b.json", "--runs", tmp_path / "b")
    assert not (tmp_path / "b").exists(), "refused before training"
    assert "--target" in headroom.refusal(*make, "--target", 8, "--track", "tokens", "--out", tmp_path / "b.json")
    assert "built-in corpus" in headroom.refusal("record", "make", "small/lookup_dense_h2", "--target", 8, "--out",
                                                 tmp_path / "c.json")
    for change, key in [("train.seconds=5", "train.seconds"), ("train.evaluate_tokens=100", "train.evaluate_tokens"),
                        (f'data.validation=["{record}"]', "data.validation"), ("data.generator=composition", "data.generator"),
                        (f"tokenizer.model={record}", "tokenizer.model")]:
        assert key in headroom.refusal(*make, "--target", 8, "--set", change, "--out", tmp_path / "e.json", "--runs", tmp_path / "e")
    long = ["--set", "train.steps=200000", "--set", "train.batch_size=4"]
    assert "10000000" in headroom.refusal(*make, "--track", "tokens", *long, "--out", tmp_path / "d.json", "--runs",
                                          tmp_path / "d")
    (tmp_path / "broken.json").write_text("{}")
    assert "broken.json" in headroom.refusal("record", "verify", tmp_path / "broken.json")
