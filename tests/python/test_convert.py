"""Compares converted random Hugging Face models with `transformers`."""

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers

import headroom_torch as ht
import headroom_torch.huggingface as hf
from random_transformers import CONFIGS, bpe, random_model
from refusals import assert_refused

CONTEXT = 32
TEXT = "It's the head that attends; the room, it doesn't. Été déjà vu 1984 times. "


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request, tmp_path_factory):
    """Returns a folder with a model saved by `transformers`, and its tokenizer."""
    tokenizer = bpe("gpt2")
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


# The models have two layers and transformers' attention matrices: no alternating windows, sinks, latents or states.
ALIKE = [kind for kind in CONFIGS if kind not in ("gemma3_text", "gpt_oss", "deepseek_v2", "jetmoe") and
         not kind.startswith("qwen3_next")]


@pytest.mark.parametrize("folder", ALIKE, indirect=True)
def test_attentions_and_hidden_states_match_transformers(folder, tmp_path):
    """Models that `transformers` implements too are padded on the left, run with and without caches, and generate text."""
    ht.convert(folder, tmp_path / "model.safetensors")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    ours = hf.HeadroomForCausalLM.from_checkpoint(tmp_path / "model.safetensors")
    ids, mask = torch.randint(256, (2, 9), generator=torch.Generator().manual_seed(0)), torch.ones(2, 9, dtype=torch.long)
    mask[1, :3] = 0
    look = dict(output_attentions=True, output_hidden_states=True)
    places = dict(position_ids=(mask.cumsum(1) - 1).clamp_min(0))

    def compare(a, b, valid):
        assert len(a.attentions) == len(b.attentions) == 2 and len(a.hidden_states) == len(b.hidden_states) == 3
        for x, y in zip([*a.attentions, *(h[:, None] for h in a.hidden_states)],
                        [*b.attentions, *(h[:, None] for h in b.hidden_states)], strict=True):
            assert x.shape == y.shape
            real = valid[:, None, -x.shape[2]:, None].bool().expand_as(x)
            torch.testing.assert_close(x[real], y[real], atol=3e-5, rtol=1e-4)

    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask, **places, **look)
        n_heads = expected.attentions[0].shape[1]
        compare(ours(ids, attention_mask=mask, **look), expected, mask)
        compare(ours(ids, attention_mask=mask, use_cache=True, **look), expected, mask)
        plain = ours(ids)
    assert plain.attentions is None and plain.hidden_states is None
    how = dict(attention_mask=mask, max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0,
               return_dict_in_generate=True, **look)
    written, expected = ours.generate(ids, **how), theirs.generate(ids, **how)
    assert torch.equal(written.sequences, expected.sequences)
    for i in range(4):
        step = [type("Step", (), dict(attentions=w.attentions[i], hidden_states=w.hidden_states[i]))
                for w in (written, expected)]
        compare(*step, mask if i == 0 else torch.ones(2, 1))
    torch.autograd.grad(ours(ids, output_attentions=True).attentions[1].square().sum(),
                        ours.model.layer0.attention.w_q)
    ours.train()
    result = ours(ids, labels=ids, **look)
    assert result.logits is None and result.attentions[0].shape == (2, n_heads, 8, 8)


def test_special_tokens_are_kept(tmp_path):
    """Imported models survive the engine's checkpoint and a saved folder."""
    theirs = random_model("llama", 256, CONTEXT)
    theirs.config.bos_token_id, theirs.config.eos_token_id = 1, [2, 3]
    theirs.generation_config.eos_token_id = [2, 3]
    theirs.save_pretrained(tmp_path / "theirs")
    ht.Tokenizer.bytes().save(tmp_path / "bytes.tokenizer")
    ht.convert(tmp_path / "theirs", tmp_path / "a.safetensors", tokenizer=tmp_path / "bytes.tokenizer")
    ht.LanguageModel.from_checkpoint(tmp_path / "a.safetensors").save_checkpoint(tmp_path / "b.safetensors")
    hf.HeadroomForCausalLM.from_checkpoint(tmp_path / "b.safetensors").save_pretrained(tmp_path / "saved")
    ht.convert(tmp_path / "saved", tmp_path / "c.safetensors")
    ours = hf.HeadroomForCausalLM.from_checkpoint(tmp_path / "c.safetensors")
    assert (ours.config.bos_token_id, ours.config.eos_token_id) == (1, [2, 3])


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
