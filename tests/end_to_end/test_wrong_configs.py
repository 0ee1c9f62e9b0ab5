"""Wrong configs and damaged files: each gives status 2 and one line with the key or the file, and the value."""

import json
import random
import re
import struct

import pytest

import train_runs

# Wrong values of each key.
VALUES = {
    "model.kind": ['"transformer"', '"Language_Model"', "1", "true", "[]"],
    "model.vocabulary_size": ["0", "-1", "2147483648", "1.5", '"8000"', "99999999999999999999"],
    "model.n_layers": ["0", "-4", "65537", "2.0", '"two"', "true", "[2]", "nan", "0x1_0000_0000_0000_0000"],
    "model.d_model": ["0", "1048577", "64.5", '"64"'],
    "model.context_length": ["0", "16777217", "-16"],
    "model.memory_length": ["-1", "7"],
    "model.arrangement": ['"serial"', "0"],
    "model.norm": ['"batch"', "false"],
    "model.norm_position": ['"middle"'],
    "model.norm_epsilon": ["0", "-1e-5", "inf", '"small"'],
    "model.tied_embeddings": ["1", '"yes"', "[true]"],
    "model.head_bias": ["0", '"no"'],
    "model.adaptive_cutoffs": ["[0]", "5", "[2.5]", '["a"]', "[100, 50]", "[9000]"],
    "model.dropout": ["1", "-0.1", "1.5", '"0.1"', "nan"],
    "model.n_decoder_layers": ["-1", "3"],
    "model.n_classes": ["-1", "5"],
    "model.image_size": ["-1", "32"],
    "model.patch_size": ["-2", "4"],
    "model.paired": ["1", "true"],
    "model.attention.n_heads": ["0", "-1", "1.5", '"8"'],
    "model.attention.d_head": ["0", "-8", "true"],
    "model.attention.n_kv_heads": ["3", "-1", "100"],
    "model.attention.bias": ["1", '"true"'],
    "model.attention.projection": ['"sparse"', "2", '["dense"]'],
    "model.attention.score": ['"dott"', "0"],
    "model.attention.composition": ['"full"', "true"],
    "model.attention.position": ['"rotary"', "1"],
    "model.attention.scale": ['"sqrt"', "0.125"],
    "model.attention.qk_norm": ["1", '"yes"'],
    "model.attention.window": ["-1", '"all"', "1.0"],
    "model.attention.window_pattern": ['"1"', '"0:0"', '"a:b"', '"1:-1"', "11"],
    "model.attention.experts": ['["z"]', '"v"'],
    "model.attention.n_experts": ["0", "-2", "2.5"],
    "model.attention.top_k": ["0", "-1"],
    "model.attention.gate": ['"hard"'],
    "model.attention.n_mixtures": ["0", "-1"],
    "model.attention.mixing": ['"mean"'],
    "model.attention.prior": ['"token"'],
    "model.attention.compose_rank": ["0", "-1"],
    "model.attention.rope_fraction": ["-0.5", "1.5"],
    "model.attention.rope_base": ["0", "-10"],
    "model.mlp.kind": ['"sparse"', "1"],
    "model.mlp.d_hidden": ["0", "-1", "12.5"],
    "model.mlp.activation": ['"tanh"', "0"],
    "model.mlp.bias": ["1"],
    "model.mlp.n_experts": ["0", "-3"],
    "model.mlp.top_k": ["0", "-1"],
    "tokenizer.kind": ['"syllables"', "8"],
    "tokenizer.vocabulary_size": ["-1", "1.5", '"8000"', "2147483648"],
    "tokenizer.model": ["5", "true"],
    "tokenizer.keep_whitespace": ["1"],
    "tokenizer.split_digits": ['"yes"'],
    "tokenizer.character_coverage": ["0", "0.5", "1.1", '"all"'],
    "data.train": ['"a.txt"', "[1]", '[""]', "true"],
    "data.validation": ['"a.txt"', '["a.txt", ""]'],
    "data.json_field": ['""', "1"],
    "data.separator": ["1"],
    "data.batching": ['"random"'],
    "data.generator": ['"sums"', '"listops"'],
    "data.skip_bad_rows": ["1"],
    "data.pair_columns": ["[0]", "[-1, 2]", '"1,2"'],
    "data.validation_share": ["1", "-0.1"],
    "data.pixel_deviation": ["[0]", "[-1.0]"],
    "train.steps": ["0", "-1", "1.5", '"many"', "9999999999999"],
    "train.batch_size": ["0", "-16", "16777217", "3.5"],
    "train.learning_rate": ["0", "-1e-3", "1e300", "inf", "nan", '"fast"'],
    "train.schedule": ['"step"', "0"],
    "train.warmup_steps": ["-1", "100000"],
    "train.final_learning_rate": ["-0.1", "1.5"],
    "train.optimizer": ['"sgd"', "1"],
    "train.betas": ["[0.9]", "[0.9, 1.0]", "[0.9, 0.99, 0.999]", "0.9", "[-0.1, 0.9]"],
    "train.epsilon": ["0", "-1e-8"],
    "train.weight_decay": ["-0.1", "inf", "1e300"],
    "train.muon_learning_rate": ["-1", "0.01", "inf"],
    "train.muon_momentum": ["1", "-0.1", "0.9"],
    "train.parts": ["-1", "3"],
    "train.timeout": ["0", "-1"],
    "train.verify_every": ["-1"],
    "train.clip_norm": ["-1", "1e-300", "nan"],
    "train.label_smoothing": ["1", "-0.1", "0.1"],
    "train.accumulate": ["0", "-1", "7"],
    "train.seed": ["-1", "1.5", "9007199254740993", "18446744073709551616", '"one"'],
    "train.threads": ["-1", "4097"],
    "train.device": ['"gpu"', '"cuda:x"', "0"],
    "train.precision": ['"fp16"', "32"],
    "train.implementation": ['"quick"'],
    "train.log_every": ["0", "-10"],
    "train.checkpoint_every": ["-1"],
    "train.keep_checkpoints": ["0", "1.5"],
    "train.evaluate_every": ["-1"],
    "train.evaluate_tokens": ["-1"],
    "train.keep_best": ["1", '"yes"'],
    "train.sample_every": ["-1", "0.5"],
    "train.sample_prompt": ["1"],
    "decoding.beam": ["0", "1025"],
    "decoding.length_penalty": ["11", "-11"],
}
# Strings: --set takes them without quotes.
BARE_WORDS = ["tokenizer.model", "data.json_field", "data.separator", "train.sample_prompt"]
CASES = [(key, value) for key, values in VALUES.items() for value in values]

UNKNOWN = ["modle.n_layers", "model.n_layer", "model.attention.heads", "model.attention.n_head", "model.mlp.hidden",
           "train.lr", "train.learningrate", "train.batchsize", "train.step", "data.training", "tokenizer.type",
           "tokenizer.vocab_size", "decoding.beams", "optimizer.kind", "model.attention.attention.n_heads"]

# Texts that are not TOML, or not a config, with a part of the message.
TEXTS = [
    ("model = 3", "model"), ("[model", ":1"), ("[model]\nn_layers", ":2"), ("[model]\nn_layers =", ":2"),
    ("[model]\nn_layers = = 2", ":2"), ("[model]\nn_layers = 2 2", ":2"), ("[model]\nn_layers = 2\nn_layers = 3", ":3"),
    ("[model]\n[model]\n", ":2"), ('[model]\nkind = "language_model', ":2"), ("[model]\nn_layers = 1e", ":2"),
    ("[train]\nsteps = 01", ":2"), ("[data]\ntrain = [\"a\"", ""), ("[[model]]\nn_layers = 2", "model"),
    ("[model]\nattention = 1", "model.attention"), ("[model.n_layers]\nx = 1", "model.n_layers"),
    ("[a]\nb = 1", "a"), ("n_layers = 2", "n_layers"), ("base = 3", "base"), ('base = "no/such"', "no/such"),
    ('base = ""', "base: "), ("[model]\nbase = \"x\"", "model.base"), ("\x00", ""), ("\xff\xfe", ""),
    ("[model]\nkind = '\x07'", ":2"), ("\"" * 40, ":1"), ("[" * 300, ":1"), ("a." * 3000 + "b = 1", "dotted"),
    ("[model]\nn_layers = " + "9" * 5000, ":2"), ("x = " + "[" * 5000, ":1"), ("#" * (1 << 21), "too large"),
]


def of_key(key, value):
    table, name = key.rsplit(".", 1)
    return f"[{table}]\n{name} = {value}\n"


def refused(headroom, path, *more):
    line = headroom.refusal("cost", path, *more)
    assert len(line) < 1500 and all(c.isprintable() or c == "\n" for c in line), line
    return line


def test_there_are_two_hundred():
    assert len(CASES) + len(UNKNOWN) + len(TEXTS) >= 200


@pytest.mark.parametrize("key", VALUES)
def test_a_wrong_value_is_named_with_its_key(headroom, tmp_path, key):
    config = tmp_path / "wrong.toml"
    for value in VALUES[key]:
        config.write_text(of_key(key, value))
        line = refused(headroom, config)
        place = f"{config}:2: {key}: "
        is_number_too_large = value.isdigit() and int(value) >= 2**63 or value.startswith("0x")
        assert place in line or f"{config}: {key.rsplit('.', 1)[0]}." in line or is_number_too_large, line
        assert key in line or f"{config}:2" in line, line
        shown = re.sub(r'["\[\]]', "", value).split(",")[0].rstrip("0").rstrip(".")
        assert shown in line or key in line or is_number_too_large, line
        if key in BARE_WORDS and not value.startswith(("[", '""')):
            continue
        on_the_command_line = headroom.refusal("cost", "demo/dense_h8", "--set", f"{key}={value}")
        assert key in on_the_command_line or key.rsplit(".", 1)[0] in on_the_command_line, on_the_command_line


def test_unknown_keys_are_named(headroom, tmp_path):
    config = tmp_path / "unknown.toml"
    for key in UNKNOWN:
        config.write_text(of_key(key, "1"))
        line = refused(headroom, config)
        assert key.split(".")[0] in line, line


def test_what_is_no_config_is_named(headroom, tmp_path):
    config = tmp_path / "text.toml"
    for text, part in TEXTS:
        config.write_bytes(text.encode("latin-1"))
        line = refused(headroom, config)
        assert str(config) in line and part in line, (text[:60], line)


def damaged(data, seed):
    """The file cut, extended, with zeroed or flipped bytes, or with a wrong header length."""
    draw = random.Random(seed)
    at = draw.randrange(len(data))
    header, = struct.unpack("<Q", data[:8])
    kind = seed % 6
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:8 + draw.randrange(header)] + b"\0" * 16 + data[8 + header // 2:]
    if kind == 2:
        return struct.pack("<Q", draw.choice([0, 1, len(data), 2**63, header - 1, header + 1])) + data[8:]
    if kind == 3:
        return data + b"more"
    if kind == 4:  # in the header
        place = 8 + draw.randrange(header // 2)
        return data[:place] + bytes([data[place] ^ 0x80]) + data[place + 1:]
    return b""


@pytest.fixture(scope="module")
def files(headroom, tiny, trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    text = tiny.parent / "train.txt"
    words, pieces = folder / "words.tokenizer", folder / "pieces.tokenizer"
    headroom("tokenizer", "train", text, "--kind", "words", "--out", words)
    headroom("tokenizer", "train", text, "--vocabulary-size", 300, "--out", pieces)
    return {"words": words, "pieces": pieces, "checkpoint": trained / "checkpoints" / "step_6.safetensors"}


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_a_damaged_tokenizer_is_named(headroom, files, tmp_path, kind):
    bad = tmp_path / "bad.tokenizer"
    for seed in range(24):
        bad.write_bytes(damaged(files[kind].read_bytes(), seed))
        assert str(bad) in headroom.refusal("tokenizer", "encode", bad, "text")


def test_a_damaged_checkpoint_is_named(headroom, files, tmp_path):
    bad = tmp_path / "bad.safetensors"
    whole = files["checkpoint"].read_bytes()
    for seed in range(6):
        bad.write_bytes(damaged(whole, seed))
        assert str(bad) in headroom.refusal("evaluate", bad)
    zeroed = len(whole) - len(whole) // 3  # within the tensors
    bad.write_bytes(whole[:zeroed] + b"\0" * 2000 + whole[zeroed + 2000:])
    assert re.search(rf"{bad}: .*\btensor \S+", headroom.refusal("evaluate", bad))


@pytest.mark.parametrize("name, content, part", [
    ("empty.txt", b"", ""), ("binary.txt", b"text\0more", ""), ("latin.txt", b"caf\xe9 noir", "UTF-8"),
    ("cut.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\x03", ""), ("lines.jsonl", b'{"text": "a"}\n{"text": 3}\n', "text"),
    ("brace.jsonl", b'{"text": "a"}\n{"text": \n', "2"), ("list.jsonl", b"[1, 2]\n", "1"),
])
def test_damaged_text_is_named(headroom, files, tmp_path, name, content, part):
    bad = tmp_path / name
    bad.write_bytes(content)
    done = headroom("data", "prepare", bad, "--tokenizer", files["words"], "--out", tmp_path / "x.tokens", status=2)
    line = done.stderr.splitlines()[-1]
    assert str(bad) in line and part in line, line
    assert not (tmp_path / "x.tokens").exists() and not list(tmp_path.glob("*.tmp-*"))
