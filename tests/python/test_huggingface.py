"""Language models through `transformers`: loading and saving, generate() with the engine's cache, calls as by the Trainer."""

import os
import subprocess
import sys

import pytest
import torch
import transformers

import headroom_torch as ht
import headroom_torch.huggingface as hf
from refusals import assert_refused
from train_runs import PATIENCE

CONTEXT = 24
OPTIONS = {
    "switchhead": dict(attention=dict(n_heads=2, d_head=8, projection="experts", n_experts=3, top_k=2, position="rope")),
    "memory": dict(memory_length=CONTEXT, attention=dict(n_heads=2, d_head=8, position="relative")),
    "tied": dict(tied_embeddings=True, attention=dict(n_heads=2, d_head=8, score="gaussian_mixture", position="learned"))}


@pytest.fixture(scope="module", params=list(OPTIONS))
def checkpoint(request, tmp_path_factory):
    torch.manual_seed(3)
    model = ht.LanguageModel(vocabulary_size=256, n_layers=2, d_model=24, context_length=CONTEXT,
                             mlp=dict(d_hidden=32), **OPTIONS[request.param])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    path = tmp_path_factory.mktemp(request.param) / "model.safetensors"
    model.save_checkpoint(path, tokenizer=ht.Tokenizer.bytes())
    return path


@pytest.fixture
def both(checkpoint, tmp_path):
    """Returns the engine's model, before and after saving and loading with `transformers`."""
    hf.HeadroomForCausalLM.from_checkpoint(checkpoint).save_pretrained(tmp_path)
    return ht.LanguageModel.from_checkpoint(checkpoint), transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def tokens(rows=2, length=8, seed=0):
    return torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(seed))


def cache_of(result):
    return next(result[name] for name in ("cache", "past_key_values") if name in result)  # the name in this version


def new_model(*settings):
    return transformers.AutoModelForCausalLM.from_config(
        hf.HeadroomConfig(["model.vocabulary_size=50", "model.d_model=24", "model.attention.d_head=8", *settings]))


def test_a_folder_has_everything(checkpoint, both, tmp_path):
    ours, theirs = both
    assert isinstance(theirs, hf.HeadroomForCausalLM) and not theirs.training
    assert {name for name, _ in theirs.named_parameters()} == {f"model.{name}" for name, _ in ours.named_parameters()}
    logits = ours(tokens())
    logits = logits[0] if isinstance(logits, tuple) else logits
    assert torch.equal(theirs(tokens()).logits, logits)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (256, 24, 2)
    assert config.num_attention_heads == 2 and config.max_position_embeddings == CONTEXT
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).encode("né") == list("né".encode())


def test_a_folder_opens_with_its_own_code(both, tmp_path):
    """Saved models work in a program that does not import headroom_torch, also after that program saves them again."""
    torch.save((tokens(), both[1](tokens()).logits), tmp_path / "expected.pt")
    code = """if True:
        import sys, torch, transformers
        folder = sys.argv[1]
        ids, expected = torch.load(folder + "/expected.pt")
        for place in (folder, folder + "/again"):
            model = transformers.AutoModelForCausalLM.from_pretrained(place, trust_remote_code=True)
            assert torch.equal(model(ids).logits, expected)
            tokenizer = transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=True)
            assert tokenizer.encode("ab") == [97, 98]
            model.save_pretrained(folder + "/again"), tokenizer.save_pretrained(folder + "/again")
        """

    def run(code):
        return subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, "HF_HOME": str(tmp_path / "home")})

    done = run(code)
    assert done.returncode == 0, done.stderr
    done = run(code.replace("folder =", "sys.modules['headroom_torch'] = None; folder ="))
    assert "this model needs the Python package headroom_torch; install its wheel" in done.stderr


def test_greedy_generation_equals_ours(both):
    ours, theirs = both
    mine = ours.generate(tokens(), 12, temperature=0)
    for use_cache in (True, False):
        text = theirs.generate(tokens(), max_new_tokens=12, do_sample=False, use_cache=use_cache)
        assert torch.equal(text, mine)


def test_the_cache_equals_the_whole_pass(both):
    theirs = both[1]
    with torch.no_grad():
        whole = theirs(tokens(length=12)).logits
        first = theirs(tokens(length=12)[:, :5], use_cache=True)
        second = theirs(tokens(length=12)[:, 5:11], cache=cache_of(first))
        last = theirs(tokens(length=12)[:, 11:], past_key_values=cache_of(second), logits_to_keep=1)
    parts = torch.cat([first.logits, second.logits, last.logits], 1)
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=1e-4)
    assert cache_of(last).get_seq_length() == 12


def test_beams_and_samples(both):
    theirs = both[1]
    beams = [theirs.generate(tokens(), max_new_tokens=6, do_sample=False, num_beams=3, num_return_sequences=2,
                             use_cache=use_cache) for use_cache in (True, False)]
    assert torch.equal(*beams) and beams[0].shape == (4, 14)
    torch.manual_seed(1)
    assert theirs.generate(tokens(), max_new_tokens=40, do_sample=True, top_k=5).shape == (2, 48)  # beyond the context


def test_padding_does_not_change_the_result(both):
    """Padding on either side does not change logits, loss, greedy text and beams."""
    ours, theirs = both
    lengths, width = (3, 8, 5), 8
    texts = [tokens(1, n, seed=n) for n in lengths]
    for left in (True, False):
        ids, mask = torch.full((3, width), 7), torch.zeros((3, width), dtype=torch.long)
        for row, text in enumerate(texts):
            place = slice(width - text.shape[1], width) if left else slice(0, text.shape[1])
            ids[row, place], mask[row, place] = text[0], 1
        with torch.no_grad():
            logits = theirs(ids, attention_mask=mask).logits
            cached = theirs(ids, attention_mask=mask, use_cache=True).logits
            lasts = [theirs(ids, attention_mask=mask, use_cache=use_cache, logits_to_keep=1).logits for use_cache in (True, False)]
        losses = []
        for row, text in enumerate(texts):
            with torch.no_grad():
                expected = theirs(text).logits[0]
            for got in (logits, cached):
                torch.testing.assert_close(got[row][mask[row].bool()], expected, atol=1e-5, rtol=1e-4)
            for last in lasts:
                assert last.shape[1] == 1
                torch.testing.assert_close(last[row, 0], expected[-1], atol=1e-5, rtol=1e-4)
            losses.append(theirs(text, labels=text).loss * (text.shape[1] - 1))
        got = theirs(ids, attention_mask=mask, labels=ids).loss
        torch.testing.assert_close(got, sum(losses) / (sum(lengths) - 3), atol=1e-5, rtol=1e-5)
        if left:
            for how in (dict(), dict(num_beams=3)):
                for use_cache in (True, False):
                    written = theirs.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False,
                                              use_cache=use_cache, **how)
                    for row, text in enumerate(texts):
                        alone = theirs.generate(text, max_new_tokens=6, do_sample=False, **how)
                        assert torch.equal(written[row, width:], alone[0, text.shape[1]:])


def test_the_cache_is_reordered_without_reading_again(both, monkeypatch):
    read = []
    original = ht.Decoder.read
    monkeypatch.setattr(ht.Decoder, "read", lambda self, tokens, valid=None: read.append(tokens.numel()) or
                        original(self, tokens, valid))
    both[1].generate(tokens(), max_new_tokens=6, do_sample=False, num_beams=3)
    assert read == [2 * 3 * 8] + [2 * 3] * 5  # the prompts, then a token of each beam


def test_training(both):
    ours, theirs = both
    theirs.train()
    labels = tokens()
    labels[:, 3] = -100
    result = theirs(tokens(), labels=labels)
    expected = ours.loss(tokens()[:, :-1], labels[:, 1:])
    torch.testing.assert_close(result.loss, expected[0] if isinstance(expected, tuple) else expected)
    result.loss.backward()
    assert all(p.grad is not None for p in theirs.parameters())


def test_a_new_model_begins_as_the_engine_has_it():
    torch.manual_seed(2)
    model = new_model()
    torch.manual_seed(2)
    expected = ht.LanguageModel(vocabulary_size=50, d_model=24, attention=dict(d_head=8)).state_dict()
    for name, value in model.model.state_dict().items():
        assert torch.equal(value, expected[name]), name


def test_attentions_of_any_layer(both):
    theirs = both[1]
    names = [f"layer{i}.attention.probs_composed" for i in range(2)]
    with ht.observe(*names, "layer0.out") as values:
        result = theirs(tokens(), output_attentions=True, output_hidden_states=True)
    for got, name in zip([*result.attentions, result.hidden_states[1]], [*names, "layer0.out"], strict=True):
        assert torch.equal(got, values[name])
    steps = theirs.generate(tokens(), max_new_tokens=CONTEXT, do_sample=False, output_attentions=True,
                            return_dict_in_generate=True).attentions
    assert steps[-1][0].shape == (2, 2, 1, 8 + CONTEXT - 1)  # beyond the context
    torch.testing.assert_close(steps[-1][1].sum(-1), torch.ones(2, 2, 1), atol=1e-4, rtol=0)
    seen = []
    handle = theirs.model.layer1.attention.register_forward_hook(lambda m, given, y: seen.append(y.shape))
    hooked = theirs.generate(tokens(), max_new_tokens=CONTEXT, do_sample=False, output_attentions=True,
                             return_dict_in_generate=True).attentions
    handle.remove()
    assert seen
    for a, b in zip(steps, hooked, strict=True):
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-4)


def test_linear_attention_has_no_weights():
    model = new_model('model.attention.score="linear"', 'model.attention.position="sinusoidal"')
    assert_refused(lambda: model(tokens() % 50, output_attentions=True), "output_attentions: layer0")
    assert len(model(tokens() % 50, output_hidden_states=True).hidden_states) == model.config.num_hidden_layers + 1


TEXT = "It's the head that attends; the room, it doesn't.\n\n  In 1984 he'll say \u2581 n\u00e9 -- \U0001f600\n"


def trained_tokenizer(headroom, folder, kind, vocabulary_size):
    """Returns a tokenizer of the engine, and the AutoTokenizer of a folder that was saved with it."""
    (folder / "text.txt").write_text(TEXT * 40)
    headroom("tokenizer", "train", folder / "text.txt", "--kind", kind, "--vocabulary-size", vocabulary_size, "--out",
             folder / "made.tokenizer")
    ours = ht.Tokenizer(folder / "made.tokenizer")
    model = ht.LanguageModel(vocabulary_size=ours.vocabulary_size, n_layers=1, d_model=24, context_length=CONTEXT,
                             attention=dict(n_heads=2, d_head=8), mlp=dict(d_hidden=32))
    model.save_checkpoint(folder / "model.safetensors", tokenizer=ours)
    hf.HeadroomForCausalLM.from_checkpoint(folder / "model.safetensors").save_pretrained(folder / "folder")
    return ours, transformers.AutoTokenizer.from_pretrained(folder / "folder")


@pytest.mark.parametrize("kind, vocabulary_size", [("words", 16), ("sentencepiece", 300)])
def test_tokenizers_without_an_equivalent(headroom, tmp_path, kind, vocabulary_size):
    """The folder's AutoTokenizer gives the same ids as the engine."""
    ours, theirs = trained_tokenizer(headroom, tmp_path, kind, vocabulary_size)
    assert isinstance(theirs, hf.HeadroomTokenizer) and len(theirs) == ours.vocabulary_size
    assert theirs.model_max_length == CONTEXT
    for text in (TEXT, "the head", " two  blanks ", "<7> [UNK] </s>", "\n\n", "\u4e2d\u6587", ""):
        ids = ours.encode(text).tolist()
        assert theirs.encode(text) == ids and theirs(text)["attention_mask"] == [1] * len(ids)
        assert theirs.decode(ids) == ours.decode(ids)
        assert theirs.convert_tokens_to_ids(theirs.tokenize(text)) == ids
    theirs.save_pretrained(tmp_path / "again")
    assert hf.HeadroomTokenizer.from_pretrained(tmp_path / "again").encode(TEXT) == ours.encode(TEXT).tolist()


def test_embeddings_in_place_of_tokens(both):
    theirs = both[1]
    matrix = theirs.get_input_embeddings()
    assert matrix.weight is theirs.model.embed
    ids, mask = tokens(), torch.ones(2, 8, dtype=torch.long)
    mask[1, :3] = 0
    with torch.no_grad():
        for more in (dict(), dict(attention_mask=mask), dict(attention_mask=mask, labels=ids)):
            expected, got = theirs(ids, **more), theirs(inputs_embeds=matrix(ids), **more)
            real = more.get("attention_mask", torch.ones(2, 8)).bool()
            assert torch.equal(got.logits[real], expected.logits[real]) and got.loss == expected.loss
    inputs = matrix(ids).detach().requires_grad_()
    theirs(inputs_embeds=inputs, labels=ids).loss.backward()
    assert inputs.grad.abs().sum() > 0
    # Adapter trainers add a hook to the module.
    handle = matrix.register_forward_hook(lambda module, given, output: output * 0)
    assert not torch.equal(theirs(ids).logits, expected.logits)
    handle.remove()
    assert_refused(lambda: theirs(ids, inputs_embeds=inputs), "either input_ids or inputs_embeds must be given, got both")
    assert_refused(lambda: theirs(inputs_embeds=inputs, use_cache=True), "inputs_embeds cannot be read with a cache")


def test_positions_count_the_tokens(both):
    theirs, ids = both[1], tokens(2, 5)
    mask = torch.tensor([[1] * 5, [0, 0, 1, 1, 1]])
    counted = (mask.cumsum(1) - 1).clamp_min(0)
    expected = theirs(ids, attention_mask=mask).logits
    assert torch.equal(theirs(ids, attention_mask=mask, position_ids=counted).logits, expected)
    first = theirs(ids, attention_mask=mask, use_cache=True)
    theirs(ids[:, :1], cache=cache_of(first), position_ids=torch.tensor([[5], [3]]))
    assert_refused(lambda: theirs(ids, position_ids=counted * 2), "position_ids must count the tokens of each row from")
    shifted = counted + 3
    if theirs.model._options["model.attention.position"] == "learned":
        assert_refused(lambda: theirs(ids, attention_mask=mask, position_ids=shifted), "from 0 without gaps")
    else:
        assert torch.equal(theirs(ids, attention_mask=mask, position_ids=shifted).logits, expected)


def test_shapes_that_do_not_fit(both):
    theirs = both[1]
    for name in ("labels", "position_ids", "attention_mask"):
        refused = {name: torch.ones(2, 3, dtype=torch.long)}
        assert_refused(lambda: theirs(tokens(2, 5), **refused), rf"{name} must be \[2, 5\], got \[2, 3\]")
    assert_refused(lambda: theirs(tokens(1, 5)[0]), r"input_ids must be \[B, T\], got \[5\]")
    assert_refused(lambda: theirs(inputs_embeds=torch.zeros(2, 5)), r"inputs_embeds must be \[B, T, d\], got \[2, 5\]")
    assert_refused(lambda: hf.HeadroomConfig(["model.kind=masked_language_model"]), "model.kind")
    assert_refused(lambda: hf.HeadroomConfig(["model.n_headz=2"]), "unknown key")


def test_gradient_checkpointing_changes_no_gradient(both):
    theirs = both[1].train()
    grads = []
    for enable in (False, True):
        (theirs.gradient_checkpointing_enable if enable else theirs.gradient_checkpointing_disable)()
        assert theirs.is_gradient_checkpointing == enable
        theirs.zero_grad()
        theirs(tokens(), labels=tokens()).loss.backward()
        grads.append([p.grad.clone() for p in theirs.parameters()])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b)


def test_another_vocabulary(both, tmp_path):
    theirs = both[1]
    expected = theirs(tokens()).logits
    assert theirs.resize_token_embeddings(pad_to_multiple_of=100).weight.shape == (300, 24)
    assert theirs.config.vocab_size == 300
    logits = theirs(tokens()).logits
    torch.testing.assert_close(logits[..., :256], expected)
    torch.testing.assert_close(theirs.model.embed[256:], theirs.model.embed[:256].mean(0).expand(44, 24))
    theirs(tokens() + 44, labels=tokens() + 44).loss.backward()
    theirs.save_pretrained(tmp_path / "again")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")
    assert torch.equal(again(tokens()).logits, logits)
    theirs.resize_token_embeddings(256)
    assert torch.equal(theirs(tokens()).logits, expected)
    assert_refused(lambda: new_model("model.adaptive_cutoffs=[10]").resize_token_embeddings(60), "adaptive_cutoffs")


def test_text_is_padded_and_continued(both, tmp_path):
    ours, theirs = both
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, padding_side="left")
    batch = tokenizer(["a longer text", "short"], return_tensors="pt", padding=True)
    assert set(batch) == {"input_ids", "attention_mask"} and batch["attention_mask"].tolist()[1] == [0] * 8 + [1] * 5
    written = theirs.generate(**batch, max_new_tokens=5, do_sample=False)
    for row, text in enumerate(("a longer text", "short")):
        expected = ours.generate(ours.tokenizer.encode(text)[None], 5, temperature=0)[0, -5:]
        assert torch.equal(written[row, -5:], expected)


def test_padding_of_a_bpe_trained_here(headroom, tmp_path):
    """The padding token is masked, and a text with its name has the usual ids."""
    ours, theirs = trained_tokenizer(headroom, tmp_path, "bpe", 270)
    assert len(theirs) == 270
    texts = [f"the {theirs.pad_token} head", TEXT, "a"]
    batch = theirs(texts, padding=True)
    for text, row, mask in zip(texts, batch["input_ids"], batch["attention_mask"]):
        ids = ours.encode(text).tolist()
        assert row == ids + [theirs.pad_token_id] * (len(row) - len(ids)) and mask == [int(i < len(ids)) for i in range(len(row))]
        assert theirs.decode(row, skip_special_tokens=True) == text
    assert transformers.AutoConfig.from_pretrained(tmp_path / "folder").pad_token_id is None


def test_commands_open_a_saved_folder(headroom, checkpoint, both, tmp_path):
    """Commands also open a Trainer's folder, which has only the model."""
    data = tmp_path / "text.txt"
    data.write_text(TEXT * 3)
    expected = headroom("evaluate", checkpoint, "--data", data)
    model = both[1]
    trained = tmp_path / "trainer" / "checkpoint-1"
    model.save_pretrained(trained, state_dict=model.state_dict(), max_shard_size="8KB")
    assert not (trained / "model.safetensors").exists()
    headroom("import", trained, "--out", tmp_path / "imported.safetensors")
    for where in (tmp_path, trained, tmp_path / "imported.safetensors"):
        got = headroom("evaluate", where, "--data", data)
        assert abs(got["loss"] - expected["loss"]) < 1e-6 and got["tokens"] == expected["tokens"]
    generated = [headroom("generate", where, "--prompt", "a", "--tokens", 5, "--temperature", 0)["text"]
                 for where in (tmp_path, checkpoint)]
    assert generated[0] == generated[1]
    assert headroom("checkpoint", "info", tmp_path)["parameters"] == headroom("checkpoint", "info", checkpoint)["parameters"]
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"model.d_model=24"', '"train.steps=3"'))
    assert_refused(lambda: ht.LanguageModel.from_checkpoint(tmp_path), "settings")


def test_losses_of_micro_batches_add_up(checkpoint):
    """Called as by the Trainer: gradient accumulation changes neither the loss nor the gradients."""
    ids = tokens(4)
    labels = ids.clone()
    for row, length in enumerate((8, 3, 5, 1)):  # the last micro-batch has a row without targets
        labels[row, length:] = -100
    count = (labels[:, 1:] >= 0).sum()

    def result(parts, n):
        model = hf.HeadroomForCausalLM.from_checkpoint(checkpoint).train()
        losses = [model(a, labels=b, num_items_in_batch=n).loss for a, b in parts]
        sum(losses).backward()
        return sum(losses).detach(), [p.grad for p in model.parameters() if p.grad is not None]

    whole = result([(ids, labels)], None)
    for n in (count, int(count)):
        torch.testing.assert_close(result(zip(ids.split(2), labels.split(2)), n), whole)
    alone = hf.HeadroomForCausalLM.from_checkpoint(checkpoint)(ids[3:], labels=labels[3:], num_items_in_batch=count)
    assert alone.loss == 0


def test_a_trainer_and_adapters(both, tmp_path):
    peft = pytest.importorskip("peft", reason="peft is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    base = both[1]
    names = ["ffn.w_up", "ffn.w_down"]
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_parameters=names, task_type="CAUSAL_LM"))
    model.enable_input_require_grads()
    before = model(tokens()).logits.detach()
    data = [dict(input_ids=row, labels=row) for row in tokens(8)]
    arguments = transformers.TrainingArguments(
        tmp_path / "run", max_steps=2, per_device_train_batch_size=4, save_steps=2, report_to=[], learning_rate=0.1,
        use_cpu=True, gradient_checkpointing=True, disable_tqdm=True)
    transformers.Trainer(model, arguments, train_dataset=data).train()
    model.eval()
    after = model(tokens()).logits.detach()
    assert not torch.allclose(before, after)
    merged = model.merge_and_unload()
    torch.testing.assert_close(merged(tokens()).logits, after, atol=1e-4, rtol=1e-4)
