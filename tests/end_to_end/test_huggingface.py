"""Random models and tokenizers are compared with `transformers` and `tokenizers`; tests/python/test_convert.py has the imports."""

import random

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import train_runs  # noqa: E402
from random_transformers import TEXT, bpe, random_model  # noqa: E402

CONTEXT = 48
SCALINGS = {"linear": {"factor": 3.0}, "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 3.0},
            "yarn": {"factor": 4.0, "beta_fast": 4.0}}
for name, values in SCALINGS.items():
    values.update({"rope_type": name} | ({} if name == "linear" else {"original_max_position_embeddings": 12}))


def loss_of(model, ids):
    with torch.no_grad():
        logits = model(torch.tensor([ids[:-1]])).logits[0]
    return torch.nn.functional.cross_entropy(logits.double(), torch.tensor(ids[1:])).item()


@pytest.mark.parametrize("kind, scaling", [
    *(("llama", scaling) for scaling in SCALINGS), ("gpt_neox", "linear"), ("qwen3", "yarn"), ("gemma3_text", "linear"),
    ("gpt_oss", "llama3"), ("deepseek_v2", "llama3"), ("jetmoe", "linear"), ("qwen3_next", "llama3"), ("qwen3_next", "yarn")])
def test_scaled_rotary_positions(headroom, tmp_path, kind, scaling):
    theirs = random_model(kind, 256, CONTEXT, SCALINGS[scaling])
    theirs.save_pretrained(tmp_path / "theirs")
    out = tmp_path / "model.safetensors"
    headroom("import", tmp_path / "theirs", "--out", out)
    ids = list(TEXT[:CONTEXT].encode())  # longer than the original context
    (tmp_path / "text.txt").write_text(TEXT[:CONTEXT])
    mine = headroom.json("evaluate", out, "--data", tmp_path / "text.txt")
    assert abs(mine["loss"] - loss_of(theirs, ids)) < 1e-5
    assert abs(loss_of(random_model(kind, 256, CONTEXT), ids) - loss_of(theirs, ids)) > 1e-4  # the scaling has an effect
    headroom("checkpoint", "export", out, "--format", "huggingface", "--out", tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        assert (again(torch.tensor([ids])).logits - theirs(torch.tensor([ids])).logits).abs().max() < 1e-5


@pytest.mark.parametrize("settings", [
    ["model.attention.position=learned", "model.attention.bias=true", "model.mlp.activation=gelu_tanh"],
    ["model.attention.rope_fraction=0.5", "model.arrangement=parallel"],
    ["model.norm=rms", "model.mlp.kind=gated", "model.mlp.activation=silu", "model.attention.n_kv_heads=1",
     "model.attention.window=7", "model.mlp.bias=false"],
    ["model.norm=rms", "model.mlp.kind=gated", "model.mlp.activation=silu", "model.attention.window=7",
     "model.attention.window_pattern=1:1", "model.mlp.bias=false"]], ids=["gpt2", "gpt_neox", "mistral", "ministral"])
def test_export_of_a_model_trained_here(headroom, tmp_path, settings):
    text = tmp_path / "text.txt"
    text.write_text(TEXT * 5)
    config = train_runs.small_config(tmp_path / "dense.toml", text, f"model.context_length = {CONTEXT}",
                                     "model.head_bias = false", "train.steps = 5")
    run, out = tmp_path / "run", tmp_path / "hf"
    sets = [part for setting in settings for part in ("--set", setting)]
    headroom("train", config, "--out", run, *sets)
    headroom("checkpoint", "export", run, "--format", "huggingface", "--out", out)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out).eval()
    (tmp_path / "short.txt").write_text(TEXT[:CONTEXT])
    mine = headroom.json("evaluate", run, "--data", tmp_path / "short.txt")
    assert abs(mine["loss"] - loss_of(theirs, list(TEXT[:CONTEXT].encode()))) < 1e-5
    assert transformers.AutoTokenizer.from_pretrained(out).encode(TEXT) == list(TEXT.encode())


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "llama"])  # other kinds have the tokenizer of gpt2
def test_ids_of_random_texts(headroom, tmp_path, kind):
    safetensors = pytest.importorskip("safetensors.numpy")
    made = bpe(kind)
    made.save(str(tmp_path / "tokenizer.json"))
    pieces = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "'s", "'S", "'ll", "a", "Z", "é", "e\u0301", "1", "234", "½",
              "٣", "!", "...", "\u00a0", "\u3000", "\u180e", "\u0085", "日本", "😀", "<|endoftext|>", "<|", "'", "\u2028",
              "the", "head"]
    draw = random.Random(7)
    text = "".join(draw.choice(pieces) for _ in range(20000))
    (tmp_path / "text.txt").write_bytes(text.encode())
    headroom("data", "prepare", tmp_path / "text.txt", "--tokenizer", tmp_path, "--out", tmp_path / "text.tokens")
    mine = safetensors.load_file(tmp_path / "text.tokens")["tokens"]
    assert mine.tolist() == made.encode(text).ids


def test_an_evaluation_says_that_begin_tokens_are_left_out(headroom, tmp_path):
    made, end = bpe("llama"), "<|endoftext|>"
    theirs, ids = random_model("llama", made.get_vocab_size(), CONTEXT), made.encode(TEXT).ids[:CONTEXT]
    theirs.save_pretrained(tmp_path / "theirs")
    made.post_processor = tokenizers.processors.TemplateProcessing(f"{end} $A", special_tokens=[(end, made.token_to_id(end))])
    made.save(str(tmp_path / "theirs" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text(made.decode(ids))
    mine = headroom.json("evaluate", tmp_path / "theirs", "--data", tmp_path / "text.txt")
    assert abs(mine["loss"] - loss_of(theirs, ids)) < 1e-5 and mine["begin"] == "none"
    shown = headroom("evaluate", tmp_path / "theirs", "--data", tmp_path / "text.txt").stdout
    assert "without the tokens that its tokenizer puts in front of a text" in shown
