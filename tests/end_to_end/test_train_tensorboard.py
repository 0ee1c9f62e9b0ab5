"""TensorBoard's own reader reads the values of metrics.jsonl."""

import pytest

import train_runs

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator",
                                  reason="the tensorboard package is not installed")


def scalars(out):
    events = accumulator.EventAccumulator(str(out), size_guidance={accumulator.SCALARS: 0})
    events.Reload()
    return {tag: {e.step: e.value for e in events.Scalars(tag)} for tag in events.Tags()["scalars"]}, events


def flat(prefix, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{prefix}/{key}", inner)
    else:
        yield prefix, value


def expected(out):
    curves = {}
    for line in train_runs.metrics(out):
        group = "validation" if "validation_loss" in line else "train"
        for key, value in line.items():
            if key != "step":
                for tag, number in flat(f"{group}/{key}", value):
                    curves.setdefault(tag, {})[line["step"]] = pytest.approx(number, rel=1e-6)
    return curves


def test_events_are_the_metrics(tmp_path):
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    train_runs.run(config, out, "--set", "train.steps=30")
    curves, _ = scalars(out)
    assert curves == expected(out)
    assert len(curves["train/loss"]) == 30
    assert sorted(curves["validation/validation_loss"]) == [25, 30]
    assert any(tag.startswith("validation/experts/") and tag.endswith("/entropy") for tag in curves)


def test_a_resumed_run_is_one_curve(tmp_path):
    config = train_runs.prepare(tmp_path)
    out = tmp_path / "run"
    # Logs steps 9 and 10, which the resumed run repeats.
    train_runs.run(config, out, "--set", "train.steps=10")
    (out / "checkpoints" / "latest").write_text("step_8.safetensors\n")
    train_runs.run(config, out, "--resume", "--set", "train.steps=20")
    curves, events = scalars(out)
    assert curves == expected(out)
    assert [e.step for e in events.Scalars("train/loss")] == list(range(1, 21))
