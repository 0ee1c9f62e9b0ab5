"""Compares SentencePiece tokenizers with the packages `sentencepiece` and `transformers` on difficult texts."""

import json
import random

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
sentencepiece = pytest.importorskip("sentencepiece", reason="the package sentencepiece is not installed")

import train_runs  # noqa: E402
from random_transformers import random_model  # noqa: E402

CONTEXT = 48
HOSTILE = [
    "line\nend", "line\n end\n\n", "\n", " ", "  two  blanks  ", "a\r\nb", "\ttab\t", "\u2581", "\u2581 \u2581x\n\u2581",
    "a\u2581b", "<s>The</s><unk><0x0A>", "\u3000wide\u3000", "\u00a0kept\u00a0", "e\u0301t\u00e9", "\ufb01ne \u00bd \u00a8 x",
    "\ufeffmark", "\u65e5\u672c\u8a9e \U0001f600", "\u200bzero", "\u0085next \u2028line\u2029", "12 345", "x" * 300 + " y"]


def texts():
    draw = random.Random(9)
    pieces = [" ", "  ", "\n", "\u2581", "the", " head", "\u00e9", "e\u0301", "\t", ".", "12", "\u65e5", "\u00a0", "<s>"]
    return HOSTILE + ["".join(draw.choice(pieces) for _ in range(40)) for _ in range(8)]


def corpus(folder):
    train_runs.write_text(folder / "corpus.txt", 20000, 1)
    return folder / "corpus.txt"


def ids(headroom, tokenizer, many):
    return [headroom.json("tokenizer", "encode", tokenizer, text)["ids"] for text in many]


def test_models_from_elsewhere_give_the_ids_of_the_package(headroom, tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus(tmp_path)), model_prefix=str(tmp_path / "tokenizer"), vocab_size=300, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2,
        hard_vocab_limit=False)
    package = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    many = texts()
    assert ids(headroom, tmp_path / "tokenizer.model", many) == [package.encode(text) for text in many]

    # A model's folder adds the token that LLaMA's class puts in front of texts.
    folder = tmp_path / "llama"
    random_model("llama", package.get_piece_size(), CONTEXT).save_pretrained(folder)
    (tmp_path / "tokenizer.model").rename(folder / "tokenizer.model")
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
         "add_bos_token": True}))
    headroom("import", folder, "--out", tmp_path / "model.safetensors")
    assert ids(headroom, tmp_path / "model.safetensors", many) == [package.encode(text) for text in many]
    headroom("checkpoint", "export", tmp_path / "model.safetensors", "--format", "huggingface", "--out", tmp_path / "back")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in many:
        if "<" not in text:  # transformers takes this for the start of a special token
            assert again.encode(text) == [package.bos_id(), *package.encode(text)], repr(text)
    assert (tmp_path / "back" / "tokenizer.model").read_bytes() == (folder / "tokenizer.model").read_bytes()
    config, original = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "back", folder))
    assert [config[key] for key in ("bos_token_id", "eos_token_id")] == [original[key] for key in
                                                                         ("bos_token_id", "eos_token_id")]


@pytest.mark.parametrize("keep_whitespace", ["true", "false"])
def test_exports_of_tokenizers_trained_here_give_their_ids(headroom, tmp_path, keep_whitespace):
    text = corpus(tmp_path)
    train_runs.small_config(tmp_path / "llama.toml", text, *train_runs.LLAMA, f"model.context_length = {CONTEXT}",
                            'tokenizer.kind = "sentencepiece"', "tokenizer.vocabulary_size = 300",
                            f"tokenizer.keep_whitespace = {keep_whitespace}", "train.steps = 1")
    headroom("train", tmp_path / "llama.toml", "--out", tmp_path / "run", "--quiet")
    out = tmp_path / "hf"
    headroom("checkpoint", "export", tmp_path / "run", "--format", "huggingface", "--out", out)
    checkpoint = tmp_path / "run" / "checkpoints" / "step_1.safetensors"
    many = texts()
    expected = ids(headroom, checkpoint, many)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for one, theirs in zip(many, expected):
        assert tokenizer.encode(one) == theirs, repr(one)
        if keep_whitespace == "true":
            assert tokenizer.decode(theirs, skip_special_tokens=True) == one
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    assert model.generation_config.eos_token_id is None and model.config.bos_token_id is None
    headroom("import", out, "--out", tmp_path / "again.safetensors")
    assert ids(headroom, tmp_path / "again.safetensors", many) == expected
    assert headroom.json("evaluate", tmp_path / "again.safetensors", "--data", text)["loss"] == pytest.approx(
        headroom.json("evaluate", tmp_path / "run", "--data", text)["loss"], abs=1e-2)
