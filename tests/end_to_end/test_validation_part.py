"""Tests validations that read a part of the data, spread evenly over it."""

import random

import pytest

import processes
import train_runs

PART = ["--set", "train.accumulate=2", "--set", "train.evaluate_tokens=640", "--set", "train.evaluate_every=20", "--set",
        "train.checkpoint_every=10"]
KINDS = {"memory": [], "no memory": ["--set", "model.memory_length=0"]}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Writes a config whose validation text is sorted: a fifth resembles the training text, the rest does not."""
    folder = tmp_path_factory.mktemp("part")
    config = train_runs.prepare(folder)
    train_runs.write_text(folder / "easy.txt", 1600, 3)
    draw = random.Random(4)
    hard = "".join(draw.choice("0123456789+-*/=") for _ in range(6400))
    (folder / "validation.txt").write_text((folder / "easy.txt").read_text() + hard)
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_has_the_loss_of_the_whole(headroom, config, tmp_path, kind):
    more = [*PART, *KINDS[kind]]
    trained = train_runs.run(config, tmp_path / "run", *more)
    easy = headroom.json("evaluate", tmp_path / "run", "--data", config.parent / "easy.txt")["loss"]
    whole = headroom.json("evaluate", tmp_path / "run")["loss"]
    assert easy < 0.7 * whole
    assert trained["validation_loss"] == pytest.approx(whole, rel=0.05)
    lines = [line for line in train_runs.metrics(tmp_path / "run") if "validation_loss" in line]
    assert [line["step"] for line in lines] == [20, 40, 60]
    assert all("validation_predictions" not in line for line in lines), "the last one reads no more than the others"

    train_runs.run(config, tmp_path / "again", *more)
    processes.run(2, config, tmp_path / "ranks", *more)
    train_runs.resumed_after_kills(config, tmp_path / "killed", (10, 30), *more)
    for other in ("again", "ranks", "killed"):
        found = [line for line in train_runs.metrics(tmp_path / other) if "validation_loss" in line]
        assert [line["validation_loss"] for line in found] == [line["validation_loss"] for line in lines], other


def test_the_learning_curve_reads_the_same_part_at_every_point(headroom, config, tmp_path):
    """With train.evaluate_every = "auto", the log also has a figure for all data. The run's config repeats the run."""
    text = (config.parent / "validation.txt").read_text()
    (tmp_path / "validation.txt").write_text(text * 6)
    headroom("train", config, "--out", tmp_path / "run", "--set", f'data.validation=["{tmp_path}/validation.txt"]', "--set",
             "train.evaluate_every=auto", "--set", "train.steps=300", "--set", "train.batch_size=32", "--quiet")
    headroom("train", tmp_path / "run" / "config.toml", "--out", tmp_path / "again", "--quiet")
    metrics = {name: [line for line in train_runs.metrics(tmp_path / name) if "validation_loss" in line or "whole" in line]
               for name in ("run", "again")}
    *curve, whole = metrics["run"]
    assert len(curve) > 2 and curve[-1]["step"] == whole["step"] == 300
    assert {line["validation_predictions"] for line in curve} == {8192}
    assert "validation_loss" not in whole and "validation_predictions" not in whole
    assert whole["whole"]["validation_loss"] == pytest.approx(headroom.json("evaluate", tmp_path / "run")["loss"], rel=1e-5)
    keys = ("step", "validation_loss", "validation_predictions", "whole")
    assert [[line.get(key) for key in keys] for line in metrics["again"]] == [[line.get(key) for key in keys] for line in metrics["run"]]
