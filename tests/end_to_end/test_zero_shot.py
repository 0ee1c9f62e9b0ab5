"""Tests zero-shot tasks, generated compositions and masked language models."""

import json
import math

import pytest

import train_runs

COMPOSITION = ("model.context_length = 64", 'data.generator = "composition"', "data.generated_train = 60",
               "data.generated_validation = 10", "train.steps = 3", "train.batch_size = 2")

@pytest.fixture(scope="module")
def dense(headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dense")
    train_runs.write_text(folder / "train.txt", 20000, 1)
    train_runs.write_text(folder / "validation.txt", 600, 2)
    config = train_runs.small_config(
        folder / "dense.toml", folder / "train.txt", "model.context_length = 64", "model.attention.n_heads = 4",
        "model.attention.d_head = 8", "model.attention.bias = true", 'model.attention.position = "learned"',
        "model.mlp.d_hidden = 64", 'model.mlp.activation = "gelu"', "train.steps = 80", "train.batch_size = 8",
        "train.learning_rate = 5e-3", validation=folder / "validation.txt")
    headroom("train", config, "--out", folder / "run", "--quiet")
    return folder / "run"


def test_mistakes(headroom, dense, tmp_path):
    assert "blimp?" in headroom.refusal("evaluate", dense, "--task", "blimpp", "--data", dense / "config.toml")
    line = headroom.refusal("evaluate", dense, "--task", "nothing")  # reported before missing data
    assert '--task: ' in line and 'nothing' in line and "?" not in line
    assert "--data" in headroom.refusal("evaluate", dense, "--task", "blimp")
    assert "--shots: " in headroom.refusal("evaluate", dense, "--shots", 2)
    for option in (["--begin", "bos"], ["--items", tmp_path / "items.jsonl"], ["--shots-from", dense / "config.toml"]):
        assert f"{option[0]}: " in headroom.refusal("evaluate", dense, *option)


def test_items_begin_and_shots(headroom, dense, tmp_path):
    rows = [{"query": "the head", "choices": ["attends to", "room"], "gold": i % 2} for i in range(3)]
    data = tmp_path / "copa.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = tmp_path / "items.jsonl"
    document = headroom.json("evaluate", dense, "--task", "copa", "--data", data, "--items", items)
    assert document["begin"] == "line_end" and "shots_from" not in document
    lines = [json.loads(line) for line in items.read_text().splitlines()]
    assert [line["question"] for line in lines] == [f"{data}:{i}" for i in (1, 2, 3)]
    assert [choice["continuation"] for choice in lines[0]["choices"]] == [" attends to", " room"]
    headroom("evaluate", dense, "--task", "copa", "--data", data, "--items", items)  # overwrites a file of its kind
    assert f"--items: {data}" in headroom.refusal("evaluate", dense, "--task", "copa", "--data", data, "--items", data)
    assert data.read_text().startswith('{"query"')
    for begin in ("none", "bos"):
        done = headroom("evaluate", dense, "--task", "copa", "--data", data, "--begin", begin)
        assert {"none": "texts without a prefix", "bos": "texts after bos"}[begin] in done.stdout
    own = headroom("evaluate", dense, "--task", "copa", "--data", data, "--shots", 1)
    assert "other questions of" in own.stderr and f"1 shots from {data}" in own.stdout
    other = tmp_path / "solved.jsonl"
    other.write_text(data.read_text())
    apart = headroom("evaluate", dense, "--task", "copa", "--data", data, "--shots", 1, "--shots-from", other)
    assert "other questions of" not in apart.stderr and f"1 shots from {other}" in apart.stdout


def test_bad_json_lines_are_skipped_if_requested(headroom, dense, tmp_path):
    lines = tmp_path / "text.jsonl"
    lines.write_text('{"text": "the head attends"}\n{"text": "lone \\ud800"}\n{"text": "every token rests"}\n')
    assert "text.jsonl:2: " in headroom.refusal("evaluate", dense, "--data", lines, "--quiet")
    done = headroom("evaluate", dense, "--data", lines, "--skip-bad-rows")
    assert "1 of its rows were left out; the first:" in done.stderr


def test_composition_of_generated_rows(headroom, tmp_path):
    config = train_runs.small_config(tmp_path / "composition.toml", None, *COMPOSITION)
    trained = headroom.json("train", config, "--out", tmp_path / "run", "--quiet")
    document = headroom.json("evaluate", tmp_path / "run", "--task", "composition", "--quiet")
    assert document["questions"] == 60
    assert document["accuracy"] == trained["validation_accuracy"]
    assert document["perplexity"] > 1
    assert sum(block["answers"] for block in document["blocks"].values()) == 60
    of_answers = sum(math.log(block["perplexity"]) * block["answers"] for block in document["blocks"].values()) / 60
    assert math.log(trained["answer_perplexity"]) == pytest.approx(of_answers, abs=1e-3)
    own = headroom.json("evaluate", tmp_path / "run", "--quiet")
    assert own["accuracy"] == trained["validation_accuracy"] and own["perplexity"] > 1
