"""User errors and corrupt files cause one printable line each and leave no files behind."""

import json
import random
import re
import shutil
import signal
import string
import struct
import subprocess

import pytest

import train_runs

HOSTILE = "\x1b]0;owned\x07\x1b[2J"
QUICK = ["--set", "train.steps=2", "--set", "train.warmup_steps=0", "--set", "train.evaluate_every=0"]


def rewritten_metadata(source, target, change):
    """Copies a safetensors file with changed metadata."""
    data = source.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    change(header["__metadata__"])
    text = json.dumps(header, ensure_ascii=False).encode("utf-8", "surrogateescape")
    target.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
    return target


def is_printable(line):
    return all(c == "\n" or c.isprintable() for c in line)


@pytest.mark.parametrize("arguments", [
    ["train", HOSTILE], ["train", "--" + HOSTILE], [HOSTILE], ["evaluate", HOSTILE], ["cost", "demo/dense_h8", HOSTILE],
    ["train", "demo/dense_h8", "--set", f"model.{HOSTILE}=3"], ["train", "demo/dense_h8", "--set", f"train.seed={HOSTILE}"],
    ["train", "demo/dense_h8", "--set", HOSTILE], ["generate", "x", "--prompt", "y", "--tokens", HOSTILE],
    ["tokenizer", "encode", HOSTILE, "text"], ["bench", HOSTILE], ["cost", HOSTILE, "--match", "y"],
    ["train", "demo/dense_h8", "--set", "x" * 100000 + "=1"], ["train", "y" * 100000], ["y" * 100000],
    ["data", "prepare", "x", "--tokenizer", "y", "--out", HOSTILE],
])
def test_arguments_reach_the_terminal_escaped_and_shortened(headroom, arguments):
    line = headroom.refusal(*arguments)
    assert is_printable(line), repr(line)
    assert len(line) < 2000


@pytest.mark.parametrize("key", ["config", "tokenizer_name"])
def test_metadata_of_a_checkpoint_reaches_the_terminal_escaped(headroom, trained, tmp_path, key):
    whole = trained / "checkpoints" / "step_6.safetensors"
    for value in [HOSTILE, HOSTILE + "x" * 1000000]:
        bad = rewritten_metadata(whole, tmp_path / "bad.safetensors", lambda metadata: metadata.update({key: value}))
        line = headroom.refusal("evaluate", bad)
        assert "bad.safetensors" in line and is_printable(line) and len(line) < 2000, repr(line)[:300]


@pytest.mark.parametrize("arguments", [
    ["train", "demo/dense_h8", "--out"], ["compare", "demo/dense_h8", "demo/dense_h2", "--out"],
    ["report"],
])
def test_a_name_that_is_too_long_is_a_user_error(headroom, arguments):
    assert "File name too long" in headroom.refusal(*arguments, "a" * 300)


def test_a_text_must_be_utf8(headroom, trained):
    line = headroom.refusal("tokenizer", "encode", trained, "ab\udcff")
    assert "UTF-8" in line and "ab\\xff" in line


def test_character_coverage_makes_room(headroom, tmp_path):
    """Thousands of rare characters do not each need a piece."""
    text = tmp_path / "rare.txt"
    text.write_text("".join("aaaa bbbb cccc dddd " * 20 + chr(0x4e00 + i) + "\n" for i in range(600)))
    arguments = ["tokenizer", "train", text, "--out", tmp_path / "x.tokenizer", "--vocabulary-size", 280]
    done = headroom(*arguments, "--character-coverage", 1, status=2)
    assert "--vocabulary-size: " in done.stderr
    assert headroom.json(*arguments, "--character-coverage", 0.99)["vocabulary_size"] == 280


def test_several_files_after_data(headroom, trained, tiny, tmp_path):
    first, second = tiny.parent / "train.txt", tiny.parent / "validation.txt"
    both = tmp_path / "both.txt"
    both.write_text(first.read_text() + "\n" + second.read_text())
    whole = headroom.json("evaluate", trained, "--data", both)
    assert headroom.json("evaluate", trained, "--data", first, second)["loss"] == whole["loss"]
    assert headroom.json("evaluate", "--data", both, trained)["loss"] == whole["loss"]
    assert "--data" in headroom.refusal("evaluate", trained, first)


def test_messages_name_the_users_file_not_the_caches(headroom, trained, tiny, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("a")
    line = headroom("evaluate", trained, "--data", short, status=2).stderr.splitlines()[-1]
    assert f"{short}: " in line and ".tokens" not in line
    config = tmp_path / "short.toml"
    config.write_text(f'base = "{tiny}"\n[data]\ntrain = ["short.txt"]\n')
    line = headroom("train", config, "--out", tmp_path / "run", status=2).stderr.splitlines()[-1]
    assert f"{short}: " in line and ".tokens" not in line


def test_an_evaluation_works_without_a_writable_cache(headroom, trained, tiny, tmp_path):
    cache = tmp_path / "cache"
    cache.write_text("a file, where a folder cannot be made even by root")
    expected = headroom.json("evaluate", trained)["loss"]
    done = subprocess.run([train_runs.program(), "evaluate", trained, "--json"], capture_output=True, text=True,
                          timeout=train_runs.PATIENCE, env={**headroom.environment, "HEADROOM_CACHE": str(cache)})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss"] == expected


def test_the_first_line_names_the_corpus_and_the_memory(headroom, tiny, tmp_path):
    first = headroom("train", tiny, "--out", tmp_path / "run", *QUICK).stderr.splitlines()[0]
    assert str(tiny.parent / "train.txt") in first and re.search(r"at least [\d.]+ [KM]iB of memory", first), first
    assert "recipe's own" not in first


def test_a_tokenizer_does_not_replace_the_text_it_is_made_from(headroom, tmp_path):
    text = tmp_path / "book.txt"
    text.write_text("one two three\n" * 50)
    refusal = headroom.refusal("tokenizer", "train", tmp_path / "*.txt", "--kind", "words", "--out", text)
    assert str(text) in refusal and text.read_text().startswith("one two")


def test_a_model_beyond_the_memory_is_refused_with_both_figures(headroom, tiny, tmp_path):
    huge = ["--set", "model.n_layers=65536", "--set", "model.d_model=65536"]
    line = headroom("train", tiny, "--out", tmp_path / "run", *huge, status=2).stderr.splitlines()[-1]
    needed, there = re.search(r"at least ([\d.]+) TiB .* only ([\d.]+) [GT]iB", line).groups()
    assert float(needed) > 1 and float(there) > 0
    assert not (tmp_path / "run").exists()
    costs, = headroom.json("cost", tiny, *huge)
    assert abs(costs["step_memory"]["total"] / 2**40 - float(needed)) < 0.06
    assert "GiB" in headroom("cost", tiny).stdout


def test_a_moved_run_still_evaluates(headroom, tiny, tmp_path):
    """A run finds the files of its config after it is moved, from any working directory."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "texts").mkdir()
    for name in ["train.txt", "validation.txt"]:
        shutil.copy(tiny.parent / name, tmp_path / "texts" / name)
    (tmp_path / "configs" / "dense.toml").write_text(tiny.read_text().replace(str(tiny.parent), "../texts"))
    (tmp_path / "configs" / "short.toml").write_text('base = "dense.toml"\n[train]\nsteps = 6\n')
    headroom("train", "configs/short.toml", "--out", "run", cwd=tmp_path)
    own = headroom.json("evaluate", tmp_path / "run")
    resolved = (tmp_path / "run" / "config.toml").read_text()
    assert f'train = ["{tmp_path}/texts/train.txt"]  # configs/dense.toml:' in resolved
    assert re.search(r"^steps = 6  # configs/short.toml:3$", resolved, re.MULTILINE)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "run", tmp_path / "elsewhere" / "moved")
    moved = subprocess.run([train_runs.program(), "evaluate", "moved", "--json"], cwd=tmp_path / "elsewhere", text=True,
                           env=headroom.environment, capture_output=True, timeout=train_runs.PATIENCE)
    assert json.loads(moved.stdout)["loss"] == own["loss"]


def test_evaluating_and_writing_take_the_runs_threads_and_precision(headroom, tiny, tmp_path):
    for precision in ["fp32", "bf16"]:
        headroom("train", tiny, "--out", tmp_path / precision, *QUICK, "--set", f"train.precision={precision}")
        documents = [headroom.json("evaluate", tmp_path / precision),
                     headroom.json("generate", tmp_path / precision, "--prompt", "a", "--tokens", 2)]
        assert [(d["threads"], d["precision"]) for d in documents] == [(1, precision)] * 2
    assert headroom.json("evaluate", tmp_path / "fp32", "--threads", 2)["threads"] == 2
    assert headroom.json("generate", tmp_path / "fp32", "--prompt", "a", "--tokens", 2, "--threads", 2)["threads"] == 2
    # The same parameters in the other precision give a slightly different loss.
    rounded, exact = (headroom.json("evaluate", tmp_path / "bf16", "--precision", precision)["loss"] for precision in ["bf16", "fp32"])
    assert exact == pytest.approx(rounded, abs=0.02) and exact != rounded


def big_text(path):
    path.write_text("the head room attends to every token twice\n" * 1600000)
    return path


@pytest.fixture(scope="module")
def preparing(headroom, tiny, tmp_path_factory):
    """Starts `data prepare` of a long text and waits until it writes."""
    folder = tmp_path_factory.mktemp("preparing")
    text = big_text(folder / "big.txt")
    words = folder / "words.tokenizer"
    headroom("tokenizer", "train", tiny.parent / "train.txt", "--kind", "words", "--out", words)

    def start(out):
        process = subprocess.Popen([train_runs.program(), "data", "prepare", text, "--tokenizer", words, "--out", out],
                                   env=headroom.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        train_runs.wait_until(lambda: list(out.parent.glob("*.tmp-*")), process)
        return process
    return start


def test_an_interrupted_preparation_leaves_nothing(preparing, tmp_path):
    process = preparing(tmp_path / "big.tokens")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=train_runs.PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM and "interrupted" in error, error
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_training_of_a_tokenizer_leaves_nothing(headroom, tmp_path):
    out = tmp_path / "out" / "x.tokenizer"
    out.parent.mkdir()
    draw = random.Random(1)
    words = ["".join(draw.choices(string.ascii_lowercase, k=draw.randrange(3, 12))) for _ in range(40000)]
    text = tmp_path / "text.txt"  # its many words take SentencePiece seconds
    text.write_text("\n".join(" ".join(words[i:i + 10]) for i in range(0, len(words), 10)))
    process = subprocess.Popen([train_runs.program(), "tokenizer", "train", text, "--vocabulary-size", "2000", "--out", out],
                               env=headroom.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while "training SentencePiece" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=train_runs.PATIENCE)
    assert process.returncode == 130 and "interrupted" in error, error
    assert list(out.parent.iterdir()) == []


def test_leftovers_of_a_killed_process_are_removed_by_the_next_run(headroom, preparing, tiny, tmp_path):
    process = preparing(tmp_path / "big.tokens")
    process.kill()
    process.communicate()
    left, = tmp_path.glob("*.tmp-*")
    cache = tmp_path / "cache"
    cache.mkdir()
    shutil.copy(left, cache / "0123456789abcdef.tokens.tmp-4242-0")
    environment = {**headroom.environment, "HEADROOM_CACHE": str(cache)}
    done = subprocess.run([train_runs.program(), "train", tiny, "--out", tmp_path / "run", *QUICK], env=environment,
                          capture_output=True, text=True, timeout=train_runs.PATIENCE)
    assert done.returncode == 0, done.stderr
    assert not list(cache.glob("*.tmp-*"))
    process = preparing(tmp_path / "big.tokens")
    train_runs.wait_until(lambda: not left.exists(), process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=train_runs.PATIENCE)


def test_damaged_text_is_named_and_leaves_nothing(headroom, trained, tmp_path):
    """tests/data/text covers other kinds of damage."""
    bad = tmp_path / "lines.jsonl"
    bad.write_text('{"text": "a"}\n{"text": 3}\n')
    done = headroom("data", "prepare", bad, "--tokenizer", trained, "--out", tmp_path / "x.tokens", status=2)
    line = done.stderr.splitlines()[-1]
    assert f"{bad}:2: " in line and "text" in line, line
    assert list(tmp_path.iterdir()) == [bad]
