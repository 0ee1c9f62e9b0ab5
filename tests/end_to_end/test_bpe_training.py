"""Training of byte-level BPE, compared with the package `tokenizers`."""

import json
import random

import pytest

from train_runs import small_config

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

SIZE = 700


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Returns words of all kinds; some are frequent."""
    draw = random.Random(3)
    syllables = ["the", "at", "tend", "s", "room", "head", "ing", "er", "é", "ß", "日", "本", "ж", "ик", "'s", "12", "-", "x"]
    words = ["".join(draw.choice(syllables) for _ in range(draw.randint(1, 4))) for _ in range(900)]
    lines = []
    for _ in range(1500):
        line = " ".join(words[int(len(words) * draw.random() ** 3)] for _ in range(draw.randint(1, 12)))
        lines.append(draw.choice(["", "", "  ", "\t"]) + line + draw.choice(["", ".", "!", " ...", "\n"]))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def made(headroom, text):
    out = text.parent / "tokenizer.json"
    done = headroom.json("tokenizer", "train", text, "--kind", "bpe", "--vocabulary-size", SIZE, "--out", out)
    assert done["vocabulary_size"] == SIZE
    return out


def test_merges_match_the_package(made, text):
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.train_from_iterator([text.read_text()], tokenizers.trainers.BpeTrainer(
        vocab_size=SIZE, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    expected = json.loads(theirs.to_str())["model"]
    mine = json.loads(made.read_text())["model"]
    assert mine["vocab"] == expected["vocab"]
    merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in expected["merges"]]
    assert mine["merges"] == list(dict.fromkeys(merges))


def test_ids_match_the_package(headroom, made, text, tmp_path):
    numpy_tensors = pytest.importorskip("safetensors.numpy")
    theirs = tokenizers.Tokenizer.from_file(str(made))
    pieces = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "'s", "'LL", "a", "Z", "é", "e\u0301", "1", "234", "½", "!", "...",
              "\u00a0", "\u3000", "\u0085", "日本", "😀", "the", "head", "<|endoftext|>", "\u2581"]
    draw = random.Random(11)
    hostile = "".join(draw.choice(pieces) for _ in range(8000))
    (tmp_path / "text.txt").write_bytes((text.read_text() + hostile).encode())
    headroom("data", "prepare", tmp_path / "text.txt", "--tokenizer", made, "--out", tmp_path / "text.tokens")
    mine = numpy_tensors.load_file(tmp_path / "text.tokens")["tokens"]
    whole = (tmp_path / "text.txt").read_bytes().decode()
    assert mine.tolist() == theirs.encode(whole).ids
    assert theirs.decode(mine.tolist()) == whole


def test_training_is_deterministic(headroom, made, text, tmp_path):
    again = tmp_path / "again.json"
    headroom("tokenizer", "train", text, "--kind", "bpe", "--vocabulary-size", SIZE, "--out", again)
    assert again.read_bytes() == made.read_bytes()
    headroom("tokenizer", "train", text, "--kind", "bpe", "--vocabulary-size", SIZE, "--out", tmp_path / "x.tokenizer")
    line = "the head attends\n"
    ids = headroom.json("tokenizer", "encode", again, line)["ids"]
    assert headroom.json("tokenizer", "encode", tmp_path / "x.tokenizer", line)["ids"] == ids
    assert headroom.json("tokenizer", "decode", again, *ids)["text"] == line
    refusal = headroom.refusal("tokenizer", "train", text, "--kind", "words", "--out", tmp_path / "w.json")
    assert "--kind bpe" in refusal


def test_a_config_trains_a_tokenizer(headroom, text, tmp_path):
    config = small_config(tmp_path / "bpe.toml", None, f'data.train = ["{text}"]', 'tokenizer.kind = "bpe"',
                          "tokenizer.vocabulary_size = 400", "train.steps = 4", "train.evaluate_tokens = 256")
    run = tmp_path / "run"
    headroom("train", config, "--out", run)
    info = headroom.json("evaluate", run)
    assert info["bits_per_byte"] > 0
    refusal = headroom.refusal("train", config, "--out", tmp_path / "small", "--set", "tokenizer.vocabulary_size=200")
    assert "tokenizer.vocabulary_size: " in refusal


def test_a_share_is_held_out_of_text_and_tokens(headroom, made, text, tmp_path):
    out = tmp_path / "all.tokens"
    whole = headroom.json("data", "prepare", text, "--tokenizer", made, "--out", out)
    share = tmp_path / "share.tokens"
    parts = headroom.json("data", "prepare", text, "--tokenizer", made, "--out", share, "--validation-share", 0.1)
    held_out = parts["validation"]
    assert held_out["file"] == str(tmp_path / "share.validation.tokens")
    assert parts["text_bytes"] + held_out["text_bytes"] == whole["text_bytes"]
    assert abs(held_out["text_bytes"] / whole["text_bytes"] - 0.1) < 0.03  # whole documents
    refusal = headroom.refusal("data", "prepare", "--tokenizer", made, "--out", share, "--validation-share", 0.1)
    assert "needs FILE" in refusal
    refusal = headroom.refusal("data", "prepare", text, "--tokenizer", made, "--out", share, "--validation-share", 1)
    assert "--validation-share" in refusal
    config = small_config(
        tmp_path / "tokens.toml", None, 'data.train = ["all.tokens", "share.tokens"]', "data.mixture = [2, 1]",
        "data.validation_fraction = 0.1", 'data.batching = "chunks"', 'tokenizer.kind = "bpe"', "train.steps = 2")
    run = tmp_path / "run"
    headroom("train", config, "--out", run)
    info = headroom.json("evaluate", run)
    # Held-out text comes from both files. The tokenizer is lossless, so the amount of text can be measured in tokens.
    assert abs(info["tokens"] / (0.1 * whole["tokens"] + 0.1 * parts["tokens"]) - 1) < 0.3  # whole documents
    assert info["bits_per_byte"] > 0
    refusal = headroom.refusal("train", config, "--out", tmp_path / "x", "--set", "data.mixture=[1]")
    assert "data.mixture: " in refusal

