"""Models that choose a class, from outside: killed and resumed, evaluated on files, compared by accuracy."""

import pathlib
import random
import struct

import pytest

import train_runs

LISTOPS = """
[model]
kind = "classifier"
vocabulary_size = 16
n_layers = 1
d_model = 16
context_length = 50
dropout = 0.1
n_classes = 10
[model.attention]
n_heads = 2
d_head = 8
position = "learned"
[model.mlp]
d_hidden = 32
[data]
generator = "listops"
generated_train = 150
generated_validation = 50
[train]
steps = 60
batch_size = 8
learning_rate = 3e-3
threads = 1
precision = "fp32"
log_every = 1
evaluate_every = 25
checkpoint_every = 1
"""

PICTURES = """
[model]
kind = "vision"
n_layers = 1
d_model = 16
context_length = 4
n_classes = 3
image_size = 4
patch_size = 2
image_channels = 1
dropout = 0.1
[model.attention]
n_heads = 2
d_head = 8
position = "sinusoidal"
composition = "dynamic"
[model.mlp]
d_hidden = 32
[data]
train = ["{folder}/train-images-idx3-ubyte"]
validation = ["{folder}/train-images-idx3-ubyte"]
augment_shift = 1
augment_flip = true
[train]
steps = 60
batch_size = 8
learning_rate = 3e-3
threads = 1
precision = "fp32"
log_every = 1
evaluate_every = 25
checkpoint_every = 1
"""


def write_pictures(folder):
    draw = random.Random(1)
    labels = bytes(draw.randrange(3) for _ in range(60))
    pixels = bytes(draw.randrange(60) + (150 if row == label else 0) for label in labels for row in range(4)
                   for _ in range(4))
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 60, 4, 4) + pixels)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 60) + labels)


@pytest.fixture(params=["listops", "pictures"])
def config(request, tmp_path):
    write_pictures(tmp_path)
    path = tmp_path / f"{request.param}.toml"
    path.write_text((LISTOPS if request.param == "listops" else PICTURES).replace("{folder}", str(tmp_path)))
    return path


def test_killed_and_resumed_it_is_the_same_run(config):
    folder = config.parent
    whole = train_runs.run(config, folder / "whole")
    out = folder / "killed"
    resumed = train_runs.resumed_after_kills(config, out, (5, 26, 40))
    for key in ("parameters_sha256", "validation_loss", "validation_accuracy", "steps"):
        assert resumed[key] == whole[key], key


@pytest.fixture(scope="module")
def listops(headroom, tmp_path_factory):
    """A config and a run of it."""
    folder = tmp_path_factory.mktemp("listops")
    (folder / "one.toml").write_text(LISTOPS)
    headroom("train", folder / "one.toml", "--out", folder / "run", "--quiet")
    return folder


def test_evaluate_measures_its_own_data_and_files(headroom, listops):
    own = headroom.json("evaluate", listops / "run")
    assert own["tokens"] == 50 and 0.0 <= own["accuracy"] <= 1.0 and own["loss"] > 0.0
    data = listops / "test.tsv"
    data.write_text("3\t( ( ( [MAX 3 ) 1 ) ] )\n9\t[SM 4 5 ]\n")
    assert headroom.json("evaluate", listops / "run", "--data", data)["tokens"] == 2
    data.write_text("3\t[MAX 3 1 ]\n9\t[SM 4 5\n")
    assert f"{data}:2: unbalanced" in headroom.refusal("evaluate", listops / "run", "--data", data)
    done = headroom("evaluate", listops / "run", "--data", data, "--skip-bad-rows", "--json")
    assert '"tokens":1' in done.stdout.replace(" ", "")
    assert "1 of 2 rows were left out" in done.stderr


def test_compare_judges_listops_by_the_loss(headroom, listops):
    (listops / "two.toml").write_text(LISTOPS.replace("n_heads = 2", "n_heads = 1"))
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


def test_generate_says_what_it_needs(headroom, listops):
    assert "language_model" in headroom.refusal("generate", listops / "run", "--prompt", "x")
