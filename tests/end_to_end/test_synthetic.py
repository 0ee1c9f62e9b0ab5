"""Models train on generated sequences (data.synthetic), and are evaluated, resumed and compared."""

import pytest

import train_runs

@pytest.fixture
def config(tmp_path):
    return train_runs.small_config(
        tmp_path / "recall.toml", None, "model.vocabulary_size = 256", "model.n_layers = 1", 'data.synthetic = "recall"',
        "data.synthetic_items = 4", "data.generated_validation = 16", "train.steps = 6", "train.evaluate_every = 0",
        "train.checkpoint_every = 3")


@pytest.mark.parametrize("task", ["lookup", "recall", "copying", "induction", "needles", "parity", "permutations"])
def test_every_task_trains_and_reports_its_chance_level(headroom, config, tmp_path, task):
    sets = ["--set", f"data.synthetic={task}", "--set", f"data.synthetic_items={4 if task in ('lookup', 'recall', 'copying', 'needles') else 0}"]
    trained = headroom.json("train", config, "--out", tmp_path / "run", *sets)
    assert 0 <= trained["validation_accuracy"] <= 1 and 0 < trained["chance_accuracy"] < 1
    found = headroom.json("evaluate", tmp_path / "run")
    assert found["loss"] == pytest.approx(trained["validation_loss"], rel=1e-6)
    assert found["accuracy"] == trained["validation_accuracy"]


def test_a_resumed_run_is_the_uninterrupted_one(headroom, config, tmp_path):
    whole = headroom.json("train", config, "--out", tmp_path / "whole")
    headroom("train", config, "--out", tmp_path / "parts", "--set", "train.steps=3", "--set", "train.schedule=constant")
    parts = headroom.json("train", config, "--out", tmp_path / "parts", "--resume", "--set", "train.schedule=constant")
    again = headroom.json("train", config, "--out", tmp_path / "constant", "--set", "train.schedule=constant")
    assert parts["parameters_sha256"] == again["parameters_sha256"] != whole["parameters_sha256"]


def test_models_are_compared_on_it(headroom, config, tmp_path):
    wide = tmp_path / "wide.toml"
    wide.write_text('base = "recall.toml"\n[model.attention]\nn_heads = 4\nd_head = 8\n')
    table = headroom("compare", config, wide, "--out", tmp_path / "compared").stdout
    assert "accuracy of answers" in table or "accuracy" in table
    line = headroom.refusal("compare", config, wide, "--out", tmp_path / "other", "--quiet",
                            "--tune", "data.synthetic_items=3,4", status=2)
    assert "data" in line


def test_the_validation_rows_are_what_is_analysed(headroom, config, tmp_path):
    headroom("train", config, "--out", tmp_path / "run", "--set", "train.steps=2")
    page = tmp_path / "page.html"
    headroom("inspect", tmp_path / "run", "--out", page, "--json")
    assert "#include" not in page.read_text() and "#if" not in page.read_text()
    one, all_rows = (headroom.json("evaluate", tmp_path / "run", "--batch-size", size) for size in (1, 512))
    assert one["loss"] == all_rows["loss"] and one["loss_error"] == all_rows["loss_error"]
    assert "--stride" in headroom.refusal("evaluate", tmp_path / "run", "--stride", 3)
    assert "--skip-bad-rows" in headroom.refusal("evaluate", tmp_path / "run", "--skip-bad-rows")


def test_the_tokenizer_key_sets_the_size_of_the_vocabulary(headroom, config, tmp_path):
    config.write_text(config.read_text().replace("model.vocabulary_size = 256", "tokenizer.vocabulary_size = 16")
                      .replace('"recall"\ndata.synthetic_items = 4', '"lookup"'))
    headroom("train", config, "--out", tmp_path / "run")
    assert headroom.json("checkpoint", "info", tmp_path / "run")["config"]["model.vocabulary_size"] == "16"
    assert headroom.json("evaluate", tmp_path / "run")["accuracy"] >= 0
