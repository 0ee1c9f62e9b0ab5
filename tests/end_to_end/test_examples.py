"""Every command in the README, the docs and --help works: its options exist, its configs load, and it runs if a reduced
size allows that."""

import functools
import re
import shlex
import subprocess

import pytest

import train_runs
from test_command_line import COMMANDS

DOCUMENTS = [train_runs.ROOT / "README.md", train_runs.ROOT / "AGENTS.md", *sorted((train_runs.ROOT / "docs").rglob("*.md"))]
TRAINING = ["train", "compare", "cost", "doctor", "demo", "sweep"]

# These settings make a language model that trains in two seconds.
SMALL = ["model.n_layers=2", "model.d_model=16", "model.attention.d_head=8", "model.mlp.d_hidden=32",
         "model.context_length=16", "train.steps=2", "train.warmup_steps=0", "train.batch_size=2",
         "train.accumulate=1", "train.evaluate_every=0", "train.threads=1"]


def commands_in(text):
    """Yields the words of each line `headroom ...`. Lines that end with a backslash are joined; pipes are cut off."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        found = re.match(r"\s*(?:\./run\.sh )?headroom (\S.*)", line)
        if found:
            words = shlex.split(found[1], comments=True)
            stop = [i for i, word in enumerate(words) if word in ["|", ">"]]
            yield words[:stop[0]] if stop else words


def blocks(path):
    return re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def shown_in_documents():
    found = []
    for path in DOCUMENTS:
        for block in blocks(path):
            found += commands_in(block)
        found += [shlex.split(text) for text in re.findall(r"`headroom ([a-z][^`]*)`", path.read_text())]
    return found


def split_path(words):
    for length in [2, 1]:
        if " ".join(words[:length]) in COMMANDS:
            return words[:length], words[length:]
    return None, words


@functools.cache
def help_of(headroom, command):
    return headroom(*command.split(), "--help").stdout


def check(headroom, words, recipes):
    """Returns the recipes that the command uses, and its settings."""
    path, arguments = split_path(words)
    assert path, f"no such command: headroom {shlex.join(words)}"
    options = set(re.findall(r"(?<!\w)--?[a-z][\w-]*", help_of(headroom, " ".join(path))))
    for word in arguments:
        if re.match(r"--?[a-z]", word):
            assert word.split("=")[0] in options, f"headroom {shlex.join(words)}: {word}"
    sets = [arguments[i + 1] for i, word in enumerate(arguments)
            if word == "--set" and not arguments[i + 1].startswith(("train.start_from=", "train.teacher="))]  # files to be made
    configs = [word for word in arguments if re.fullmatch(r"\w+/\w+", word) and word in recipes]
    if path[0] in TRAINING + ["try", "convert", "recipes"]:
        named = [word for word in arguments if re.fullmatch(r"(demo|small|zoo|switchhead|moa|dcmha|mgk)/\w+", word)]
        assert set(named) <= recipes, f"headroom {shlex.join(words)}"
    return configs or (["demo/dense_h8"] if sets else []), tuple(sets)


def test_commands_in_the_documents_and_the_help_are_known(headroom):
    shown, recipes = shown_in_documents(), {row["name"] for row in headroom.json("recipes")}
    assert len(shown) > 25
    for command in COMMANDS:
        examples = list(commands_in(help_of(headroom, command).split("Example:\n")[1]))
        assert command.split() in [split_path(words)[0] for words in examples], command
        shown += examples
    configs = {}
    for words in shown:
        used, sets = check(headroom, words, recipes)
        configs.setdefault(sets, set()).update(used)
    for sets, names in configs.items():
        if names:
            headroom("cost", *sorted(names), *[word for pair in sets for word in ["--set", pair]])


@pytest.fixture
def place(tmp_path):
    """Makes the files that the examples name, and the README's config at reduced size."""
    (tmp_path / "texts").mkdir()
    for i, name in enumerate(["texts/a.txt", "held_out.txt", "other.txt", "book.txt"]):
        train_runs.write_text(tmp_path / name, 6000, i)
    readme = DOCUMENTS[0].read_text()
    (tmp_path / "mine.toml").write_text(re.search(r"```toml\n(# mine.toml.*?)```", readme, re.DOTALL)[1])
    compare = (train_runs.ROOT / "docs/compare.md").read_text()
    for name in ["dense.toml", "switchhead.toml"]:
        (tmp_path / name).write_text(re.search(rf"```toml\n(# {name}.*?)```", compare, re.DOTALL)[1])
    return tmp_path


def run(headroom, place, words, *more):
    done = subprocess.run([train_runs.program(), *words, *more], cwd=place, env=headroom.environment, text=True,
                          capture_output=True, timeout=train_runs.PATIENCE)
    assert done.returncode == 0, f"headroom {shlex.join(words)}:\n{done.stderr}"
    return done.stdout


def test_the_readmes_first_steps_run_as_written(headroom, place):
    small = [word for value in [*SMALL, "model.memory_length=16", "tokenizer.kind=bytes", "tokenizer.vocabulary_size=256"]
             for word in ["--set", value]]
    ran = []
    for block in blocks(DOCUMENTS[0]):
        for words in commands_in(block):
            run(headroom, place, words, *(small if words[0] == "train" else []))
            ran.append(words[0])
    assert ran == ["train", "evaluate", "generate"]


def test_a_comparison_runs_as_written(headroom, place):
    # `cost --match` writes the second config.
    run_ = lambda *words: run(headroom, place, list(words))
    block = [words for path in DOCUMENTS if path.name == "compare.md" for b in blocks(path) for words in commands_in(b)]
    match = next(words for words in block if "--match" in words)
    (place / "matched.toml").write_text(run_(*match))
    costs = {name: headroom.json("cost", place / name)[0]["parameters"] for name in ["dense.toml", "matched.toml"]}
    assert abs(costs["dense.toml"] - costs["matched.toml"]) < 0.01 * costs["dense.toml"]
    compare = next(words for words in block if words[0] == "compare")
    text = (place / "texts/a.txt").as_posix(), (place / "held_out.txt").as_posix()
    sets = [*SMALL, "tokenizer.kind=bytes", "tokenizer.vocabulary_size=256", "model.vocabulary_size=256",
            f'data.train=["{text[0]}"]', f'data.validation=["{text[1]}"]']
    run(headroom, place, compare, *[word for value in sets for word in ["--set", value]])
    assert (place / "runs/fair/report.html").exists()


def test_the_tokenizers_examples_run_as_written(headroom, place):
    """Runs the examples of --help in order: each may read what an earlier one wrote."""
    for command in ["tokenizer train", "tokenizer encode", "tokenizer decode", "data prepare"]:
        text = headroom(*command.split(), "--help").stdout.split("Example:\n")[1]
        for words in commands_in(text):
            run(headroom, place, ["320" if word == "4000" else word for word in words])
    assert (place / "book.tokens").exists()


COMPLETE = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_headroom
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def complete(headroom, tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    script = folder / "headroom.bash"
    script.write_text(headroom("__complete").stdout)
    (folder / "headroom").symlink_to(train_runs.program())

    def run_bash(*words):
        done = subprocess.run(["bash", "-c", COMPLETE, "bash", script, "headroom", *words], capture_output=True, text=True,
                              cwd=folder, env={**headroom.environment, "PATH": f"{folder}:/usr/bin:/bin"},
                              timeout=train_runs.PATIENCE)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout.split()
    return run_bash


def test_bash_completes(complete):
    assert {"train", "evaluate", "tokenizer"} <= set(complete(""))
    assert complete("trai") == ["train"]
    assert complete("tokenizer", "") == ["train", "encode", "decode"] or "encode" in complete("tokenizer", "")
    assert complete("train", "--re") == ["--resume"]
    assert "--vocabulary-size" in complete("tokenizer", "train", "--v")
    assert "--resume" not in complete("tokenizer", "train", "--")
    assert complete("evaluate", "--precision", "b") == ["bf16"]
    assert complete("train", "switchhead/wt103_47") and all(
        name.startswith("switchhead/wt103_47") for name in complete("train", "switchhead/wt103_47"))
    assert "demo/dense_h8" in complete("cost", "demo/switchhead_h2", "--match", "demo/")
    assert complete("train", "--set", "train.warm") == ["train.warmup_steps="]
    assert complete("compare", "--tune", "model.attention.n_he") == ["model.attention.n_heads="]
    assert "headroom.bash" in complete("tokenizer", "encode", "headr")


def test_install_puts_the_program_on_the_path(headroom, tmp_path):
    """Installs into a temporary home folder with run.sh's function for `./run.sh install`."""
    text = (train_runs.ROOT / "run.sh").read_text()
    function = re.search(r"^install_for_user\(\) \{.*?^\}$", text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "build/bin").mkdir(parents=True)
    (tmp_path / "build/bin/headroom").symlink_to(train_runs.program())
    script = f'set -euo pipefail\nbuild={tmp_path}/build\nsay() {{ printf "%s\\n" "$*"; }}\n{function}\ninstall_for_user\n'
    environment = {**headroom.environment, "HOME": str(tmp_path / "home"), "XDG_DATA_HOME": ""}
    stdout = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True).stdout
    assert f'export PATH="{tmp_path}/home/.local/bin:$PATH"' in stdout
    installed = subprocess.run([tmp_path / "home/.local/bin/headroom", "--version"], capture_output=True, text=True)
    assert installed.stdout.startswith("headroom ")
    data = tmp_path / "home/.local/share"
    assert (data / "bash-completion/completions/headroom").read_text() == headroom("__complete").stdout
