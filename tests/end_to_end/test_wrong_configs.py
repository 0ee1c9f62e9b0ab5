"""Wrong configs and damaged files: each gives status 2 and one line with the key or the file, and the value."""

import functools
import json
import re
import struct
import tomllib

import pytest

import train_runs

# Values of the right type that are wrong for another reason than the range or the names in --help-config.
VALUES = {
    "model.kind": ['"Language_Model"'],
    "model.n_layers": ["nan", "0x1_0000_0000_0000_0000"],
    "model.memory_length": ["7"],
    "model.adaptive_cutoffs": ["[0]", "[2.5]", '["a"]', "[100, 50]", "[9000]"],
    "model.n_decoder_layers": ["3"],
    "model.n_classes": ["5"],
    "model.image_size": ["32"],
    "model.patch_size": ["4"],
    "model.paired": ["true"],
    "model.attention.n_kv_heads": ["3", "100"],
    "model.attention.window_pattern": ['"1"', '"0:0"', '"a:b"', '"1:-1"'],
    "model.attention.experts": ['["z"]'],
    "data.train": ["[1]", '[""]'],
    "data.validation": ['["a.txt", ""]'],
    "data.json_field": ['""'],
    "data.generator": ['"listops"'],
    "data.pair_columns": ["[0]", "[-1, 2]", '"1,2"'],
    "data.pixel_std": ["[0]", "[-1.0]"],
    "train.steps": ["9999999999999"],
    "train.learning_rate": ["1e300", "inf", "nan"],
    "train.warmup_steps": ["100000"],
    "train.betas": ["[0.9]", "[0.9, 1.0]", "[0.9, 0.99, 0.999]", "[-0.1, 0.9]"],
    "train.weight_decay": ["inf", "1e300"],
    "train.muon_learning_rate": ["0.01", "inf"],
    "train.muon_momentum": ["0.9"],
    "train.gradient_accumulators": ["3"],
    "train.clip_norm": ["1e-300", "nan"],
    "train.label_smoothing": ["0.1"],
    "train.accumulate": ["7"],
    "train.seed": ["9007199254740993", "18446744073709551616"],
    "train.device": ['"gpu"', '"cuda:x"'],
}
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


def wrong_values(value, about):
    """Values of another type than `value`, and beyond the range or the names with which its help ends."""
    wrong = {bool: ["1", '"yes"'], int: ['"two"', "true", "1.5", "9" * 20], float: ['"small"', "[0.5]"], str: ["true"],
             list: ["true", "5"]}[type(value)]
    found = re.search(r"\((at least|above|below)? ?([-\d.e]+)?(?: to (below )?([-\d.e]+))?\)$", about)
    if found and isinstance(value, (int, float)):
        above, low, below, high = found.groups()
        wrong += [low if above == "above" else str(float(low) - 1).removesuffix(".0")] if low else []
        wrong += [high if below else str(float(high) + 1).removesuffix(".0")] if high and float(high) < 1e6 else []
    return wrong + (['"no_such_name"'] if isinstance(value, str) and re.search(r"\([a-z_0-9]+( \| [a-z_0-9]+)+\)$", about) else [])


@pytest.fixture(scope="module")
def cases(headroom):
    """Wrong values of every key, and the keys with free text, of which --set takes any value without quotes."""
    values, texts = {}, set()
    resolved, = headroom.json("recipes", "demo/dense_h8", "--resolved")
    tables = tomllib.loads(resolved["resolved"])
    help_text = headroom("train", "--help-config").stdout
    for table in re.split(r"^(?=\[)", help_text, flags=re.MULTILINE)[1:]:
        name = re.match(r"\[([\w.]+)\]", table)[1]
        for key, about in re.findall(r"^  (\w+) = .*?  +(.*(?:\n {10,}.*)*)", table, re.MULTILINE):
            value = functools.reduce(dict.get, name.split("."), tables).get(key)
            if value is not None:
                wrong = values[f"{name}.{key}"] = wrong_values(value, " ".join(about.split()))
                texts |= {f"{name}.{key}"} if wrong == ["true"] else set()
    return {key: values.get(key, []) + VALUES.get(key, []) for key in [*values, *(VALUES.keys() - values.keys())]}, texts


def test_a_wrong_value_is_named_with_its_key(headroom, tmp_path, cases):
    cases, texts = cases
    assert len(cases) > 130 and sum(map(len, cases.values())) > 400
    config = tmp_path / "wrong.toml"
    for key, value in ((key, value) for key, values in cases.items() for value in values):
        config.write_text(of_key(key, value))
        line = refused(headroom, config)
        place = f"{config}:2: {key}: "
        is_number_too_large = value.isdigit() and int(value) >= 2**63 or value.startswith("0x")
        assert place in line or f"{config}: {key.rsplit('.', 1)[0]}." in line or is_number_too_large, line
        assert key in line or f"{config}:2" in line, line
        shown = re.sub(r'["\[\]]', "", value).split(",")[0].rstrip("0").rstrip(".")
        assert shown in line or key in line or is_number_too_large, line
        if key in texts and not value.startswith(("[", '""')):
            continue
        on_the_command_line = headroom.refusal("cost", "demo/dense_h8", "--set", f"{key}={value}")
        assert key in on_the_command_line or key.rsplit(".", 1)[0] in on_the_command_line, on_the_command_line


def test_unknown_keys_are_named(headroom, tmp_path):
    config = tmp_path / "unknown.toml"
    for key in UNKNOWN:
        config.write_text(of_key(key, "1"))
        line = refused(headroom, config)
        assert key.split(".")[0] in line, line


def test_a_file_that_is_not_a_config_is_named(headroom, tmp_path):
    config = tmp_path / "text.toml"
    for text, part in TEXTS:
        config.write_bytes(text.encode("latin-1"))
        line = refused(headroom, config)
        assert str(config) in line and part in line, (text[:60], line)


def damaged(data):
    """The file cut, extended, empty, with a flipped byte in the header, or with a wrong header length; fuzzers of the rooms try more."""
    return [data[:len(data) // 2], data[:100], data + b"more", b"", data[:40] + bytes([data[40] ^ 0x80]) + data[41:],
            struct.pack("<Q", 2**63) + data[8:]]


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
    for content in damaged(files[kind].read_bytes()):
        bad.write_bytes(content)
        assert str(bad) in headroom.refusal("tokenizer", "encode", bad, "text")


def test_a_damaged_checkpoint_is_named(headroom, files, tmp_path):
    bad = tmp_path / "bad.safetensors"
    whole = files["checkpoint"].read_bytes()
    for content in damaged(whole):
        bad.write_bytes(content)
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
