"""Tests the best checkpoint, the samples and the speed of a run."""

import json
import re

import pytest

import train_runs

# The run learns, then diverges as the learning rate rises.
WORSENS = ["--set", "train.learning_rate=0.3", "--set", "train.warmup_steps=60", "--set", "train.evaluate_every=5",
           "--set", "train.keep_best=true"]


@pytest.fixture(scope="module")
def worsened(tmp_path_factory):
    """Returns a config, and a run of it whose loss was lowest in the middle."""
    config = train_runs.prepare(tmp_path_factory.mktemp("worsened"))
    train_runs.run(config, config.parent / "run", *WORSENS)
    return config, config.parent / "run"


def best_of(out):
    losses = {line["step"]: line["validation_loss"] for line in train_runs.metrics(out) if "validation_loss" in line}
    return min(losses, key=losses.get), losses


def step_in(checkpoint):
    file = checkpoint.read_bytes()
    header = json.loads(file[8:8 + int.from_bytes(file[:8], "little")])
    return int(header["__metadata__"]["step"])


def test_the_best_checkpoint_is_kept(headroom, worsened, tmp_path):
    config, out = worsened
    step, losses = best_of(out)
    assert step < 60, losses
    best = out / "checkpoints" / "best.safetensors"
    assert step_in(best) == step
    assert headroom.json("evaluate", best)["loss"] == pytest.approx(losses[step], abs=1e-4)
    assert headroom.json("evaluate", out)["loss"] == pytest.approx(losses[60], abs=1e-4), "the run is its last checkpoint"
    train_runs.run(config, tmp_path / "without", *WORSENS[:-2])
    assert not (tmp_path / "without" / "checkpoints" / "best.safetensors").exists()


def test_the_best_checkpoint_survives_kills(worsened, tmp_path):
    config, whole = worsened
    killed = tmp_path / "killed"
    train_runs.resumed_after_kills(config, killed, (6, 23, 41), *WORSENS)
    assert best_of(killed) == best_of(whole)
    checkpoint = "checkpoints/best.safetensors"
    assert step_in(killed / checkpoint) == step_in(whole / checkpoint) == best_of(whole)[0]


def test_the_best_checkpoint_belongs_to_the_resumed_run(headroom, tmp_path):
    """Validations after the checkpoint that a run resumes from do not count."""
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    keeping = ["--set", "train.evaluate_every=5", "--set", "train.keep_best=true", "--set", "train.checkpoint_every=20"]
    train_runs.run(config, out, *keeping)
    best = out / "checkpoints" / "best.safetensors"
    forgotten = step_in(best)
    assert forgotten > 40
    (out / "checkpoints" / "latest").write_text("step_40.safetensors\n")
    (out / "checkpoints" / "step_60.safetensors").unlink()
    train_runs.run(config, out, *keeping, "--resume", "--set", "train.learning_rate=3")
    losses = {step: loss for step, loss in best_of(out)[1].items() if step > 40}
    assert losses[60] > best_of(out)[1][40], "it became worse"
    assert step_in(best) == min(losses, key=losses.get)
    assert headroom.json("evaluate", best)["loss"] == pytest.approx(losses[step_in(best)], abs=1e-4)


def samples_of(out):
    return [json.loads(line) for line in (out / "samples.jsonl").read_text().splitlines()]


def test_samples_are_printed_and_stored(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    asked = ["--set", "train.sample_every=20", "--set", "train.sample_prompt=the room"]
    plain = headroom("train", config, "--out", tmp_path / "plain").stderr
    told = headroom("train", config, "--out", tmp_path / "run", *asked).stderr
    samples = samples_of(tmp_path / "run")
    assert [sample["step"] for sample in samples] == [20, 40, 60]
    for sample in samples:
        assert sample["prompt"] == "the room" and len(sample["text"].encode()) >= 20
        assert f"step {sample['step']}: the room" in told
    assert "step 20: " not in plain and not (tmp_path / "plain" / "samples.jsonl").exists()
    losses = [best_of(tmp_path / name)[1] for name in ("plain", "run")]
    assert losses[0] == losses[1], "writing changes nothing of the training"
    train_runs.resumed_after_kills(config, tmp_path / "killed", (12, 33, 47), *asked)
    assert samples_of(tmp_path / "killed") == samples

    headroom("report", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Samples from training" in page and '"step":40,"prompt":"the room"' in page
    headroom("report", tmp_path / "plain")
    assert "Samples from training" not in (tmp_path / "plain" / "report.html").read_text()


def test_the_progress_line_has_the_speed(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    told = headroom("train", config, "--out", tmp_path / "run", "--set", "train.steps=6").stderr
    found = re.search(r"loss [\d.]+, \S+( \w)? tokens/s, ([\d.e+-]+) GFLOP/s \((\d+)% of the machine's\)", told)
    assert found, told
    assert float(found[2]) > 0.0 and int(found[3]) <= 100


def test_a_run_without_checkpoints_starts_again(headroom, tmp_path):
    config = train_runs.prepare(tmp_path)
    few = ["--set", "train.steps=6"]
    first = headroom.json("train", config, "--out", tmp_path / "run", *few)
    for file in (tmp_path / "run" / "checkpoints").iterdir():
        file.unlink()
    done = headroom("train", config, "--out", tmp_path / "run", *few, "--resume", "--json")
    assert "run: " in done.stderr
    assert json.loads(done.stdout)["parameters_sha256"] == first["parameters_sha256"]
