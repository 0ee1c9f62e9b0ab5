"""Conversion of Hugging Face models, compared with `transformers` on random models."""

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

import headroom_torch as ht
from random_transformers import CONFIGS, random_model
from refusals import assert_refused

CONTEXT = 32
TEXT = "It's the head that attends; the room, it doesn't. Été déjà vu 1984 times. "


def bpe():
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.decoder = tokenizers.decoders.ByteLevel()
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator([TEXT * 5], tokenizers.trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return made


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request, tmp_path_factory):
    """A folder with a model saved by `transformers`, and its tokenizer."""
    tokenizer = bpe()
    made = random_model(request.param, tokenizer.get_vocab_size(), CONTEXT)
    path = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(path)
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_round_trip(folder, tmp_path):
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    assert ht.convert(folder, tmp_path / "model.safetensors") == theirs.config.model_type
    model = ht.LanguageModel.from_checkpoint(tmp_path / "model.safetensors")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = tokenizer.encode(TEXT).ids
    assert model.tokenizer.kind == "bpe" and model.tokenizer.encode(TEXT).tolist() == ids
    assert model.tokenizer.decode(ids) == TEXT
    tokens = torch.randint(model.tokenizer.vocabulary_size, (2, CONTEXT))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)
    written = model.generate(tokens[:, :4], 8, temperature=0)
    assert torch.equal(written, theirs.generate(tokens[:, :4], max_new_tokens=8, do_sample=False, eos_token_id=None))
    model.save_checkpoint(tmp_path / "again.safetensors")
    assert ht.convert(tmp_path / "again.safetensors", tmp_path / "back") == theirs.config.model_type
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back").eval()
    with torch.no_grad():
        torch.testing.assert_close(back(tokens).logits, theirs(tokens).logits, atol=1e-5, rtol=0)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "back").encode(TEXT) == ids


@pytest.mark.parametrize("folder", ["gpt2", "llama"], indirect=True)
def test_convert_agrees_with_the_program(headroom, folder, tmp_path):
    headroom("import", folder, "--out", tmp_path / "theirs.safetensors")
    ht.convert(folder, tmp_path / "ours.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (tmp_path / "theirs.safetensors").read_bytes()
    headroom("checkpoint", "export", tmp_path / "theirs.safetensors", "--format", "huggingface", "--out", tmp_path / "a")
    ht.convert(tmp_path / "ours.safetensors", tmp_path / "b")
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "b").iterdir())
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


@pytest.mark.parametrize("folder", ["gpt2"], indirect=True)
def test_convert_replaces_nothing_but_checkpoints(folder, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    safetensors.torch.save_file({"tokens": torch.arange(3)}, tmp_path / "other.tokens")
    for target in (tmp_path / "notes.txt", tmp_path / "other.tokens", folder / "config.json", folder / "model.safetensors"):
        assert_refused(lambda: ht.convert(folder, target), "exists and is not a checkpoint")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_refusals(tmp_path):
    model = ht.LanguageModel(vocabulary_size=256, n_layers=1, d_model=24, seed=1, head_bias=False,
                             attention=dict(n_heads=2, d_head=8, projection="experts"), mlp=dict(d_hidden=32))
    model.save_checkpoint(tmp_path / "model.safetensors", tokenizer=ht.Tokenizer.bytes())
    assert_refused(lambda: ht.convert(tmp_path / "model.safetensors", tmp_path / "out"), "model.attention.projection")
    assert_refused(lambda: ht.convert(tmp_path / "model.safetensors", tmp_path / "out", tokenizer=tmp_path / "t"),
                   "convert: tokenizer:")
    assert_refused(lambda: ht.convert(tmp_path / "nowhere", tmp_path / "out"), "no such run folder or checkpoint")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert_refused(lambda: ht.convert(tmp_path, tmp_path / "out"), 'config.json: model_type must be one of gpt2')
