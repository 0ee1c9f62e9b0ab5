"""Compares python -m headroom_torch.train with `headroom train`: losses, resuming on other ranks, checkpoints, refusals."""

import json
import subprocess
import sys

import pytest

import train_runs

EXPERTS = ("n_experts = 4", "top_k = 2")
MODELS = {"dense": (), "experts": ('projection = "experts"', 'position = "relative"', *EXPERTS),
          "routed_heads": ('projection = "routed_heads"', *EXPERTS), "dynamic": ('composition = "dynamic"',),
          "mixture": ('score = "gaussian_mixture"',)}
SETTINGS = ("model.mlp.d_hidden = 64", "train.steps = 50", "train.accumulate = 2", "train.learning_rate = 3e-3",
            "train.weight_decay = 0.1", "train.log_every = 1", "train.evaluate_every = 25", "train.checkpoint_every = 20")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    train_runs.write_text(folder / "train.txt", 8000, 1)
    train_runs.write_text(folder / "validation.txt", 600, 2)
    for name, attention in MODELS.items():
        train_runs.small_config(folder / f"{name}.toml", "train.txt", *(f"model.attention.{line}" for line in attention), *SETTINGS,
                                validation="validation.txt")
    return folder


def train(folder, name, out, *more, ranks=1, status=0):
    """Trains with sharded parameters; returns stderr."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    done = subprocess.run([sys.executable, *launcher, "-m", "headroom_torch.train", f"{name}.toml", "--out", out, *more],
                          cwd=folder, env={**train_runs.environment(folder), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
                          timeout=train_runs.PATIENCE)
    assert done.returncode == status, done.stderr
    return done.stderr


def losses(out):
    return [line.get("loss", line.get("validation_loss")) for line in train_runs.metrics(out)]


@pytest.fixture(scope="module", params=MODELS)
def expected(request, folder, headroom):
    headroom("train", folder / f"{request.param}.toml", "--out", folder / request.param)
    return request.param, losses(folder / request.param)


@pytest.mark.parametrize("ranks, tolerance", [(1, 1e-5), (2, 1e-4)])
def test_the_losses_match_headroom_train(folder, expected, ranks, tolerance):
    name, wanted = expected
    train(folder, name, f"{name}{ranks}", ranks=ranks)
    assert losses(folder / f"{name}{ranks}") == pytest.approx(wanted, rel=tolerance)
    assert len(wanted) == 52


def test_a_run_resumes_on_other_ranks_and_is_read_by_the_commands(folder, headroom):
    constant = ["--set", "train.schedule=constant"]
    headroom("train", folder / "experts.toml", "--out", folder / "whole", *constant)
    train(folder, "experts", "parts", *constant, "--set", "train.steps=20", ranks=2)
    assert sorted(path.name for path in (folder / "parts" / "sharded").iterdir()) == ["step_20"]
    train(folder, "experts", "parts", *constant, "--resume", "--recompute")
    assert [path.name for path in sorted((folder / "parts" / "sharded").iterdir())] == ["step_40", "step_50"]
    assert not (folder / "parts" / "sharded.incoming").exists()
    assert losses(folder / "parts")[-1] == pytest.approx(losses(folder / "whole")[-1], rel=1e-4)
    result = json.loads((folder / "parts" / "result.json").read_text())
    found = headroom("evaluate", folder / "parts", "--data", folder / "validation.txt")
    assert found["loss"] == pytest.approx(result["validation"][-1]["loss"], rel=1e-5)
    continued = headroom("train", folder / "experts.toml", "--out", folder / "parts", "--resume", *constant,
                         "--set", "train.steps=60")
    assert continued["steps"] == 60 and continued["validation_loss"] < found["loss"] + 0.1


def test_bf16(folder, headroom):
    headroom("train", folder / "dense.toml", "--out", folder / "narrow", "--set", "train.precision=bf16")
    train(folder, "dense", "sharded_narrow", "--set", "train.precision=bf16", ranks=2)
    assert losses(folder / "sharded_narrow")[-1] == pytest.approx(losses(folder / "narrow")[-1], rel=0.02)


def test_compiled_blocks_give_the_same_losses(folder):
    for out, *more in (["eager"], ["compiled", "--compile"]):
        train(folder, "experts", out, "--set", "train.steps=3", *more)
    assert losses(folder / "compiled") == pytest.approx(losses(folder / "eager"), rel=1e-5)


@pytest.mark.parametrize("setting, key", [("train.optimizer=muon", "train.optimizer"), ("model.memory_length=32", "model.memory_length"),
                                          ("train.seconds=5", "train.seconds"), ("train.lr=1", "train.lr")])
def test_refusals(folder, setting, key):
    error = train(folder, "dense", "refused", "--set", setting, status=2)
    assert error.startswith("headroom: ") and key in error and error.count("\n") == 1
    assert not (folder / "refused").exists()


def test_a_folder_with_a_run_is_refused(folder):
    (folder / "full").mkdir(exist_ok=True)
    (folder / "full" / "config.toml").write_text("")
    assert "--resume" in train(folder, "dense", "full", status=2)
