"""`headroom analyse` from outside: what it prints and writes."""

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
