"""Runs are killed or interrupted, or fail on a full disk or a read-only folder."""

import contextlib
import os
import random
import signal
import subprocess
import time
import tomllib

import pytest

import train_runs

KILLS = 16


def kill_at_random(config, out, life, draw):
    """Starts or resumes the run and kills it soon after; returns whether it was still running."""
    before = train_runs.saved_step(out)
    process = train_runs.start(config, out, "--resume")
    if life % 4 == 3:
        time.sleep(draw.uniform(0.0, 0.5))  # while it starts
    else:
        goal = before + draw.randrange(1, 4)
        train_runs.wait_until(lambda: train_runs.saved_step(out) >= goal, process)
        time.sleep(draw.uniform(0.0, 0.02))  # anywhere in a step, an evaluation or a checkpoint
    alive = process.poll() is None
    train_runs.kill(process)
    return alive


def assert_same_run(config, out, whole, whole_out):
    """Resumes the run in `out` to its end; checks that it is bit-identical to an undisturbed one."""
    resumed = train_runs.run(config, out, "--resume")
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    assert resumed["validation_loss"] == whole["validation_loss"]
    assert train_runs.same_history(train_runs.metrics(out), train_runs.metrics(whole_out))
    assert not list(out.glob("**/*.tmp-*")), "half-written files were left behind"


def test_a_run_killed_at_any_moment_and_resumed_is_identical(tmp_path):
    config = train_runs.prepare(tmp_path)
    whole = train_runs.run(config, tmp_path / "whole")
    draw = random.Random(5)
    kills, lives, run = 0, 0, 0
    out = tmp_path / "killed_0"
    while kills < KILLS:  # a fast machine finishes several runs
        assert lives < 5 * KILLS, f"only {kills} of {lives} kills met a living process"
        kills += kill_at_random(config, out, lives, draw)
        lives += 1
        if train_runs.saved_step(out) >= whole["steps"] - 4:
            assert_same_run(config, out, whole, tmp_path / "whole")
            run += 1
            out = tmp_path / f"killed_{run}"
    assert_same_run(config, out, whole, tmp_path / "whole")


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_request_to_stop_writes_a_checkpoint(tmp_path, number, status):
    config = train_runs.prepare(tmp_path)
    constant = ["--set", "train.schedule=constant", "--set", "train.checkpoint_every=0", "--set",
                "train.evaluate_every=0"]
    out = tmp_path / "run"
    process = train_runs.start(config, out, *constant, "--set", "train.steps=1000000")
    train_runs.wait_until(lambda: (out / "metrics.jsonl").exists() and len(train_runs.metrics(out)) >= 20, process)
    process.send_signal(number)
    process.communicate(timeout=train_runs.PATIENCE)
    assert process.returncode == status
    step = train_runs.saved_step(out)
    assert step >= 20

    steps = ["--set", f"train.steps={step + 10}"]
    resumed = train_runs.run(config, out, "--resume", *constant, *steps)
    whole = train_runs.run(config, tmp_path / "whole", *constant, *steps)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]


def test_an_interrupted_run_names_the_step_of_its_figures(tmp_path):
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    words = train_runs.command(config, out, "--set", "train.steps=1000000", "--set", "train.evaluate_every=50",
                               "--set", "train.checkpoint_every=0")
    process = subprocess.Popen([word for word in words if word != "--json"], env=train_runs.environment(tmp_path),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    train_runs.wait_until(lambda: (out / "metrics.jsonl").exists() and len(train_runs.metrics(out)) >= 60, process)
    process.send_signal(signal.SIGINT)
    first = process.communicate(timeout=train_runs.PATIENCE)[0].splitlines()[0]
    validated = [line["step"] for line in train_runs.metrics(out) if "validation_loss" in line][-1]
    if train_runs.saved_step(out) == validated:
        assert "(at step" not in first
    else:
        assert first.endswith(f"(at step {validated})"), first


def test_a_validation_interrupted_by_ctrl_c_is_repeated(tmp_path):
    config = train_runs.prepare(tmp_path)
    train_runs.write_text(tmp_path / "validation.txt", 40_000, 2)  # takes longer than 25 steps
    fewer = ["--set", "train.steps=30"]
    for attempt in range(20):  # on a busy machine the signal may arrive after the validation
        out = tmp_path / f"run_{attempt}"
        process = train_runs.start(config, out, *fewer)
        metrics = out / "metrics.jsonl"
        train_runs.wait_until(lambda: metrics.exists() and '"step":25' in metrics.read_text().replace(" ", ""), process)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=train_runs.PATIENCE)
        if process.returncode == 130 and not any("validation_loss" in line for line in train_runs.metrics(out)):
            break
    else:
        raise AssertionError("no signal arrived during the validation")
    train_runs.run(config, out, "--resume", *fewer)
    train_runs.run(config, tmp_path / "whole", *fewer)
    assert train_runs.same_history(train_runs.metrics(out), train_runs.metrics(tmp_path / "whole"))


def test_a_deleted_run_folder_is_an_error(tmp_path):
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    process = train_runs.start(config, out, "--set", "train.steps=1000000", "--set", "train.schedule=constant")
    train_runs.wait_until(lambda: train_runs.saved_step(out) >= 2, process)
    out.rename(tmp_path / "moved")
    stderr = process.communicate(timeout=train_runs.PATIENCE)[1]
    assert process.returncode == 1
    one_line(stderr, str(out), "deleted or moved")


@contextlib.contextmanager
def small_disk(folder, size):
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
                             capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def one_line(stderr, *words):
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("headroom: "), stderr
    for word in words:
        assert word in last, last


def fill(disk):
    with open(disk / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(b"x" * 4096)


def test_a_full_disk_does_not_lose_saved_files(tmp_path):
    config = train_runs.prepare(tmp_path)
    with small_disk(tmp_path / "disk", "2m") as disk:
        out = disk / "run"
        train_runs.run(config, out, "--set", "train.steps=5", "--set", "train.keep_checkpoints=1")
        checkpoint = out / "checkpoints" / "step_5.safetensors"
        good = checkpoint.read_bytes()
        fill(disk)
        stderr = train_runs.run(config, out, "--resume", "--set", "train.steps=7", status=2)
        one_line(stderr, str(out), "are free on this disk")
        assert checkpoint.read_bytes() == good
        os.remove(disk / "ballast")
        # The disk becomes full while the run trains.
        process = train_runs.start(config, out, "--resume", "--set", "train.steps=1000000", "--set", "train.keep_checkpoints=1")
        train_runs.wait_until(lambda: train_runs.saved_step(out) > 5, process)
        while process.poll() is None:
            fill(disk)
        one_line(process.communicate()[1], str(out), "No space left")
        assert process.returncode == 1 and not list(out.glob("**/*.tmp-*"))
        os.remove(disk / "ballast")
        steps = train_runs.saved_step(out) + 2
        assert train_runs.run(config, out, "--resume", "--set", f"train.steps={steps}")["steps"] == steps


def test_checkpoints_that_do_not_fit_are_refused_before_training(tmp_path):
    config = train_runs.prepare(tmp_path)
    with small_disk(tmp_path / "disk", "2m") as disk:
        out = disk / "run"
        many = ["--set", "train.steps=1000", "--set", "train.keep_checkpoints=900"]
        one_line(train_runs.run(config, out, *many, status=2), str(out), "901 checkpoints", "train.keep_checkpoints")
        assert not out.exists()


def test_resuming_nothing_or_a_finished_run_is_announced(headroom, tiny, tmp_path):
    again = ["train", tiny, "--set", "train.steps=4", "--out", tmp_path / "run", "--resume"]
    assert f"nothing to resume in {tmp_path / 'run'}: the run starts at step 0" in headroom(*again).stderr
    record = tomllib.loads((tmp_path / "run/config.toml").read_text())
    other = ["--set", "train.learning_rate=0.5", "--set", "train.betas=[0.5, 0.5]", "--set", "train.precision=bf16"]
    assert "has done all of its 4 steps" in headroom(*again, *other).stderr
    assert tomllib.loads((tmp_path / "run/config.toml").read_text()) == record


def test_a_long_first_step_is_left_within_seconds(tmp_path):
    config = train_runs.prepare(tmp_path)
    train_runs.write_text(tmp_path / "train.txt", 700_000, 1)
    out = tmp_path / "run"
    process = train_runs.start(config, out, "--set", "train.batch_size=40000", "--set", "train.accumulate=10000",
                               "--set", "train.steps=100000")
    train_runs.wait_until(lambda: (out / "metrics.jsonl").exists(), process)
    time.sleep(1.0)
    process.send_signal(signal.SIGTERM)
    begin = time.monotonic()
    stderr = process.communicate(timeout=train_runs.PATIENCE)[1]
    assert process.returncode == 143 and "nothing has been saved" in stderr, stderr
    assert time.monotonic() - begin < 30 and not list(out.glob("checkpoints/*.safetensors"))
    assert "100000 steps take at least " in stderr
