"""Runs that use an existing tokenizer or start from a checkpoint: which other keys of their config apply."""

import json
import tomllib

import pytest

import train_runs


@pytest.fixture(scope="module")
def folder(headroom, tmp_path_factory):
    """Makes a config, a tokenizer of 12 words, and a text prepared with it."""
    folder = tmp_path_factory.mktemp("given")
    train_runs.write_text(folder / "text.txt", 8000, 1)
    train_runs.small_config(folder / "bytes.toml", None, 'data.train = ["text.txt"]', "train.steps = 2",
                            "train.batch_size = 2", "train.evaluate_every = 0", "model.context_length = 16")
    headroom("tokenizer", "train", "text.txt", "--kind", "words", "--vocabulary-size", 12, "--out", "words.tokenizer", cwd=folder)
    headroom("data", "prepare", "text.txt", "--tokenizer", "words.tokenizer", "--out", "text.tokens", cwd=folder)
    headroom("train", "bytes.toml", "--out", "run", cwd=folder)
    return folder


def warned(text):
    """Returns the keys that a warning says have no effect."""
    return [line.split(": ")[2].split(" = ")[0] for line in text.splitlines()
            if line.startswith("warning: ") and "has no effect" in line]


@pytest.mark.parametrize("given", ["tokenizer.model=words.tokenizer", 'data.train=["text.tokens"]',
                                   'data.validation=["text.tokens"]'])
def test_keys_that_contradict_an_existing_tokenizer_are_named(headroom, folder, tmp_path, given):
    def run(name, *settings):
        sets = [word for setting in (given, *settings) for word in ("--set", setting)]
        return headroom("train", "bytes.toml", "--out", tmp_path / name, *sets, cwd=folder).stderr

    # small.toml sets tokenizer.kind.
    assert warned(run("kind")) == ["tokenizer.kind"]
    assert warned(run("both", "tokenizer.vocabulary_size=50")) == ["tokenizer.kind", "tokenizer.vocabulary_size"]
    assert warned(run("equal", "tokenizer.kind=words", "tokenizer.vocabulary_size=12")) == []
    assert tomllib.loads((tmp_path / "both" / "config.toml").read_text())["model"]["vocabulary_size"] == 12


@pytest.mark.parametrize("validation", ['["a.tokens", "b.tokens"]', '["?.tokens"]'])
def test_prepared_validation_files_are_read_and_checked(headroom, folder, tmp_path, validation):
    for name in () if (folder / "b.tokens").exists() else ("a", "b"):
        train_runs.write_text(folder / f"{name}.txt", 3000, ord(name))
        headroom("data", "prepare", f"{name}.txt", "--tokenizer", "words.tokenizer", "--out", f"{name}.tokens", cwd=folder)
    sets = ["--set", 'data.train=["text.tokens"]', "--set", f"data.validation={validation}"]
    trained = json.loads(headroom("train", "bytes.toml", "--out", tmp_path / "run", *sets, "--json", cwd=folder).stdout)
    evaluated = headroom.json("evaluate", tmp_path / "run")
    assert evaluated["loss"] == trained["validation_loss"]
    damaged = bytearray((folder / "b.tokens").read_bytes())
    damaged[-100] ^= 1
    (tmp_path / "damaged.tokens").write_bytes(damaged)
    assert "damaged.tokens" in headroom.refusal("evaluate", tmp_path / "run", "--data", tmp_path / "damaged.tokens")


def test_keys_without_the_key_they_depend_on_are_named(headroom, folder, tmp_path):
    keys = ["train.teacher_weight=0.5", "train.teacher_temperature=2", "train.start_sha256=ab", "data.separator=x"]
    done = headroom("train", "bytes.toml", "--out", tmp_path / "run", "--set", 'data.train=["text.tokens"]',
                    *(word for key in keys for word in ("--set", key)), cwd=folder)
    lines = [line for line in done.stderr.splitlines() if " has no effect " in line]
    assert sorted(line.split()[2] for line in lines) == sorted(key.split("=")[0] for key in keys)


def test_costs_say_that_they_do_not_know_the_vocabulary(headroom, folder):
    def warnings(*settings):
        done = headroom("cost", "bytes.toml", *(word for setting in settings for word in ("--set", setting)), cwd=folder)
        return [line for line in done.stderr.splitlines() if "model.vocabulary_size" in line]

    assert warnings() == []
    for setting in ("tokenizer.model=words.tokenizer", 'data.train=["text.tokens"]', "tokenizer.kind=words"):
        assert len(warnings(setting)) == 1
        assert warnings(setting, "model.vocabulary_size=12") == []


def test_keys_of_the_model_are_checked_with_those_of_the_checkpoint(headroom, folder, tmp_path):
    """The checkpoint's context_length, not the default, decides which memory_length is valid."""
    config = tmp_path / "tune.toml"
    config.write_text(f'[data]\ntrain = ["{folder}/text.txt"]\n[train]\nstart_from = "{folder}/run"\nsteps = 2\nthreads = 1\n')
    memory = ["--set", "model.memory_length=16"]
    headroom("train", config, "--out", tmp_path / "tuned", *memory)
    model = tomllib.loads((tmp_path / "tuned" / "config.toml").read_text())["model"]
    assert (model["context_length"], model["memory_length"]) == (16, 16)
    assert headroom.json("cost", config, *memory) != headroom.json("cost", config)
    headroom("train", config, "--out", tmp_path / "tuned", "--resume", "--set", "train.steps=3", *memory)
    headroom("compare", config, "--out", tmp_path / "compared", *memory)
    for command in ("train", "compare"):
        assert "model.memory_length" in headroom.refusal(command, config, "--out", tmp_path / command, "--set", "model.memory_length=8")


def test_validation_on_training_data_is_named(headroom, folder, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for name in ("a.txt", "b.txt"):
        (texts / name).write_text(f"{name} the of and to in is was he " * 20)
    (tmp_path / "link.txt").symlink_to(texts / "b.txt")
    (tmp_path / "copy.txt").write_text((texts / "b.txt").read_text())
    for train, seen in ((texts / "*.txt", True), (tmp_path / "link.txt", True), (tmp_path / "copy.txt", True), (texts / "a.txt", False)):
        done = headroom("train", folder / "bytes.toml", "--out", tmp_path / train.stem.replace("*", "all"), "--set",
                        f'data.train=["{train}"]', "--set", f'data.validation=["{texts / "b.txt"}"]')
        assert ("b.txt is also training data" in done.stderr) == seen


def test_a_run_resumed_with_more_steps_names_its_new_rate(headroom, folder, tmp_path):
    run = ["train", "bytes.toml", "--out", tmp_path / "run", "--set", "train.learning_rate=0.01", "--set", "train.warmup_steps=0"]
    headroom(*run, "--set", "train.steps=6", cwd=folder)
    resumed = headroom(*run, "--resume", "--set", "train.steps=12", cwd=folder).stderr
    assert "the learning rate goes from" in resumed and "at step 7: the schedule is that of 12 steps now" in resumed


def test_documents_are_prepared_as_the_run_joins_them(headroom, folder, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": "the of and to in is was he " * 10}) + "\n" for _ in range(2)))
    headroom("train", "bytes.toml", "--out", tmp_path / "run", "--set", f'data.train=["{rows}"]', "--set", "data.separator=</s>",
             "--set", "train.steps=1", cwd=folder)
    tokens = [headroom.json("data", "prepare", rows, "--tokenizer", tmp_path / name, "--out", tmp_path / "rows.tokens", *more)["tokens"]
              for name, *more in (["run"], ["run/checkpoints/step_1.safetensors"], ["run", "--separator", "\n"])]
    assert tokens[0] == tokens[1] == tokens[2] + len("</s>") - len("\n")
