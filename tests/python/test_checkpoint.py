"""Models trained by the program are opened in Python, and the reverse."""

import copy
import json
import math
import pickle
import struct

import pytest
import torch

import headroom_torch as ht
from refusals import assert_refused
from train_runs import small_config

TEXT = "It's the head that attends; the room, it doesn't. In 1984 he'll say 'hello' -- 12345 times:\n\n  a b  c\n"
CONTEXT = 32
TOKENIZERS = {"bytes": (), "words": ('tokenizer.kind = "words"', "tokenizer.vocabulary_size = 0"),
              "sentencepiece": ('tokenizer.kind = "sentencepiece"', "tokenizer.vocabulary_size = 300")}


@pytest.fixture(scope="module", params=list(TOKENIZERS))
def run(request, headroom, tmp_path_factory):
    """Returns a run folder, trained with this kind of tokenizer."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "text.txt").write_text(TEXT * 20)
    config = small_config(
        folder / "config.toml", folder / "text.txt", f"model.context_length = {CONTEXT}", "model.dropout = 0.1",
        "model.attention.d_head = 8", 'model.attention.projection = "experts"', "model.attention.n_experts = 3",
        "model.attention.top_k = 2", 'model.attention.position = "relative"', *TOKENIZERS[request.param], "train.steps = 5",
        "train.learning_rate = 1e-2")
    headroom("train", config, "--out", folder / "run")
    return folder / "run"


@pytest.fixture
def short(tmp_path):
    """Returns a text file that fits into the context."""
    (tmp_path / "short.txt").write_text(TEXT[:24])
    return tmp_path / "short.txt"


def loss_of(model, text):
    ids = model.tokenizer.encode(text)[None]
    return float(model.loss(ids[:, :-1], ids[:, 1:]).detach())


def changed(model, by=0.02):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * by)
    return model


def test_opens_what_the_program_trained(headroom, run, short):
    model = ht.LanguageModel.from_checkpoint(run)
    assert model.step == 5 and not model.training and "experts" in model.extra_repr()
    assert model.tokenizer.kind == run.parent.name.rstrip("0123456789")
    file = run / "checkpoints" / "step_5.safetensors"
    assert torch.equal(ht.LanguageModel.from_checkpoint(str(file)).head.w, model.head.w)
    ours, theirs = loss_of(model, short.read_text()), headroom("evaluate", run, "--data", short)
    assert abs(ours - theirs["loss"]) < 1e-5
    written = headroom("generate", run, "--prompt", "the head ", "--tokens", 12, "--temperature", 0)["text"]
    text = model.generate(model.tokenizer.encode("the head ")[None], 12, temperature=0)[0]
    assert model.tokenizer.decode(text).endswith(written) and written


def test_the_program_reads_what_is_saved(headroom, run, short, tmp_path):
    model = changed(ht.LanguageModel.from_checkpoint(run))
    out = tmp_path / "changed.safetensors"
    model.save_checkpoint(out, step=7)
    before, after = (headroom("evaluate", which, "--data", short)["loss"] for which in (run, out))
    assert abs(before - after) > 1e-3
    assert abs(loss_of(model, short.read_text()) - after) < 1e-5
    info, original = headroom("checkpoint", "info", out), headroom("checkpoint", "info", run)
    assert info["step"] == 7 and info["checksums"] == "verified"
    assert info["tokenizer"] == original["tokenizer"] == model.tokenizer.name
    differing = {key for key, value in info["config"].items() if value != original["config"][key]}
    assert differing <= {"tokenizer.vocabulary_size"}, differing
    again = ht.LanguageModel.from_checkpoint(out)
    tokens = torch.randint(model.tokenizer.vocabulary_size, (2, CONTEXT))
    torch.testing.assert_close(again(tokens), model(tokens), atol=1e-5, rtol=0)


def test_training_state_is_not_overwritten(run, tmp_path):
    file = run / "checkpoints" / "step_5.safetensors"
    before = file.read_bytes()
    model = ht.LanguageModel.from_checkpoint(run)
    assert_refused(lambda: model.save_checkpoint(file), "step_5.safetensors is a checkpoint that training can resume from")
    assert_refused(lambda: ht.convert(tmp_path, file), "step_5.safetensors is a checkpoint that training can resume from")
    assert file.read_bytes() == before


def test_a_model_made_here(headroom, short, tmp_path):
    model = ht.LanguageModel(vocabulary_size=256, n_layers=1, d_model=24, context_length=CONTEXT, seed=1,
                             attention=dict(n_heads=2, d_head=8), mlp=dict(d_hidden=32))
    out = tmp_path / "made.safetensors"
    changed(model, 0.1).save_checkpoint(out, tokenizer=ht.Tokenizer.bytes())
    ids = torch.tensor([list(short.read_bytes())])
    theirs = headroom("evaluate", out, "--data", short)["loss"]
    assert abs(float(model.loss(ids[:, :-1], ids[:, 1:]).detach()) - theirs) < 1e-5 and theirs != pytest.approx(math.log(256))
    assert headroom("generate", out, "--prompt", "the", "--tokens", 5)["text"]
    half = ht.LanguageModel.from_checkpoint(out, dtype=torch.bfloat16)
    assert half.head.w.dtype == torch.bfloat16
    half.save_checkpoint(tmp_path / "half.safetensors")
    assert ht.LanguageModel.from_checkpoint(tmp_path / "half.safetensors").head.w.dtype == torch.float32
    ht.Tokenizer.bytes().save(tmp_path / "bytes.tokenizer")
    model.save_checkpoint(tmp_path / "same.safetensors", tokenizer=tmp_path / "bytes.tokenizer")
    assert (tmp_path / "same.safetensors").read_bytes() == out.read_bytes()


COMMON = dict(n_layers=1, d_model=24, context_length=16, mlp=dict(d_hidden=32), seed=1,
              attention=dict(n_heads=2, d_head=8, position="sinusoidal"))
TOKENS = torch.arange(24).reshape(2, 12)
KINDS = {
    "MaskedLanguageModel": (dict(vocabulary_size=258), (TOKENS,), True),
    "EncoderDecoder": (dict(vocabulary_size=256), (TOKENS, TOKENS[:, :5]), True),
    "Classifier": (dict(vocabulary_size=256, n_classes=3), (TOKENS,), False),
    "VisionTransformer": (dict(image_size=8, patch_size=4, n_classes=3, context_length=4),
                          (torch.linspace(0, 1, 384).reshape(2, 3, 8, 8),), False)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_other_models(headroom, tmp_path, kind):
    options, inputs, reads_text = KINDS[kind]
    model = changed(getattr(ht, kind)(**{**COMMON, **options})).eval()
    out = tmp_path / "model.safetensors"
    model.save_checkpoint(out, tokenizer=ht.Tokenizer.bytes() if reads_text else None)
    again = getattr(ht, kind).from_checkpoint(out)
    assert torch.equal(again(*inputs), model(*inputs))
    assert headroom("checkpoint", "info", out)["kind"] == type(model).KIND
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(out), f"got a {type(model).KIND}")
    if not reads_text:
        assert_refused(lambda: model.save_checkpoint(out, tokenizer=ht.Tokenizer.bytes()), "save_checkpoint: tokenizer")


def test_a_vocabulary_for_each_side(headroom, tmp_path):
    one = ht.Tokenizer.bytes()
    two = ht.Tokenizer.for_translation(one, one)
    assert two.for_sources.name == one.name == one.for_sources.name != two.name
    assert pickle.loads(pickle.dumps(two)).for_sources.name == one.name
    options = dict(vocabulary_size=256, source_vocabulary_size=256, tied_embeddings=True)
    model = changed(ht.EncoderDecoder(**{**COMMON, **options})).eval()
    out = tmp_path / "model.safetensors"
    assert_refused(lambda: model.save_checkpoint(out, tokenizer=one), "has 0 ids for sources alone")
    model.save_checkpoint(out, tokenizer=two)
    again = ht.EncoderDecoder.from_checkpoint(out)
    assert torch.equal(again(TOKENS, TOKENS[:, :5]), model(TOKENS, TOKENS[:, :5])) and again.tokenizer.name == two.name
    assert headroom("checkpoint", "info", out)["tokenizer"] == two.name


def test_tokenizers(tmp_path):
    tokenizer = ht.Tokenizer.bytes()
    assert tokenizer.kind == "bytes" and tokenizer.vocabulary_size == 256 and tokenizer.name.startswith("bytes-256-")
    assert tokenizer.encode("né").tolist() == list("né".encode())
    assert tokenizer.decode(tokenizer.encode("né")) == "né" and tokenizer.decode([255]) == "\ufffd"
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert other.name == tokenizer.name
    for outside in (256, -1, 2**40):
        assert_refused(lambda: tokenizer.decode([outside]), f"an id must be 0 to 255, got {outside}")
    assert tokenizer.decode([]) == "" and tokenizer.decode(torch.tensor([65], dtype=torch.int32)) == "A"
    assert_refused(lambda: tokenizer.decode(torch.zeros(2, 2)), "ids must be int64")
    assert_refused(lambda: tokenizer.decode([65.5]), "ids must be int64")
    assert_refused(lambda: tokenizer.encode("a\ud800"), "surrogates not allowed")
    assert_refused(lambda: ht.Tokenizer(tmp_path / "none"), "none")


# The texts have blanks, line ends, SentencePiece's blank symbol, characters without a piece, and NUL.
TEXTS = ["the head that attends", " the  head ", "a\nb", "a\n\nb\n", "\n", "\u2581a \u2581", "n\u00e9 \U0001f600 \u4e2d", "\0\t\r\n",
         "</s><s><0x0A>", TEXT, ""]


@pytest.mark.parametrize("run", TOKENIZERS, indirect=True)
def test_ids_match_the_program(headroom, run, tmp_path):
    tokenizer = ht.LanguageModel.from_checkpoint(run).tokenizer
    tokenizer.save(tmp_path / "saved.tokenizer")
    text = "".join(TEXTS).replace("\0", "")
    theirs = headroom("tokenizer", "encode", tmp_path / "saved.tokenizer", text)
    assert tokenizer.encode(text).tolist() == theirs["ids"]
    assert tokenizer.decode(theirs["ids"]) == headroom("tokenizer", "decode", tmp_path / "saved.tokenizer",
                                                       *theirs["ids"])["text"]
    for text in TEXTS:
        known = tokenizer.decode(tokenizer.encode(text))
        assert known == text if tokenizer.kind == "bytes" else tokenizer.decode(tokenizer.encode(known)) == known
    assert ht.Tokenizer(tmp_path / "saved.tokenizer").encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()


@pytest.mark.parametrize("run", ["sentencepiece"], indirect=True)
def test_a_sentencepiece_model(run, tmp_path):
    tokenizer = ht.LanguageModel.from_checkpoint(run).tokenizer
    assert tokenizer.vocabulary_size == 300 and b"<0x0A>" in tokenizer.serialised
    (tmp_path / "pieces.model").write_bytes(tokenizer.serialised)
    assert ht.Tokenizer(tmp_path / "pieces.model").name == tokenizer.name
    for other in (copy.deepcopy(tokenizer), pickle.loads(pickle.dumps(tokenizer))):
        assert torch.equal(other.encode(TEXT), tokenizer.encode(TEXT))
    (tmp_path / "no.model").write_bytes(tokenizer.serialised[:-3])
    assert_refused(lambda: ht.Tokenizer(tmp_path / "no.model"), "not a SentencePiece model")
    assert_refused(lambda: tokenizer.decode([300]), "an id must be 0 to 299, got 300")


def test_copies_keep_the_tokenizer(tmp_path):
    made = ht.LanguageModel(vocabulary_size=256, **COMMON)
    made.save_checkpoint(tmp_path / "made.safetensors", tokenizer=ht.Tokenizer.bytes())
    model = ht.LanguageModel.from_checkpoint(tmp_path / "made.safetensors")
    for number, other in enumerate((copy.deepcopy(model), pickle.loads(pickle.dumps(model)))):
        other.save_checkpoint(tmp_path / f"{number}.safetensors")
        assert (tmp_path / f"{number}.safetensors").read_bytes() == (tmp_path / "made.safetensors").read_bytes()


def with_value(path, out, name, value):
    """Writes a copy of the checkpoint in which a tensor's first value differs and checksums are missing."""
    whole = bytearray(path.read_bytes())
    begin = 8 + struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:begin])
    del header["__metadata__"]["checksums"]
    first = begin + header[name]["data_offsets"][0]
    whole[first:first + 4] = struct.pack("<f", value)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    out.write_bytes(struct.pack("<Q", len(text)) + text + whole[begin:])


def test_refusals(tmp_path):
    model = ht.LanguageModel(vocabulary_size=50, **COMMON)
    out = tmp_path / "model.safetensors"
    assert_refused(lambda: model.save_checkpoint(out), "tokenizer must be given")
    assert_refused(lambda: model.save_checkpoint(out, tokenizer=ht.Tokenizer.bytes()), "the 50 tokens .* got bytes-256")
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path / "nowhere"), "no such run folder or checkpoint")
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path), "holds no checkpoint")
    model = ht.LanguageModel(vocabulary_size=256, **COMMON)
    model.save_checkpoint(out, tokenizer=ht.Tokenizer.bytes())
    damaged = bytearray(out.read_bytes())
    damaged[-5] ^= 1
    (tmp_path / "damaged.safetensors").write_bytes(damaged)
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path / "damaged.safetensors"), "damaged.safetensors")
    (tmp_path / "short.safetensors").write_bytes(damaged[:200])
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path / "short.safetensors"), "short.safetensors")
    for value in (1.5, math.nan, math.inf):
        with_value(out, tmp_path / "value.safetensors", "model.norm_f.scale", value)
        if math.isfinite(value):
            assert ht.LanguageModel.from_checkpoint(tmp_path / "value.safetensors").norm_f.scale[0] == value
        else:
            assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path / "value.safetensors"),
                           "value.safetensors: parameter norm_f.scale")
            assert_refused(lambda: ht.convert(tmp_path / "value.safetensors", tmp_path / "folder"),
                           "value.safetensors: parameter norm_f.scale")
    with torch.no_grad():
        model.head.w.fill_(float("nan"))
    before = out.read_bytes()
    assert_refused(lambda: model.save_checkpoint(out, tokenizer=ht.Tokenizer.bytes()), "head.w.*not finite")
    assert out.read_bytes() == before
