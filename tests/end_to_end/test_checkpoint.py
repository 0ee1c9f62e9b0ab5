"""Tests `headroom checkpoint` and `headroom import`."""

import json
import pathlib
import shutil

import pytest

from train_runs import small_config

MODELS = pathlib.Path(__file__).resolve().parents[1] / "engine" / "store" / "huggingface"


def test_info(headroom, trained):
    info = headroom.json("checkpoint", "info", trained)
    assert info["kind"] == "language_model" and info["step"] == 6 and info["checksums"] == "verified"
    assert info["tokenizer"].startswith("bytes-256-")
    assert info["config"]["model.attention.n_experts"] == "3"
    tensors = {tensor["name"]: tensor for tensor in info["tensors"]}
    assert tensors["model.embed"] == {"name": "model.embed", "dtype": "float32", "shape": [256, 32], "bytes": 32768}
    assert info["bytes"]["model"] == sum(t["bytes"] for n, t in tensors.items() if n.startswith("model."))
    assert info["bytes"]["optimizer"] >= 2 * 4 * info["parameters"] and "memory" in info["bytes"]
    text = headroom("checkpoint", "info", trained).stdout
    assert f"{info['parameters']} parameters, step 6" in text and "checksums verified" in text


def test_info_of_layers_that_differ(headroom, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abc,def;" * 200)
    config = small_config(
        tmp_path / "mixed.toml", text, "model.n_layers = 3", "model.attention.d_head = 8", "train.steps = 1",
        'model.layers = [{ repeat = 2, attention = { score = "linear" } }, { attention = { window = 4, n_heads = 1 } }]')
    headroom("train", config, "--out", tmp_path / "run")
    lines = headroom("checkpoint", "info", tmp_path / "run").stdout.splitlines()
    (linear,) = [line for line in lines if "score linear" in line]
    (local,) = [line for line in lines if "score dot" in line]
    assert " 2 " in linear and "window" not in linear and " 1 " in local and "1 heads of 8" in local and "window 4" in local


def test_a_warning_if_the_validation_data_has_changed(headroom, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("some letters and digits, 0123456789\n" * 400)
    config = small_config(tmp_path / "mine.toml", None, 'data.train = ["texts/*.txt"]', "train.steps = 1")
    headroom("train", config, "--out", tmp_path / "run")
    files = [tmp_path / "run", tmp_path / "run" / "checkpoints" / "step_1.safetensors"]
    assert not any("changed" in headroom("evaluate", file).stderr for file in files)
    (texts / "b.txt").write_text("more of them: abcdefgh\n" * 400)
    identity = json.loads((tmp_path / "run" / "run.json").read_text())["validation_data"]
    for file in files:
        assert f"{file}: the validation data has changed since the run, from {identity} to " in headroom("evaluate", file).stderr
    assert "changed" not in headroom("evaluate", files[0], "--data", texts / "a.txt").stderr


def test_export_keeps_what_evaluation_needs(headroom, trained, tmp_path):
    out = tmp_path / "small.safetensors"
    done = headroom.json("checkpoint", "export", trained, "--out", out)
    info = headroom.json("checkpoint", "info", out)
    assert set(info["bytes"]) == {"model"} and done["parameters"] == info["parameters"]
    assert out.stat().st_size < 0.5 * next((trained / "checkpoints").glob("*.safetensors")).stat().st_size
    data = tmp_path / "text.txt"
    data.write_text("the head attends to every token\n" * 40)
    before, after = (headroom.json("evaluate", run, "--data", data) for run in (trained, out))
    assert before["loss"] == after["loss"]
    assert "huggingface" in headroom("checkpoint", "export", "--help").stdout
    refusal = headroom.refusal("checkpoint", "export", trained, "--format", "huggingface", "--out", tmp_path / "hf")
    assert "model.memory_length" in refusal and not (tmp_path / "hf").exists()
    assert "--out: " in headroom.refusal("checkpoint", "export", trained, "--out", "")
    other = tmp_path / "mine.toml"
    other.write_text("[model]")
    for there in (other, tmp_path):
        assert f"--out: {there}" in headroom.refusal("checkpoint", "export", trained, "--out", there)
    assert other.read_text() == "[model]"
    assert "--force" in headroom.refusal("checkpoint", "export", trained, "--out", out)
    headroom("checkpoint", "export", trained, "--out", out, "--force")


def test_export_does_not_replace_resumable_checkpoints(headroom, trained, tmp_path):
    whole = trained / "checkpoints" / "step_6.safetensors"
    copy = tmp_path / "copy.safetensors"
    shutil.copy(whole, copy)
    before = whole.read_bytes()
    assert f"--out: {copy}" in headroom.refusal("checkpoint", "export", trained, "--out", copy)
    for inside in (whole, whole.parent / "step_7.safetensors", trained / "checkpoints" / ".." / "checkpoints" / "x"):
        assert f"--out: {inside}" in headroom.refusal("checkpoint", "export", copy, "--out", inside)
    assert whole.read_bytes() == copy.read_bytes() == before and not (whole.parent / "step_7.safetensors").exists()


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama", "mistral"])
def test_import_evaluates_generates_and_exports(headroom, tmp_path, kind):
    out = tmp_path / "model.safetensors"
    folder = tmp_path / "in"
    shutil.copytree(MODELS / kind, folder)
    assert "tokenizer" in headroom("import", folder, "--out", out).stderr  # its ids stand for bytes
    out.unlink()
    shutil.copy(MODELS / "tokenizer.json", folder)
    done = headroom.json("import", folder, "--out", out)
    assert "--force" in headroom.refusal("import", folder, "--out", out)
    assert headroom.json("import", folder, "--out", out, "--force") == done
    assert done["kind"] == kind and done["parameters"] > 1000 and done["tokenizer"].startswith("bpe-40-")
    data = tmp_path / "text.txt"
    data.write_text("abc,def;0123456789:" * 20)
    loss = headroom.json("evaluate", out, "--data", data)["loss"]
    text = headroom.json("generate", out, "--prompt", "abc", "--tokens", 30, "--temperature", 0)["text"]
    assert len(text) >= 30
    headroom("checkpoint", "export", out, "--format", "huggingface", "--out", tmp_path / "back")
    assert "--force" in headroom.refusal("checkpoint", "export", out, "--format", "huggingface", "--out", tmp_path / "back")
    again = headroom.json("import", tmp_path / "back", "--out", tmp_path / "again.safetensors")
    assert again == {**done, "checkpoint": str(tmp_path / "again.safetensors")}
    assert headroom.json("evaluate", tmp_path / "again.safetensors", "--data", data)["loss"] == loss


def test_training_with_a_tokenizer_from_elsewhere(headroom, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("abc,def;" * 200)
    config = small_config(tmp_path / "bpe.toml", text, 'tokenizer.kind = "bpe"',
                          f'tokenizer.model = "{MODELS}/tokenizer.json"', "train.steps = 2")
    run = tmp_path / "run"
    assert headroom.json("train", config, "--out", run)["steps"] == 2
    info = headroom.json("checkpoint", "info", run)
    assert info["tokenizer"].startswith("bpe-40-") and info["config"]["model.vocabulary_size"] == "40"
    assert headroom.json("evaluate", run)["tokens"] > 0
    ids = headroom.json("tokenizer", "encode", MODELS / "tokenizer.json", "bad")["ids"]
    assert ids == [1, 0, 3]
    assert headroom.json("tokenizer", "decode", MODELS / "tokenizer.json", *ids)["text"] == "bad"
    assert "0x45" in headroom.refusal("tokenizer", "encode", MODELS / "tokenizer.json", "E")
