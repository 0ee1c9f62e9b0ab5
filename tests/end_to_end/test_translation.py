"""Translation models are killed and resumed, evaluated on files, and used to translate."""

import importlib.util
import json
import random
import re

import pytest

import train_runs

SETTINGS = (
    'model.kind = "encoder_decoder"', "model.n_layers = 1", "model.context_length = 16", 'model.norm_position = "post"',
    "model.tied_embeddings = true", "model.dropout = 0.1", "model.attention.n_experts = 4", "model.attention.top_k = 2",
    'model.attention.gate = "softmax_renormalised"', 'model.attention.position = "sinusoidal"', "model.mlp.d_hidden = 64",
    'tokenizer.kind = "sentencepiece"', "tokenizer.vocabulary_size = 300", "data.pair_columns = [2, 1]", "train.steps = 60",
    "train.batch_size = 12", "train.batch_tokens = 100", "train.accumulate = 2", "train.label_smoothing = 0.1",
    "train.learning_rate = 3e-3", 'train.schedule = "inverse_sqrt"', "train.warmup_steps = 10", "train.clip_norm = 0.0",
    "train.log_every = 1", "train.evaluate_every = 25", "train.evaluate_tokens = 60", "train.checkpoint_every = 1",
    "train.keep_checkpoints = 3", "decoding.beam_size = 2")
WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "rot": "red", "blau": "blue", "Haus": "house"}


def write_pairs(folder):
    draw = random.Random(3)
    pairs = [draw.choices(list(WORDS), k=draw.randrange(1, 7)) for _ in range(400)]
    lines = [(" ".join(words), " ".join(WORDS[word] for word in words)) for words in pairs]
    (folder / "pairs.tsv").write_text("".join(f"{target}.\t{source}.\tnobody\n" for source, target in lines))
    (folder / "test.de").write_text("".join(f"{source}.\n" for source, _ in lines[:20]))
    (folder / "test.en").write_text("".join(f"{target}.\n" for _, target in lines[:20]))


def config_in(folder, name="translation", projection="routed_heads"):
    return train_runs.small_config(folder / f"{name}.toml", None, f'data.train = ["{folder}/pairs.tsv"]', "data.validation_fraction = 0.1",
                                   f'model.attention.projection = "{projection}"', *SETTINGS)


def prepare(folder):
    write_pairs(folder)
    return config_in(folder)


def test_a_killed_and_resumed_run_is_identical(tmp_path):
    config = prepare(tmp_path)
    whole = train_runs.run(config, tmp_path / "whole")
    out = tmp_path / "killed"
    resumed = train_runs.resumed_after_kills(config, out, (4, 27, 45))
    for key in ("parameters_sha256", "validation_loss", "validation_bleu", "steps"):
        assert resumed[key] == whole[key], key
    wrong = train_runs.run(config, out, "--resume", "--set", "train.batch_tokens=90", status=2)
    assert "train.batch_tokens" in wrong


@pytest.fixture(scope="module")
def run(headroom, tmp_path_factory):
    """Returns a folder with a trained run."""
    folder = tmp_path_factory.mktemp("translation")
    headroom("train", prepare(folder), "--out", folder / "run", "--set", "train.steps=250", "--quiet")
    return folder


def test_evaluate_measures_bleu_on_its_own_data_and_files(headroom, run):
    own = headroom.json("evaluate", run / "run")
    assert own["tokens"] > 100 and 0.0 < own["loss"] < 5.0 and 0.0 <= own["bleu"] <= 100.0
    parallel = headroom.json("evaluate", run / "run", "--data", run / "test.de", "--target", run / "test.en")
    pairs = zip((run / "test.de").read_text().splitlines(), (run / "test.en").read_text().splitlines())
    (run / "test.tsv").write_text("".join(f"{target}\t{source}\n" for source, target in pairs))
    table = headroom.json("evaluate", run / "run", "--data", run / "test.tsv")
    for key in ("loss", "perplexity", "bleu", "tokenised_bleu", "tokens"):
        assert parallel[key] == table[key], key
    wider = headroom.json("evaluate", run / "run", "--data", run / "test.tsv", "--beam", "5", "--length-penalty", "0")
    assert wider["loss"] == table["loss"] and "bleu" in wider
    mean = headroom.json("evaluate", run / "run", "--average", "3")
    assert mean["loss"] != own["loss"] and abs(mean["loss"] - own["loss"]) < 0.5
    assert "mean of 3 checkpoints" in mean["checkpoint"]
    folder = run / "run" / "checkpoints"
    assert headroom.json("evaluate", folder, "--average", "3")["loss"] == mean["loss"]
    assert headroom.json("evaluate", folder)["loss"] == own["loss"]
    assert "9" in headroom.refusal("evaluate", run / "run", "--average", "9")


def splits_compounds(line):
    return re.sub(rb"(\S)-(\S)", rb"\1 ##AT##-##AT## \2", line.encode()).decode()


@pytest.fixture(scope="module")
def separate(headroom, tmp_path_factory):
    """Trains separate vocabularies on data with compounds and pairs of too different lengths; returns the folder and stderr."""
    folder = tmp_path_factory.mktemp("separate")
    draw = random.Random(5)
    words = [draw.choices(list(WORDS), k=draw.randrange(1, 6)) for _ in range(300)]
    lines = ["-".join(line[:2]) + "".join(f" {word}" for word in line[2:]) for line in words]
    pairs = [(line, re.sub(r"\w+", lambda found: WORDS[found[0]], line)) for line in lines]
    unlike = [("eins zwei drei", "one two"), ("eins", "one two"), ("rot " * 6, "red " * 6), ("blau", "blue blue blue")]
    (folder / "train.de").write_text("".join(f"{source}\n" for source, _ in [*pairs, *unlike]))
    (folder / "train.en").write_text("".join(f"{target}\n" for _, target in [*pairs, *unlike]))
    (folder / "test.de").write_text("".join(f"{source}\n" for source, _ in pairs[:20]))
    (folder / "test.en").write_text("".join(f"{target}\n" for _, target in pairs[:20]))
    settings = [f'data.train=["{folder}/train.de"]', f'data.train_target=["{folder}/train.en"]', "data.pair_columns=[1, 2]",
                f'data.validation=["{folder}/test.de"]', f'data.validation_target=["{folder}/test.en"]',
                "data.max_length_ratio=1.5", "data.max_words=5", "model.source_vocabulary_size=290", "train.steps=400",
                "train.evaluate_every=0", "train.checkpoint_every=0", "model.dropout=0.0"]
    done = headroom("train", config_in(folder, "separate"), "--out", folder / "run",
                    *[part for setting in settings for part in ("--set", setting)])
    return folder, done.stderr


def test_sides_have_a_vocabulary_each(headroom, separate):
    folder, stderr = separate
    # A pair of three words and two words has the ratio 1.5, which is allowed.
    assert re.search(r"3 pairs .*data.max_length_ratio = 1.5, data.max_words = 5", stderr), stderr
    result = headroom.json("evaluate", folder / "run")
    assert result["loss"] < 2.0 and result["compound_bleu"] > 0.0, result
    info = headroom.json("checkpoint", "info", folder / "run")
    assert info["config"]["model.source_vocabulary_size"] == "290" and "-300-" in info["tokenizer"]
    headroom("analyse", folder / "run", "--text", "rot-blau\tred-blue", "--what", "maps", "--out", folder / "maps")
    report = (folder / "maps" / "report.html").read_text()
    assert "blau" in report and "blue" in report and r"\u003c/s>" in report  # sources end as in training
    config = folder / "run" / "config.toml"
    begun = headroom("train", config, "--out", folder / "on", "--set", f'train.start_from="{folder}/run"', "--set",
                     "train.steps=1")
    assert "starts with the parameters of" in begun.stderr
    refused = headroom.refusal("train", config, "--out", folder / "other", "--set", f'train.start_from="{folder}/run"',
                               "--set", "model.source_vocabulary_size=0")
    assert "model.source_vocabulary_size must be 290" in refused
    assert "tokenizer.source_model: " in headroom.refusal(
        "train", config, "--out", folder / "other", "--set", "model.source_vocabulary_size=0", "--set",
        f'tokenizer.source_model="{folder}/run"')


def test_a_text_is_encoded_with_the_tokenizer_of_the_requested_side(headroom, separate, tmp_path):
    tokenizers = separate[0] / "run" / "checkpoints" / "step_400.safetensors"
    source = headroom.json("tokenizer", "encode", tokenizers, "rot-blau eins", "--side", "source")
    target = headroom.json("tokenizer", "encode", tokenizers, "rot-blau eins", "--side", "target")
    assert "-290-" in source["tokenizer"] and "-300-" in target["tokenizer"] and source["ids"] != target["ids"]
    assert headroom.json("tokenizer", "encode", tokenizers, "rot-blau eins") == target
    back = headroom.json("tokenizer", "decode", tokenizers, *source["ids"], "--side", "source")
    assert back == {"text": "rot-blau eins", "tokenizer": source["tokenizer"]}
    assert headroom.json("tokenizer", "decode", tokenizers, *source["ids"])["text"] != "rot-blau eins"
    text = tmp_path / "text.txt"
    text.write_text("rot-blau eins\n")
    prepared = headroom.json("data", "prepare", text, "--tokenizer", tokenizers, "--side", "source", "--out",
                             tmp_path / "text.tokens")
    assert prepared["tokenizer"] == source["tokenizer"]


def test_compounds_are_split_as_by_the_authors_script(headroom, separate):
    if importlib.util.find_spec("sacrebleu") is None:
        pytest.skip("the package sacrebleu is not installed")
    import sacrebleu

    folder, _ = separate
    ours = headroom.json("evaluate", folder / "run", "--data", folder / "test.de", "--target", folder / "test.en")
    prompt = (folder / "test.de").read_text().rstrip("\n")
    translations = headroom.json("generate", folder / "run", "--prompt", prompt)["text"].split("\n")
    references = (folder / "test.en").read_text().splitlines()
    split = sacrebleu.corpus_bleu([splits_compounds(line) for line in translations],
                                  [[splits_compounds(line) for line in references]],
                                  tokenize="none", smooth_method="none", force=True)
    assert abs(split.score - ours["compound_bleu"]) < 0.01 and ours["compound_bleu"] != ours["tokenised_bleu"]


def test_generate_refuses_what_continues_a_text(headroom, run):
    for option in ("--tokens", "--temperature", "--top-k", "--top-p", "--seed"):
        line = headroom.refusal("generate", run / "run", "--prompt", "eins", option, "1")
        assert f'{option}: ' in line and "encoder_decoder" in line
    assert "--stride: " in headroom.refusal("evaluate", run / "run", "--stride", "2")


def test_generate_warns_about_cut_sentences(headroom, run):
    done = headroom("generate", run / "run", "--prompt", "eins zwei.\n" + "zwei " * 400)
    assert re.search(r"^warning: 1 of 2 sentences were cut to \d+ tokens \(model.context_length", done.stderr,
                     re.MULTILINE), done.stderr
    assert "cut" not in headroom("generate", run / "run", "--prompt", "eins zwei.").stderr


def test_generate_translates_lines(headroom, run):
    done = headroom("generate", run / "run", "--prompt", "eins zwei.\nHaus.", "--beam", "3")
    assert done.stdout.count("\n") == 2
    document = headroom.json("generate", run / "run", "--prompt", "eins zwei.\nHaus.", "--beam", "3")
    assert document["text"] + "\n" == done.stdout
    one = headroom.json("generate", run / "run", "--prompt", "eins zwei.", "--beam", "3")
    assert one["text"] == document["text"].split("\n")[0]
    gaps = headroom.json("generate", run / "run", "--prompt", "eins zwei.\r\n\nHaus.\n  ", "--beam", "3")["text"].split("\n")
    assert gaps == [*document["text"].split("\n")[:1], "", *document["text"].split("\n")[1:], ""]
    assert 0 < one["tokens"] < document["tokens"] and document["tokens_per_second"] > 0


def test_errors_in_the_pairs_are_reported(headroom, run):
    def refusal(*more):
        return headroom.refusal("train", run / "translation.toml", "--out", run / "other", *more)

    (run / "bad.tsv").write_text("one\teins\ntwo\n")
    bad = ["--set", f'data.train=["{run}/bad.tsv"]']
    assert f"{run}/bad.tsv:2: " in refusal(*bad)
    assert "data.train: " in refusal("--set", "data.train=[]")
    hole = run / "hole.tsv"
    hole.write_text("one\teins\n\tzwei\n")
    assert f"{hole}:2: " in headroom.refusal("evaluate", run / "run", "--data", hole)
    skipping = json.loads(headroom("evaluate", run / "run", "--data", hole, "--skip-bad-rows", "--json").stdout)
    assert skipping["tokens"] > 0


def test_compare_judges_by_bleu(headroom, run):
    dense = config_in(run, "dense", "dense")
    result = headroom.json("compare", run / "translation.toml", dense, "--out", run / "compared")
    assert [r["bleu"] for r in result["runs"]] == [r["validation_bleu"] for r in result["runs"]]
