"""Formulas of attention scores: the examples of docs/formula.md train and decode, and mistakes are refused."""

import re

import pytest

import train_runs

PAGE = (train_runs.ROOT / "docs/formula.md").read_text()
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def config(tiny, path, attention):
    path.write_text(f'base = "{tiny}"\n[model]\nmemory_length = 0\n[model.attention]\nprojection = "dense"\nposition = "none"\n'
                    f'{attention}\n[train]\nsteps = 6\n')
    return path


@pytest.mark.parametrize("block", range(max(10, len(BLOCKS))))
def test_a_mechanism_trains_and_decodes_beyond_its_context(headroom, tiny, tmp_path, block):
    path = config(tiny, tmp_path / "mine.toml", BLOCKS[block])
    assert headroom.json("train", path, "--out", tmp_path / "run")["validation_loss"] < 6.5
    headroom("generate", tmp_path / "run", "--prompt", "the ", "--tokens", "24", "--temperature", "0")


def test_mistakes_are_refused(headroom, tiny, tmp_path):
    for wrong, sentence in [
            ('formula = "s +"', "formula: column 4: expected a value, got the end"),
            ('formula = "s + slpe"\nlearned = { slope = { shape = "head" } }', "column 5: unknown name slpe, did you mean slope?"),
            ('formula = "s - slope"\nlearned = { slope = { shape = "heads" } }', "learned.slope.shape: must be one of"),
            ('learned = { slope = { shape = "head" } }', "learned.slope: neither formula nor mask uses it"),
            ('learned = { near = { shape = "distance" } }', "learned.near.size: must be set"),
            ('mask = "s < 1"', "mask: column 1: a mask cannot read s"),
            ('mask = "i - j"', "expected a comparison, got a number"),
            ('formula = "log(s)"', "formula: log gives no number at the start for s = -4"),
            ('formula = "s * 1e38"', "formula: it gives inf at the start for s = 4"),
            ('formula = "where(j > 2, s, -inf)"\ncomposition = "static"', "formula: it gives -inf at the start for s = -4"),
            ('formula = "where(j > 2, s, -inf)"\nnormalise = "none"', "formula: it gives -inf at the start for s = -4"),
            ('formula = "tanh(s)"\ncomposition = "differential"', "formula: must be left out with composition"),
            ('formula = "tanh(s)"\nscore = "sigmoid"', "needs score"),
            ('normalise = "none"\nsink = true', 'normalise: must be "softmax" with sink')]:
        path = config(tiny, tmp_path / "wrong.toml", wrong)
        assert sentence in headroom.refusal("train", path, "--out", tmp_path / "never"), wrong


def test_set_replaces_the_learned_values(headroom, tiny, tmp_path):
    path = config(tiny, tmp_path / "mine.toml", 'formula = "s - a * (i - j)"\nlearned = { a = { shape = "head", start = 0.5 } }')
    headroom("train", path, "--out", tmp_path / "run", "--set", "model.attention.formula=where(s > b, s, b)", "--set",
             'model.attention.learned={b = {shape = "head", start = 1}}')
    text = (tmp_path / "run/config.toml").read_text()
    assert 'learned = {"b" = {"shape" = "head", "start" = 1}}' in text
