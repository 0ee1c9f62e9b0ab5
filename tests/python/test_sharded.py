"""Compares python -m headroom_torch.train with `headroom train`: losses, resuming on other ranks, checkpoints, refusals."""

import json
import multiprocessing
import os
import subprocess
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded
import pytest
import headroom_torch.train

import processes
import train_runs

EXPERTS = ("n_experts = 4", "top_k = 2")
MODELS = {"dense": (), "experts": ('projection = "experts"', 'position = "relative"', *EXPERTS),
          "routed_heads": ('projection = "routed_heads"', *EXPERTS), "dynamic": ('composition = "dynamic"',),
          "mixture": ('score = "gaussian_mixture"',)}
SETTINGS = ("model.mlp.d_hidden = 64", "train.steps = 30", "train.accumulate = 2", "train.learning_rate = 3e-3",
            "train.weight_decay = 0.1", "train.log_every = 1", "train.evaluate_every = 15", "train.checkpoint_every = 10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    train_runs.write_text(folder / "train.txt", 8000, 1)
    train_runs.write_text(folder / "validation.txt", 600, 2)
    for name, attention in MODELS.items():
        train_runs.small_config(folder / f"{name}.toml", "train.txt", *(f"model.attention.{line}" for line in attention), *SETTINGS,
                                validation="validation.txt")
    return folder


def run_main(folder, arguments, variables, stderr):
    os.chdir(folder)
    os.environ.update(variables)
    os.dup2(os.open(stderr, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
    sys.argv[1:] = arguments
    os._exit(headroom_torch.train.main())


def train(folder, name, out, *more, ranks=1, status=0, fresh=False):
    """Trains with sharded parameters; returns stderr. fresh: as users start it; otherwise in forks of this process, which has loaded torch."""
    arguments, environment = [f"{name}.toml", "--out", out, *more], train_runs.environment(folder)
    if fresh:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
        done = subprocess.run([sys.executable, *launcher, "-m", "headroom_torch.train", *arguments], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=train_runs.PATIENCE)
        assert done.returncode == status, done.stderr
        return done.stderr
    port, files = processes.free_port(), [folder / f"stderr{rank}" for rank in range(ranks)]
    forks = [multiprocessing.get_context("fork").Process(target=run_main, args=(folder, arguments, {
        **environment, **{key: str(value) for key, value in processes.script(rank, ranks, port).items()}}, files[rank]))
        for rank in range(ranks)]
    for fork in forks:
        fork.start()
    for fork in forks:
        fork.join(train_runs.PATIENCE)
    errors = "".join(file.read_text() for file in files)
    assert [fork.exitcode for fork in forks] == [status] * ranks, errors
    return errors


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
    assert len(wanted) == 32


def test_a_run_resumes_on_other_ranks_and_is_read_by_the_commands(folder, headroom):
    constant = ["--set", "train.schedule=constant"]
    headroom("train", folder / "experts.toml", "--out", folder / "whole", *constant)
    train(folder, "experts", "parts", *constant, "--set", "train.steps=10", ranks=2, fresh=True)
    assert sorted(path.name for path in (folder / "parts" / "sharded").iterdir()) == ["step_10"]
    train(folder, "experts", "parts", *constant, "--resume", "--recompute")
    assert [path.name for path in sorted((folder / "parts" / "sharded").iterdir())] == ["step_20", "step_30"]
    assert not (folder / "parts" / "sharded.incoming").exists()
    assert losses(folder / "parts")[-1] == pytest.approx(losses(folder / "whole")[-1], rel=1e-4)
    result = json.loads((folder / "parts" / "result.json").read_text())
    found = headroom("evaluate", folder / "parts", "--data", folder / "validation.txt")
    assert found["loss"] == pytest.approx(result["validation"][-1]["loss"], rel=1e-5)
    continued = headroom("train", folder / "experts.toml", "--out", folder / "parts", "--resume", *constant,
                         "--set", "train.steps=40")
    assert continued["steps"] == 40 and continued["validation_loss"] < found["loss"] + 0.1


def test_bf16(folder, headroom):
    headroom("train", folder / "dense.toml", "--out", folder / "narrow", "--set", "train.precision=bf16")
    train(folder, "dense", "sharded_narrow", "--set", "train.precision=bf16", ranks=2)
    assert losses(folder / "sharded_narrow")[-1] == pytest.approx(losses(folder / "narrow")[-1], rel=0.02)


def test_compiled_blocks_give_the_same_losses(folder):
    for out, *more in (["eager"], ["compiled", "--compile"]):
        train(folder, "experts", out, "--set", "train.steps=3", *more, fresh=out == "compiled")
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
    assert "--resume" in train(folder, "dense", "full", status=2, fresh=True)
