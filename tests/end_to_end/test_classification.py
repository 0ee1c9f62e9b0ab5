"""Classifiers are evaluated on files, analysed, and compared by accuracy."""

import json
import pathlib
import random
import re
import struct

import pytest

import processes
import train_runs
from train_runs import tensor

SMALL = ("model.n_layers = 1", "model.d_model = 16", "model.dropout = 0.1", "model.attention.d_head = 8", "model.mlp.d_hidden = 32",
         'tokenizer.kind = "sentencepiece"', "train.steps = 60", "train.batch_size = 8", "train.learning_rate = 3e-3", "train.log_every = 1",
         "train.evaluate_every = 25", "train.checkpoint_every = 1")
LISTOPS = (*SMALL, 'model.kind = "classifier"', "model.vocabulary_size = 16", "model.context_length = 50", "model.n_classes = 10",
           'model.attention.position = "learned"', 'data.generator = "listops"', "data.generated_train = 150",
           "data.generated_validation = 50")
PICTURES = (*SMALL, 'model.kind = "vision"', "model.context_length = 4", "model.n_classes = 3", "model.image_size = 4",
            "model.patch_size = 2", "model.image_channels = 1", 'model.attention.position = "sinusoidal"',
            'model.attention.composition = "dynamic"', "data.augment_flip = true")
# Several threads read the images repeatedly, with every augmentation.
FOLDERS = (*PICTURES, "data.augment_crop = 0.2", "data.randaugment = 2", "data.mixup = 0.2", "data.decode_threads = 3",
           "train.accumulate = 4", "train.label_smoothing = 0.1")


def write_pictures(folder):
    draw = random.Random(1)
    labels = bytes(draw.randrange(3) for _ in range(60))
    pixels = bytes(draw.randrange(60) + (150 if row == label else 0) for label in labels for row in range(4)
                   for _ in range(4))
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 60, 4, 4) + pixels)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 60) + labels)


def write_folders(folder):
    """Makes 60 images of several sizes, in a folder for each class. The brightest third encodes the label."""
    draw = random.Random(2)
    for i in range(60):
        label, side = draw.randrange(3), draw.randrange(4, 10)
        pixels = bytes(draw.randrange(60) + (150 if 3 * row // side == label else 0) for row in range(side)
                       for _ in range(side))
        path = folder / "set" / str(label) / f"{i:02}.pgm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P5 %d %d 255\n" % (side, side) + pixels)


def test_processes_share_the_images_of_folders(tmp_path):
    write_folders(tmp_path)
    config = train_runs.small_config(tmp_path / "folders.toml", tmp_path / "set", *FOLDERS)
    short = ["--set", "train.steps=12", "--set", "data.decode_threads=1"]
    alone = train_runs.run(config, tmp_path / "1", *short)
    together = processes.run(3, config, tmp_path / "3", *short)
    for key in ("parameters_sha256", "validation_loss", "validation_accuracy", "train_loss"):
        assert together[key] == alone[key], key
    (tmp_path / "set/1/07.pgm").write_bytes(b"P5 9 9 255\nshort")
    assert "1/07.pgm: is a damaged PNM file" in train_runs.run(config, tmp_path / "2", *short, status=2)


@pytest.fixture(scope="module")
def listops(headroom, tmp_path_factory):
    """Returns a config and a run of it."""
    folder = tmp_path_factory.mktemp("listops")
    headroom("train", train_runs.small_config(folder / "one.toml", None, *LISTOPS), "--out", folder / "run", "--quiet")
    return folder


def test_evaluate_measures_its_own_data_and_files(headroom, listops):
    own = headroom.json("evaluate", listops / "run")
    assert own["tokens"] == 50 and 0.0 <= own["accuracy"] <= 1.0 and own["loss"] > 0.0
    data = listops / "test.tsv"
    data.write_text("3\t( ( ( [MAX 3 ) 1 ) ] )\n9\t[SM 4 5 ]\n")
    assert headroom.json("evaluate", listops / "run", "--data", data)["tokens"] == 2
    data.write_text("3\t[MAX 3 1 ]\n9\t[SM 4 5\n")
    assert f"{data}:2: " in headroom.refusal("evaluate", listops / "run", "--data", data)
    done = headroom("evaluate", listops / "run", "--data", data, "--skip-bad-rows", "--json")
    assert '"tokens":1' in done.stdout.replace(" ", "")
    assert "1 of 2 rows were left out" in done.stderr


def test_a_tokenizer_that_a_classifier_does_not_read_is_named(headroom, listops, tmp_path):
    def stderr(kind):
        sets = ["--set", "train.steps=1", "--set", f"tokenizer.kind={kind}"]
        return headroom("train", listops / "one.toml", "--out", tmp_path / kind, *sets).stderr

    assert "tokenizer.kind" not in stderr("words")
    assert 'warning: --set: tokenizer.kind = bpe has no effect with model.kind = classifier' in stderr("bpe")


def test_analyse_looks_into_a_classifier(headroom, listops):
    """The rows of attention maps sum to 1, for a text, a file of labelled texts and the run's own data."""
    out = listops / "inside"
    (listops / "one.tsv").write_text("7\t[MAX 3 1 7 ]\n")
    for source, tokens in ((["--text", "[MAX 2 9 [MIN 4 7 ] 0 ]"], 9), (["--file", listops / "one.tsv"], 5), ([], None)):
        found = headroom.json("analyse", listops / "run", *source, "--out", out, "--force")["analyses"]
        assert {"maps", "rank", "diversity"} <= set(found)
        shape, weights = tensor(out / "analysis.safetensors", "maps.layer0.attention")
        assert len(shape) == 3 and shape[1] == shape[2] and (tokens is None or shape[1] == tokens)
        rows = [sum(weights[at:at + shape[2]]) for at in range(0, len(weights), shape[2])]
        assert rows == pytest.approx([1.0] * len(rows), abs=1e-4)
    wrong = headroom.refusal("analyse", listops / "run", "--text", "[MAX 2 nine ]", "--out", listops / "other")
    assert "analyse: --text: line 1: column 8 must hold a digit" in wrong


def test_inspect_looks_into_a_classifier(headroom, listops):
    text, out = listops / "text.txt", listops / "page.html"
    text.write_text("[MAX 2 9 ]\n")
    assert headroom.json("inspect", listops / "run", "--text", text, "--out", out)["tokens"] == 4
    page = json.loads(re.search('<script type="application/json" id="page">(.*?)</script>', out.read_text()).group(1))
    assert page["tokens"] == [" [MAX", " 2", " 9", " ]"]
    view = page["views"][0]
    assert not view["causal"] and len(view["classes"]) == 10 and sum(view["classes"]) == pytest.approx(1.0)
    headroom("inspect", listops / "run", "--out", out)
    text.write_text("[MAX 2 9\n")
    assert f"inspect: {text}: " in headroom.refusal("inspect", listops / "run", "--text", text, "--out", out)


def test_images_cannot_be_inspected(headroom, tmp_path):
    write_pictures(tmp_path)
    config = train_runs.small_config(tmp_path / "pictures.toml", tmp_path / "train-images-idx3-ubyte", *PICTURES, "data.augment_shift = 1")
    run = tmp_path / "run"
    headroom("train", config, "--out", run, "--quiet", "--set", "train.steps=2", "--set", "train.evaluate_every=0")
    bad = tmp_path / "bad"
    bad.mkdir()
    for name in ("a", "b", "c"):
        (bad / name).mkdir()
        (bad / name / "1.png").write_bytes(b"no picture")
    unreadable = headroom.refusal("evaluate", run, "--data", bad, "--skip-bad-rows", "--quiet")
    assert "can be read" in unreadable, unreadable
    assert "vision" in headroom.refusal("analyse", run, "--what", "maps", "--out", tmp_path / "inside")
    assert "vision" in headroom.refusal("inspect", run, "--out", tmp_path / "page.html")
    assert "diversity" in headroom.json("analyse", run, "--out", tmp_path / "inside")["analyses"]


def test_compare_judges_listops_by_the_loss(headroom, listops):
    train_runs.small_config(listops / "two.toml", None, *LISTOPS, "model.attention.n_heads = 1")
    out = listops / "compared"
    result = headroom.json("compare", listops / "one.toml", listops / "two.toml", "--out", out)
    accuracies = [run["accuracy"] for run in result["runs"]]
    assert accuracies == [run["validation_accuracy"] for run in result["runs"]]
    best = min(result["runs"], key=lambda run: run["loss"])
    assert [run["loss"] for run in result["runs"]] == [run["validation_loss"] for run in result["runs"]]
    assert result["conclusion"].startswith(f"{best['name']} has the best validation loss")
    assert "accuracy" in pathlib.Path(result["report"]).read_text()
    wrong = headroom.refusal("compare", listops / "one.toml", listops / "two.toml", "--out", listops / "other", "--set",
                             "data.generated_train=4")
    assert "too few for a batch" in wrong


def test_generate_needs_a_language_model(headroom, listops):
    assert "language_model" in headroom.refusal("generate", listops / "run", "--prompt", "x")
