"""Compares train.start_from with plain PyTorch: the same weights and batches give the same losses."""

import json

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

import train_runs  # noqa: E402
from random_transformers import bpe, random_model  # noqa: E402

CONTEXT, BATCH, STEPS, RATE, CLIP = 16, 4, 20, 1e-3, 1.0
SETTINGS = f"""
[data]
order = "given"
train = ["text.txt"]
validation = ["text.txt"]
[train]
start_from = "model.safetensors"
steps = {STEPS}
batch_size = {BATCH}
learning_rate = {RATE}
schedule = "constant"
weight_decay = 0.1
clip_norm = {CLIP}
evaluate_tokens = 64
log_every = 1
threads = 1
precision = "fp32"
"""


def plain_losses(model, ids):
    """Trains with AdamW on parallel streams; returns the losses."""
    length = len(ids) // BATCH
    streams = torch.tensor(ids[:BATCH * length]).view(BATCH, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
    losses = []
    for step in range(STEPS):
        chunk = streams[:, step * CONTEXT:(step + 1) * CONTEXT + 1]
        logits = model(chunk[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("kind", ["gpt2", "llama", "jetmoe"])
def test_fine_tuning_matches_pytorch(headroom, tmp_path, kind):
    torch.set_num_threads(1)
    train_runs.write_text(tmp_path / "text.txt", 8000, 4)
    text = (tmp_path / "text.txt").read_text()
    tokenizer = bpe("gpt2")
    (tmp_path / "hf").mkdir()
    tokenizer.save(str(tmp_path / "hf" / "tokenizer.json"))
    theirs = random_model(kind, tokenizer.get_vocab_size() + 4, CONTEXT)  # evaluation mode: no dropout
    theirs.save_pretrained(tmp_path / "hf")
    headroom("import", tmp_path / "hf", "--out", tmp_path / "model.safetensors")
    (tmp_path / "tune.toml").write_text(SETTINGS)
    run = tmp_path / "run"
    headroom("train", tmp_path / "tune.toml", "--out", run)
    mine = [line["loss"] for line in train_runs.metrics(run) if "loss" in line]
    plain = plain_losses(theirs, tokenizer.encode(text).ids)
    assert len(mine) == STEPS
    assert plain[-1] < plain[0] - 0.5  # the model has learnt something
    assert max(abs(a - b) for a, b in zip(mine, plain)) < 1e-5

    # The result is still a model of this kind, with its special tokens.
    headroom("checkpoint", "export", run, "--format", "huggingface", "--out", tmp_path / "back")
    before, after = (json.loads((tmp_path / folder / "config.json").read_text()) for folder in ("hf", "back"))
    for key in ("model_type", "bos_token_id", "eos_token_id"):
        assert after[key] == before[key]

    # The run records the checkpoint, and resumes without it.
    began = headroom.json("checkpoint", "info", run)["config"]
    assert began["train.start_from"] == str(tmp_path / "model.safetensors")
    assert len(began["train.start_sha256"]) == 64
    (tmp_path / "model.safetensors").unlink()
    more = headroom.json("train", tmp_path / "tune.toml", "--out", run, "--resume", "--set", f"train.steps={STEPS + 1}")
    assert more["steps"] == STEPS + 1


def test_a_run_is_tuned_on_other_data(headroom, tiny, trained, tmp_path):
    train_runs.write_text(tmp_path / "other.txt", 2000, 9)
    config = tmp_path / "tune.toml"
    config.write_text(f"""
[data]
train = ["other.txt"]
validation = ["other.txt"]
[train]
start_from = "{trained}"
steps = 4
batch_size = 4
threads = 1
precision = "fp32"
""")
    out = tmp_path / "tuned"
    headroom("train", config, "--out", out)
    before = headroom.json("evaluate", trained, "--data", tmp_path / "other.txt")
    after = headroom.json("evaluate", out)
    assert after["tokens"] == before["tokens"]
    assert after["loss"] < before["loss"]
    # `cost` needs no training and reports the first run's costs.
    costs = headroom.json("cost", config, trained / "config.toml", tiny)
    assert costs[0]["parameters"] == costs[1]["parameters"] == costs[2]["parameters"]
    from_file = ["--set", f"train.start_from={next((trained / 'checkpoints').glob('step_*'))}"]
    assert headroom.json("cost", config, *from_file)[0]["parameters"] == costs[0]["parameters"]
    # `compare` also accepts the model before training.
    headroom("compare", config, "--out", tmp_path / "pair", "--set", "train.steps=2", "--sample-tokens", 0)
    again = headroom("compare", config, "--out", tmp_path / "pair", "--set", "train.steps=2", "--sample-tokens", 0)
    assert "already trained" in again.stderr
    refusal = headroom.refusal("train", config, "--out", tmp_path / "wide", "--set", "model.d_model=64")
    assert all(part in refusal for part in ("model.d_model", "32", "64", "train.start_from"))
