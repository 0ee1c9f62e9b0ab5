"""Runs docs/tutorial.md at reduced size and compares the output, except numbers and sampled text."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import subprocess
import sys

import torch

import train_runs

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
SMALL = ["train.steps=30", "train.batch_size=4", "train.threads=1", "tokenizer.vocabulary_size=300", "model.d_model=32",
         "model.mlp.d_hidden=64"]
SIZE = 60_000  # bytes of text


def blocks():
    return re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def shape(text):
    """Returns the output without numbers and quoted strings."""
    return re.sub(r"'[^']*'", "''", re.sub(r"[\d.]+", "0", text)).strip().splitlines()


def serve(words, place, ended):
    """Starts a server for the duration of the test; returns the port."""
    process = ended.enter_context(subprocess.Popen([*words, "--port", "0", "--threads", "1"], cwd=place,
                                                   stderr=subprocess.PIPE, text=True))
    ended.callback(process.kill)
    return re.search(r":(\d+)$", next(line for line in process.stderr if line.startswith("listening on ")))[1]


def run_commands(text, place, servers):
    """Yields each command line with its output; for a server, with the port."""
    for line in text.strip().splitlines():
        words = shlex.split(line)
        assert words[0] == "headroom"
        words = [os.environ["HEADROOM_PROGRAM"], *words[1:]]
        if words[1] == "serve":
            yield line, serve(words, place, servers)
            continue
        if words[1] in ("train", "sweep"):
            words += [word for value in SMALL for word in ("--set", value)]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=train_runs.PATIENCE)
        assert done.returncode == 0, done.stderr
        yield line, done.stdout


def test_the_tutorial_runs_as_written(headroom, tmp_path, monkeypatch):
    (tmp_path / "texts").mkdir()
    train_runs.write_text(tmp_path / "texts" / "shakespeare.txt", SIZE, 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    with contextlib.ExitStack() as servers:
        ran = run_page(tmp_path, servers)
    torch.set_num_threads(threads)
    assert ran == ["train", "generate", "sweep", "serve", "evaluate"]
    assert sys.modules["headroom_torch"] and (tmp_path / "mine_hf" / "config.json").exists()


def run_page(place, servers):
    """Runs the blocks in order; returns the commands."""
    names, printed, ran, port = {}, "", [], "8080"
    for kind, text in blocks():
        if kind == "toml":
            (place / re.match(r"# (\S+)", text)[1]).write_text(text)
        elif kind == "":
            for line, out in run_commands(text, place, servers):
                ran.append(line.split()[1])
                printed = out if line.startswith("headroom train") else printed
                port = out if "serve" in line else port
        elif kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text.replace(":8080/", f":{port}/"), "tutorial.md", "exec"), names)
            printed = out.getvalue()
        elif "BENVOLIO" in text:  # generated text
            assert printed.startswith(text[:text.index("BENVOLIO")])
        else:
            expected = shape(text)
            assert shape(printed)[:len(expected)] == expected, printed
    return ran
