"""Runs `headroom analyse` and checks what it prints and writes."""

import json
import pathlib
import re

import pytest

import train_runs


@pytest.fixture(scope="module")
def folder(headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("analyse")
    config = train_runs.prepare(folder)
    headroom("train", config, "--out", "run", "--set", "train.steps=3", "--set", "train.warmup_steps=0", "--set",
             "train.checkpoint_every=1", "--set", "train.keep_checkpoints=3", "--set", "train.evaluate_every=0", cwd=folder)
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog, and over the dog again.\n" * 40)
    return folder


def test_all_that_a_model_has(headroom, folder):
    done = headroom("analyse", "run", "--file", "text.txt", "--out", "inside", "--json", cwd=folder)
    document = json.loads(done.stdout)
    assert list(document["analyses"]) == ["maps", "experts", "induction", "rank", "diversity", "circuits"]
    page = pathlib.Path(folder / document["report"]).read_text()
    assert page.startswith("<!doctype html>") and "load by expert" in page
    written = json.loads((folder / "inside" / "analysis.json").read_text())
    assert written["analyses"] == document["analyses"]
    loads = document["analyses"]["experts"]["layer0.attention.select_in"]["experts"]
    assert sum(one["share"] for one in loads if one["head"] == 0) == pytest.approx(1.0)
    assert (folder / "inside" / "analysis.safetensors").stat().st_size > 0


def test_checkpoints_one_after_the_other(headroom, folder):
    done = headroom("analyse", "run", "--checkpoints", "all", "--what", "rank", "--text", "one text", "--out", "steps",
                    "--json", cwd=folder)
    runs = json.loads(done.stdout)["runs"]
    assert [run["step"] for run in runs] == [1, 2, 3]
    assert all("rank" in run["analyses"] for run in runs)


def test_a_line_for_each(headroom, folder):
    done = headroom("analyse", "run", "run", "--what", "diversity,rank", "--text", "one text", "--out", "two", cwd=folder)
    assert re.fullmatch(r"(run/checkpoints/step_3.safetensors\n  rank +mean rank .*\n  diversity +principal .*\n){2}"
                        r"two/report.html\n", done.stdout), done.stdout


def test_another_tokenizer_is_refused(headroom, folder):
    headroom("tokenizer", "train", "text.txt", "--kind", "words", "--vocabulary-size", 12, "--out", "w.tok", cwd=folder)
    headroom("data", "prepare", "text.txt", "--tokenizer", "w.tok", "--out", "text.tokens", cwd=folder)
    done = headroom("analyse", "run", "--file", "text.tokens", "--out", "other", cwd=folder, status=2)
    assert re.search(r"text.tokens: .*\bwords-", done.stderr)


# Has four different layers: without attention, without MLP, with grouped keys, and sharing the keys of the layer below.
MIXED = ["{attention = {n_heads = 0}}", '{mlp = {kind = "none"}}', "{attention = {n_kv_heads = 1}}",
         "{attention = {n_kv_heads = 1, share_kv = 1}}"]
WITHOUT_HEADS = "it looks at attention, which the layers lack"
ON_MIXED = {  # what each analysis prints, or why it refuses
    "maps": "layer 1: attention maps of 1 layer .*layer 2: .*layer 3: attention maps of 1 layer",
    "rank": "layer 1: mean rank .*layer 2: .*layer 3: mean rank",
    "induction": "layer 1: best head: .*layer 2: .*layer 3: best head",
    "circuits": "layer 1: largest contribution .*layer 2: .*layer 3: largest contribution",
    "diversity": "layer 1: principal .*; layer 2: [^;]*$",  # layer 3 shares the keys of layer 2
    "mixture": "layer 1: one key per position.*; layer 2: [^;]*$",
    "composition": WITHOUT_HEADS,
    "importance": WITHOUT_HEADS,
    "experts": "neither its attention",
}


# Maps a setting of a layer to the messages of `checkpoint export` to Hugging Face and `inspect` (None: it works).
SETTINGS = {
    "attention = {n_heads = 0}": ("n_heads: cannot export, no supported .* has layers without attention",
                                  "n_heads: must not be 0: the page draws the attention and the MLP of every layer"),
    'mlp = {kind = "none"}': ("mlp.kind: cannot export, no supported .* has layers without MLP",
                              "mlp.kind: must not be none: the page draws the attention and the MLP of every layer"),
    "attention = {share_kv = 1}": ("share_kv: cannot export, no supported .* has this setting", None),
}


def trained(headroom, folder, *layers):
    config = train_runs.small_config(folder / "mixed.toml", folder / "text.txt", f"model.n_layers = {len(layers)}",
                                     f"model.layers = [{', '.join(layers)}]", "model.head_bias = false",
                                     "train.steps = 2", "train.warmup_steps = 0")
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog, and over the dog again.\n" * 40)
    headroom("train", config, "--out", "run", "--quiet", cwd=folder)


@pytest.fixture(scope="module")
def mixed(headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixed")
    trained(headroom, folder, *MIXED)
    return folder


@pytest.mark.parametrize("what", ON_MIXED)
def test_layers_that_lack_a_half_or_share_keys(headroom, mixed, what):
    refuses = ON_MIXED[what] in (WITHOUT_HEADS, ON_MIXED["experts"])
    done = headroom("analyse", "run", "--what", what, "--text", "a text of some words", "--out", what, cwd=mixed,
                    status=2 if refuses else 0)
    assert re.search(ON_MIXED[what], done.stderr if refuses else done.stdout.splitlines()[1]), done


@pytest.mark.parametrize("setting", SETTINGS)
def test_exports_and_pages_of_such_layers(headroom, tmp_path, setting):
    trained(headroom, tmp_path, "{}", "{" + setting + "}")
    export, page = SETTINGS[setting]
    done = headroom("checkpoint", "export", "run", "--format", "huggingface", "--out", "hf", cwd=tmp_path, status=2)
    assert re.search(export, done.stderr), done.stderr
    done = headroom("inspect", "run", "--text", "a text", "--out", "page", cwd=tmp_path, status=2 if page else 0)
    assert page is None or page in done.stderr
    headroom("checkpoint", "export", "run", "--out", "plain.safetensors", cwd=tmp_path)
    assert headroom.json("evaluate", tmp_path / "plain.safetensors")["loss"] > 0
