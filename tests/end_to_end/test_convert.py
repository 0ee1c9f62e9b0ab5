"""Tests headroom convert: a dense run becomes a checkpoint that every command reads and that training can start from."""

import math
import re
import shutil
import tomllib

import pytest

import train_runs

SMALL = ["--tokens", 512, "--fit", 10, "--joint-fit", 5, "--threads", 1]


@pytest.fixture(scope="module")
def dense(headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    config = train_runs.prepare(folder)
    config.write_text(re.sub(r"model\.attention\.(projection|n_experts|top_k|expert_dropout) = .*\n", "", config.read_text()))
    headroom("train", config, "--out", folder / "dense", "--set", "train.steps=6", "--quiet")
    target = folder / "experts.toml"
    target.write_text('base = "tiny.toml"\n[model.attention]\nn_heads = 1\nd_head = 12\nprojection = "experts"\nn_experts = 2\ntop_k = 1\n')
    return folder


def test_a_converted_model_is_evaluated_and_trained_on(headroom, dense):
    out = dense / "experts.safetensors"
    made = headroom.json("convert", dense / "dense", "--to", dense / "experts.toml", "--out", out, *SMALL)
    assert {"converted", "parameters", "loss_before", "loss_after", "exact", "layers", "together",
            "notes"} == made.keys()
    assert [layer["layer"] for layer in made["layers"]] == ["layer0.attention", "layer1.attention"]
    assert all(layer["fitted"] <= layer["start"] for layer in made["layers"])
    info = headroom.json("checkpoint", "info", out)
    assert info["parameters"] == made["parameters"] and info["config"]["model.attention.projection"] == 'experts'
    assert headroom.json("evaluate", out, "--data", dense / "validation.txt")["loss"] > 0
    trained = headroom.json("train", dense / "experts.toml", "--out", dense / "on", "--set", f"train.start_from={out}",
                            "--set", "train.steps=3")
    assert trained["steps"] == 3


def test_layers_may_differ_in_source_and_result(headroom, dense):
    out = dense / "some.safetensors"
    made = headroom.json("convert", dense / "dense", "--to", dense / "experts.toml", "--out", out, "--layers", "1", *SMALL)
    assert made["converted"] == [1]
    # A result whose layers differ can be converted again. Layer 1 stays as it is; layer 0 becomes like it.
    again = headroom.json("convert", out, "--to", dense / "experts.toml", "--out", dense / "both.safetensors", *SMALL)
    assert [layer["layer"] for layer in again["layers"]] == ["layer0.attention"]
    info = headroom.json("checkpoint", "info", dense / "both.safetensors")["config"]
    assert info["model.layers"] == "[]" and info["model.attention.projection"] == "experts"
    # The model's settings come from the checkpoint.
    (dense / "on.toml").write_text('[data]\ntrain = ["train.txt"]\nvalidation = ["validation.txt"]\n[train]\nsteps = 2\n')
    trained = headroom.json("train", dense / "on.toml", "--out", dense / "some_on", "--set", f"train.start_from={out}")
    assert trained["parameters"] == made["parameters"]


def test_each_layer_gets_heads_within_a_budget(headroom, dense, tmp_path, monkeypatch):
    monkeypatch.setitem(headroom.environment, "HEADROOM_CACHE", str(tmp_path / "cache"))
    out, toml, page = tmp_path / "fewer.safetensors", tmp_path / "fewer.toml", tmp_path / "fewer.html"
    command = ["convert", dense / "dense", "--heads", "auto", "--out", out, *SMALL]
    made = headroom.json(*command, "--budget", "kv_cache=0.5", "--config-out", toml, "--page", page)
    assert {"loss_before", "loss_after", "heads", "kv_heads", "uniform", "layers", "costs", "predicted", "measured", "corrected",
            "parameters"} == made.keys()
    assert len(made["heads"]) == len(made["kv_heads"]) == 2 and made["costs"]["kv_cache"] <= 0.5
    assert made["uniform"]["kv_heads"] == 1 and made["uniform"]["loss_after"] > 0
    assert headroom.json("cost", toml)[0]["parameters"] == made["parameters"]
    assert headroom.json("checkpoint", "info", out)["parameters"] == made["parameters"]
    assert page.read_text().startswith("<!doctype html>")
    assert "key heads" in headroom(*command, "--budget", "macs=0.9", "--experts", 2, "--force").stdout
    whole = headroom.json(*command, "--budget", "macs=1", "--force")
    assert whole["loss_after"] == whole["loss_before"]
    assert "--budget" in headroom.refusal(*command, "--budget", "step_time=0.0001", "--force", "--quiet")


def test_an_mlp_becomes_experts(headroom, dense):
    target = dense / "moe.toml"
    target.write_text('base = "tiny.toml"\n[model.attention]\nprojection = "dense"\n[model.mlp]\nkind = "experts"\n'
                      'n_experts = 8\nd_hidden = 8\ntop_k = 8\n')
    out = dense / "moe.safetensors"
    made = headroom.json("convert", dense / "dense", "--to", target, "--out", out, *SMALL)
    assert made["exact"] and made["loss_after"] == pytest.approx(made["loss_before"], abs=1e-5)
    info = headroom.json("checkpoint", "info", out)
    assert info["config"]["model.mlp.expert_bias"] == "hidden"
    assert headroom.json("cost", target, "--set", "model.mlp.expert_bias=hidden")[0]["parameters"] == info["parameters"]
    made = headroom.json("convert", dense / "dense", "--to", target, "--set", "model.mlp.top_k=2", "--out", out, "--force", *SMALL)
    assert [layer["layer"] for layer in made["layers"]] == ["layer0.ffn", "layer1.ffn"]
    assert "model.mlp.d_hidden" in headroom.refusal("convert", dense / "dense", "--to", target, "--set", "model.mlp.d_hidden=9",
                                                    "--out", dense / "x.safetensors")


def test_training_with_a_teacher_resumes_exactly(headroom, dense):
    config = dense / "tiny.toml"
    teacher = ["--set", f"train.teacher={dense / 'plain'}", "--set", "train.schedule=constant", "--set", "train.warmup_steps=0",
               "--set", "model.memory_length=0"]
    headroom("train", config, "--out", dense / "plain", "--set", "train.steps=4", "--set", "model.memory_length=0", "--quiet")
    whole = headroom.json("train", config, "--out", dense / "taught", *teacher, "--set", "train.steps=6")
    headroom("train", config, "--out", dense / "parts", *teacher, "--set", "train.steps=3", "--quiet")
    parts = headroom.json("train", config, "--out", dense / "parts", *teacher, "--set", "train.steps=6", "--resume")
    alone = headroom.json("train", config, "--out", dense / "alone", *teacher[2:], "--set", "train.steps=6")
    assert whole["parameters_sha256"] == parts["parameters_sha256"] != alone["parameters_sha256"]
    # The teacher is part of the run: another one is refused.
    headroom("train", config, "--out", dense / "plain2", "--set", "train.steps=5", "--set", "model.memory_length=0", "--quiet")
    line = headroom.refusal("train", config, "--out", dense / "parts", *teacher, "--set", f"train.teacher={dense / 'plain2'}",
                            "--set", "train.steps=8", "--resume", "--quiet")
    assert "train.teacher" in line


def test_compare_trains_conversions_next_to_the_continued_dense_model(headroom, dense):
    headroom("train", dense / "tiny.toml", "--out", dense / "base", "--set", "train.steps=20", "--set", "model.memory_length=0",
             "--set", "train.evaluate_every=0", "--quiet")
    table = headroom.json("compare", "--convert", dense / "base", "--to", dense / "experts.toml", "--set", "train.evaluate_every=0",
                          "--tokens", "10%", "--sample-tokens", 0, "--threads", 1, "--out", dense / "study")
    assert [run["name"] for run in table["runs"]] == ["dense-10%", "dense-taught-10%", "experts-10%", "experts-random-10%",
                                                      "experts-scratch-10%"]
    assert [run["steps"] for run in table["runs"]] == [2, 2, 2, 2, 22]
    assert all(run["validation_loss"] > 0 for run in table["runs"])
    # With several shares, the models are families, and the page draws their losses against compute.
    shares = ["compare", "--convert", dense / "base", "--to", dense / "experts.toml", "--set", "train.evaluate_every=0",
              "--tokens", "0%,10%,20%", "--sample-tokens", 0, "--threads", 1, "--no-scratch", "--out", dense / "shares"]
    table = headroom.json(*shares)
    assert len(table["runs"]) == 11 and len(table["scaling"]) == 4
    page = (dense / "shares" / "report.html").read_text()
    assert "dense-taught" in page and "without training" in page
    # A share of 0 is the model before training: it has the checkpoint's loss and takes no steps.
    untrained = {run["name"]: run for run in table["runs"][8:]}
    assert list(untrained) == ["dense-0%", "experts-0%", "experts-random-0%"]
    assert all(run["steps"] == 0 for run in untrained.values()) and "experts-random-0%" in page
    for name, model in [("dense-0%", dense / "base"), ("experts-0%", dense / "shares" / "converted" / "experts.safetensors")]:
        loss = headroom.json("evaluate", model, "--precision", "fp32")["loss"]
        assert untrained[name]["validation_loss"] == pytest.approx(loss, abs=1e-4)
    # If repeated, the command trains only what is missing, also with a teacher.
    kept = (dense / "shares" / "dense-taught-10%" / "result.json").stat().st_mtime_ns
    shutil.rmtree(dense / "shares" / "experts-20%")
    assert [run["parameters_sha256"] for run in headroom.json(*shares)["runs"]] == [run["parameters_sha256"] for run in table["runs"]]
    assert (dense / "shares" / "dense-taught-10%" / "result.json").stat().st_mtime_ns == kept


STUDY = ["--set", "train.evaluate_every=0", "--tokens", "10%", "--sample-tokens", 0, "--threads", 1]


def train(headroom, dense, name, *settings):
    assignments = [word for setting in ["train.steps=20", "train.evaluate_every=0", *settings] for word in ("--set", setting)]
    headroom("train", dense / "tiny.toml", "--out", dense / name, "--quiet", *assignments)
    return dense / name


def test_a_study_reuses_only_conversions_of_its_source_and_targets(headroom, dense):
    source = train(headroom, dense, "reused", "model.memory_length=0")
    target = dense / "narrow.toml"
    target.write_text((dense / "experts.toml").read_text())
    study = ["compare", "--convert", source, "--to", target, "--no-scratch", *STUDY, "--out", dense / "reuse"]
    before = headroom.json(*study)["runs"]
    study[2] = f"{source}/"  # another spelling of the same folder
    assert [run["parameters_sha256"] for run in headroom.json(*study)["runs"]] == [run["parameters_sha256"] for run in before]
    target.write_text(target.read_text().replace("d_head = 12", "d_head = 10"))
    assert "d_head" in headroom.refusal(*study, "--quiet")
    target.write_text(target.read_text().replace("d_head = 10", "d_head = 12"))
    headroom("train", dense / "tiny.toml", "--out", source, "--resume", "--quiet", "--set", "train.steps=22", "--set",
             "model.memory_length=0")
    for run in before:
        shutil.rmtree(dense / "reuse" / run["name"])
    assert "narrow.safetensors" in headroom.refusal(*study, "--quiet")


def test_a_study_takes_nothing_from_what_its_source_learnt_from(headroom, dense):
    first = train(headroom, dense, "first", "model.memory_length=0")
    taught = ["model.memory_length=0", f"train.start_from={first}", f"train.teacher={first}", "train.teacher_weight=0.9"]
    source = train(headroom, dense, "second", *taught, "train.evaluate_every=0", "train.seconds=3")
    with open(source / "config.toml", "rb") as file:
        steps = tomllib.load(file)["train"]["steps"]  # chosen for the time
    table = headroom.json("compare", "--convert", source, "--to", dense / "experts.toml", *STUDY, "--out", dense / "second_study")
    tenth = max(1, math.floor(0.1 * steps + 0.5))
    assert [run["steps"] for run in table["runs"]] == [tenth, tenth, tenth, tenth, steps + tenth]
    keys = {}
    for run in table["runs"]:
        with open(dense / "second_study" / run["name"] / "config.toml", "rb") as file:
            keys[run["name"]] = tomllib.load(file)
    assert keys["dense-10%"]["train"]["teacher"] == "" and keys["dense-taught-10%"]["train"]["teacher"] == str(source)
    assert keys["experts-10%"]["train"]["teacher_weight"] == 0.5
    scratch = keys["experts-scratch-10%"]
    assert scratch["train"]["start_from"] == scratch["train"]["teacher"] == ""
    assert scratch["model"]["attention"]["projection"] == "experts"


@pytest.mark.parametrize("kind", ["model.kind=masked_language_model", "model.memory_length=16"])
def test_a_study_of_models_that_cannot_teach_has_no_teacher(headroom, dense, kind, tmp_path):
    masked = "masked" in kind
    settings = [kind, "model.memory_length=0", "model.attention.position=learned", "model.vocabulary_size=258"] if masked else [kind]
    source = train(headroom, dense, kind, *settings)
    target = dense / f"to_{len(kind)}.toml"
    model = 'kind = "masked_language_model"\nmemory_length = 0\nvocabulary_size = 258\n' if masked else ""
    position = 'position = "learned"\n' if masked else ""
    target.write_text(f'base = "tiny.toml"\n[model]\n{model}[model.attention]\nn_heads = 1\nprojection = "dense"\n{position}')
    table = headroom.json("compare", "--convert", source, "--to", target, "--no-scratch", *STUDY, "--out", tmp_path / "out")
    assert [run["name"] for run in table["runs"]] == ["dense-10%", f"{target.stem}-10%", f"{target.stem}-random-10%"]


def test_a_study_needs_a_source_that_was_trained(headroom, dense):
    out = dense / "untrained.safetensors"
    made = headroom("convert", dense / "dense", "--to", dense / "experts.toml", "--out", out, "--data", dense / "train.txt", *SMALL)
    assert f"loss on held-out tokens of {dense / 'train.txt'} " in made.stdout
    assert "step 0" in headroom.refusal("compare", "--convert", out, "--to", dense / "experts.toml", *STUDY, "--out", dense / "x")
