"""Runs the table `messages`: common user errors and their messages."""

import json
import pathlib
import re
import shlex
import struct

import pytest

import train_runs

TABLE = pathlib.Path(__file__).with_name("messages")

WRONG = {  # configs by name
    "unquoted": "[tokenizer]\nkind = bytes\n",
    "python": "[model]\ntied_embeddings = True\n",
    "comma": "[train]\nlearning_rate = 1,5e-3\n",
    "table": "[attention]\nn_heads = 2\n",
    "one": '[model.attention]\nexperts = "v"\nprojection = "experts"\n',
    "late": '[model]\nn_layers = 2\nbase = "demo/dense_h8"\n',
    "glob": '[data]\ntrain = ["no_texts/*.txt"]\n',
}


def cases():
    lines = TABLE.read_text().splitlines()
    return [(line.removeprefix("$ headroom").strip(), message) for line, message in zip(lines, lines[1:]) if line.startswith("$")]


def write_not_finite(run, file):
    """Writes the run's checkpoint with a NaN in its embedding and without checksums."""
    data = bytearray(next((run / "checkpoints").glob("*.safetensors")).read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    about = json.loads(data[8:8 + size])
    del about["__metadata__"]["checksums"]
    struct.pack_into("<f", data, 8 + size + about["model.embed"]["data_offsets"][0], float("nan"))
    file.write_bytes(data[:8] + json.dumps(about).encode().ljust(size) + data[8 + size:])


@pytest.fixture(scope="module")
def folder(headroom, tmp_path_factory):
    """Makes the files that the table's commands name."""
    folder = tmp_path_factory.mktemp("messages")
    config = train_runs.prepare(folder).rename(folder / "mine.toml")
    text = config.read_text().replace("steps = 60", "steps = 2").replace("warmup_steps = 5", "warmup_steps = 0")
    config.write_text(text)
    (folder / "other.toml").write_text(text.replace('"experts"', '"dense"'))
    (folder / "text.txt").write_text((folder / "train.txt").read_text())
    (folder / "wrong").mkdir()
    for name, lines in WRONG.items():
        (folder / "wrong" / f"{name}.toml").write_text(lines)
    question = {"query": "q", "choices": ["a", "b", "c", "d"], "gold": 1}
    (folder / "arc_easy.jsonl").write_text(json.dumps(question) + "\n")
    done = headroom("train", "mine.toml", "--out", "run", cwd=folder)
    (folder / "run.stderr").write_text(done.stderr)
    (folder / "run.stdout").write_text(done.stdout)
    headroom("compare", "mine.toml", "other.toml", "--out", "study", "--seeds", 2, "--sample-tokens", 1, cwd=folder)
    headroom("analyse", "run", "--what", "rank", "--out", "analysed", cwd=folder)
    headroom("train", "other.toml", "--set", "model.memory_length=0", "--out", "dense", cwd=folder)
    write_not_finite(folder / "dense", folder / "nan.safetensors")
    headroom("sweep", "mine.toml", "--vary", "train.learning_rate=1e-3,1e-4", "--out", "rates", cwd=folder)
    return folder


@pytest.mark.parametrize("command, message", cases())
def test_an_error_has_its_message(headroom, folder, command, message):
    done = headroom(*shlex.split(command), cwd=folder, status=2)
    pattern = ".*".join(re.escape(part) for part in message.split("..."))
    assert re.fullmatch(pattern, done.stderr.splitlines()[-1]), done.stderr
    assert done.stdout == ""
    assert not (folder / "x").exists() and not (folder / "x.html").exists()


def run_of(headroom, folder, name, *more, status=0):
    return headroom("train", "mine.toml", "--out", name, *more, cwd=folder, status=status)


def test_an_empty_list_of_training_data_is_reported(headroom, folder):
    small = ["--set", "data.train=[]", "--set", "data.validation=[]", "--set", "train.evaluate_tokens=64"]
    stderr = run_of(headroom, folder, "built_in", *small).stderr
    assert "warning: data.train: " in stderr
    assert "warning: data.train: " not in (folder / "run.stderr").read_text()


def test_the_first_lines_say_how_a_run_is_protected(headroom, folder):
    stderr = (folder / "run.stderr").read_text()
    assert re.search(r"\b25 steps.*train.evaluate_every.*checkpoint after every step\b", stderr)
    stderr = run_of(headroom, folder, "automatic", "--set", "train.steps=40", "--set", "train.evaluate_every=auto", "--set",
                  "train.checkpoint_every=auto").stderr
    assert re.search(r"^a checkpoint (every \d+ steps|at the end)", stderr, re.MULTILINE), stderr
    resolved = (folder / "automatic" / "config.toml").read_text()
    assert re.search(r"^checkpoint_every = \d+", resolved, re.MULTILINE)
    assert re.search(r"^evaluate_every = \d+", resolved, re.MULTILINE)


def test_a_loss_over_few_predictions_has_a_standard_error(headroom, folder):
    out, stderr = (folder / "run.stdout").read_text(), (folder / "run.stderr").read_text()
    assert re.search(r"validation loss [\d.]+ ± [\d.]+, perplexity", out), out
    assert re.search(r"the loss [\d.]+ has a standard error of [\d.]+", stderr), stderr
    document = headroom.json("evaluate", folder / "run")
    assert 0 < document["loss_error"] < 0.2
    notes = headroom.json("report", folder / "study")["notes"]
    assert any("The validation data is small" in note for note in notes), notes
