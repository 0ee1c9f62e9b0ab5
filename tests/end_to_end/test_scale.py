"""Ranks store and send what `headroom cost --processes` predicts. docs/scale.md shows its output."""

import os
import re
import shlex

import pytest

import processes
import train_runs

PAGE = train_runs.ROOT / "docs/scale.md"
SETTINGS = ["model.n_layers=4", "model.d_model=512", "model.memory_length=0", "model.attention.d_head=64",
            "model.mlp.d_hidden=4096", "train.batch_size=4", "train.accumulate=4", "train.steps=3",
            "train.warmup_steps=0", "train.checkpoint_every=3", "train.evaluate_every=0", "train.evaluate_tokens=64"]
SAID = re.compile(r"rank (\d+): (\d+) elements owned; (\d+) bytes sent and (\d+) received in (\d+) steps; "
                  r"peak memory (\d+) bytes")


@pytest.mark.parametrize("n", [2, 4])
def test_processes_store_and_send_what_was_computed(headroom, tmp_path, n):
    config = train_runs.prepare(tmp_path)
    more = [word for pair in SETTINGS for word in ("--set", pair)]
    foretold = headroom.json("cost", config, "--processes", n, *more)[0]["processes"][0]["ranks"]
    group = processes.Group(n, tmp_path, "train", config, "--out", tmp_path / "run", "-v", *more)
    stderr = "".join(err for status, _, err in group.finish() if status == 0)
    found = {int(rank): [int(number) for number in rest] for rank, *rest in SAID.findall(stderr)}
    assert sorted(found) == list(range(n)), stderr
    for rank, (numbers, sent, received, steps, peak) in found.items():
        one = foretold[rank]
        assert steps == 3
        assert numbers == one["numbers"]
        assert sent == steps * sum(one["sent"].values())
        assert received == steps * sum(one["received"].values())
        assert peak == pytest.approx(one["memory"]["total"], rel=0.1), rank


def printed_by(headroom, command):
    words = shlex.split(command.replace("\\\n", " "))
    assert words.pop(0) == "headroom"
    return headroom(*words).stdout.split("\n\n")[0] + "\n"


def test_the_page_shows_the_output_of_the_commands(headroom):
    """Compares the outputs in the page; HEADROOM_WRITE_DOCS=1 updates them."""
    page = PAGE.read_text()
    shown = re.findall(r"^```\n(headroom cost (?:.*\\\n)*.*\n\n)((?:.+\n)*)```$", page, re.MULTILINE)
    assert len(shown) >= 3
    for command, output in shown:
        printed = printed_by(headroom, command)
        if "HEADROOM_WRITE_DOCS" in os.environ:
            page = page.replace(f"{command}{output}```", f"{command}{printed}```")
        else:
            assert output == printed, "HEADROOM_WRITE_DOCS=1 writes the page anew"
    if "HEADROOM_WRITE_DOCS" in os.environ:
        PAGE.write_text(page)
