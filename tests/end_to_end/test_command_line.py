"""Tests what all commands share: help, exit status, one-line errors, one JSON document."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import tomllib

import pytest

import train_runs

COMMANDS = ["train", "evaluate", "generate", "serve", "compare", "sweep", "try", "report", "demo", "analyse",
            "inspect", "checkpoint info", "checkpoint export", "import", "convert", "cost", "recipes", "tokenizer train",
            "tokenizer encode", "tokenizer decode", "data prepare", "bench", "doctor"]


def test_help_lists_the_commands(headroom):
    text = headroom("--help").stdout
    listed = re.findall(r"^  (\w+) ", text.split("Subcommands:")[1].split("\n\n")[0], re.MULTILINE)
    assert listed == list(dict.fromkeys(command.split()[0] for command in COMMANDS))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(headroom, command):
    done = headroom(*command.split(), "--help")
    assert done.stderr == ""
    assert re.search(rf"^Example:\n  headroom {command}\b", done.stdout, re.MULTILINE), done.stdout
    assert "--json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_program_does_not_load_torch(headroom):
    """The program starts quickly because it does not link to a tensor library."""
    libraries = subprocess.run(["ldd", train_runs.program()], capture_output=True, text=True, check=True).stdout
    assert "libheadroom_core" in libraries
    assert "torch" not in libraries and "libheadroom_engine" not in libraries


def test_a_full_disk_is_a_failure(headroom):
    with open("/dev/full", "w") as full:
        done = headroom("recipes", status=1, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert re.fullmatch(r"headroom: standard output: .*\n", done.stderr)


@pytest.mark.parametrize("nowhere", ["2>&-", "2>/dev/full"])
def test_statuses_do_not_need_standard_error(headroom, tmp_path, nowhere):
    config = train_runs.prepare(tmp_path)

    def status(*arguments):
        words = shlex.join([train_runs.program(), *map(str, arguments)])
        done = subprocess.run(f"{words} {nowhere}", shell=True, env=headroom.environment, capture_output=True, text=True)
        return done.returncode, done.stdout

    assert status("cost", "no/such/config") == (2, "")
    assert status("train", config, "--out", tmp_path / "bad", "--set", "train.learning_rate=1e30") == (1, "")
    code, out = status("train", config, "--out", tmp_path / "run", "--set", "train.steps=6", "--json")
    assert code == 0 and json.loads(out)["steps"] == 6


def test_a_closed_pipe_is_not_a_failure(headroom):
    reading, writing = os.pipe()
    os.close(reading)
    done = headroom("recipes", capture_output=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.stderr == ""


def test_shared_options_stand_before_or_behind_the_command(headroom):
    assert headroom("--json", "recipes").stdout == headroom("recipes", "--json").stdout


def test_papers(headroom):
    text = headroom("recipes", "--paper", "moa").stdout
    assert "\nTable 2: masked language models on WikiText-103\n" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "attention" in headroom.refusal("recipes", "--paper", "attention")


def test_cost_varies_a_key_and_draws(headroom, tmp_path):
    plot = tmp_path / "heads.html"
    names = ["mgk/lra_listops_softmax_h8", "mgk/lra_listops_mgk_h4"]
    rows = headroom.json("cost", *names, "--vary", "model.attention.n_heads=1,2", "--plot", plot)
    assert [row["name"] for row in rows] == [f"{name} n_heads={n}" for name in names for n in (1, 2)]
    assert rows[3] == headroom.json("cost", "mgk/lra_listops_mgk_h2")[0] | {"name": rows[3]["name"]}
    assert plot.read_text().startswith("<!doctype html>") and "lra_listops_mgk_h4" in plot.read_text()
    assert "--vary" in headroom.refusal("cost", *names, "--plot", plot)
    assert "--vary model.attention.n_heads" in headroom.refusal("cost", *names, "--vary", "model.attention.n_heads")


def test_recipes(headroom):
    rows = headroom.json("recipes")
    assert {"name", "file", "paper", "row"} <= rows[0].keys()
    names = [row["name"] for row in rows]
    assert "switchhead/wt103_47m" in names and len(set(names)) == len(names)
    assert "switchhead/wt103_47m" in headroom("recipes").stdout
    row, = headroom.json("recipes", "switchhead/table1_vo")
    assert row == next(row for row in rows if row["name"] == "switchhead/table1_vo")
    found = {row["name"] for row in headroom.json("recipes", "ListOps")}
    assert {"switchhead/listops_six_layers_h2", "mgk/lra_listops_mgk_h4"} <= found < set(names)
    assert "switchhead/wt103_47m" in headroom.refusal("recipes", "switchhead/wt103_47x")
    assert "did you mean switchhead?" in headroom.refusal("recipes", "swichhead")


def test_help_and_version_are_commands_too(headroom):
    assert headroom("help").stdout == headroom("--help").stdout
    assert headroom("help", "tokenizer", "train").stdout == headroom("tokenizer", "train", "--help").stdout
    assert re.fullmatch(r"headroom \d+\.\d+\.\d+\n", headroom("--version").stdout)
    assert headroom("version").stdout == headroom("--version").stdout
    assert "trian" in (line := headroom.refusal("help", "trian")) and "train" in line.replace("trian", "")
    assert "extra" in headroom.refusal("help", "train", "extra")


def test_arguments_that_look_like_lists_or_follow_one(headroom, tiny, tmp_path):
    for name in ["[a]", "a"]:
        headroom("train", tiny, "--out", tmp_path / name, "--set", "train.steps=1", "--set", "train.warmup_steps=0", "--quiet")
    headroom("report", "[a]", cwd=tmp_path)
    assert (tmp_path / "[a]" / "report.html").exists() and not (tmp_path / "a" / "report.html").exists()
    ranks = headroom.json("cost", "--processes", "1,2", tiny)[0]["processes"]
    assert len(ranks) == 2


def test_a_resolved_recipe_is_complete(headroom, tmp_path):
    name = "switchhead/table1_vo"  # its base has a base
    mine = tmp_path / "mine.toml"
    mine.write_text(headroom("recipes", name, "--resolved").stdout)
    assert "base" not in tomllib.loads(mine.read_text())
    assert headroom.json("recipes", name, "--resolved")[0]["resolved"] == mine.read_text()
    copy, = headroom.json("cost", mine)
    assert copy == headroom.json("cost", name)[0] | {"name": copy["name"]}


def test_cost(headroom):
    dense, sparse = headroom.json("cost", "switchhead/wt103_47m_dense_h10", "switchhead/wt103_47m")
    for row in dense, sparse:
        assert all(isinstance(row[key], int) for key in ["parameters", "attention_macs", "attention_memory"])
        assert set(row["executed"]) == {"attention_macs", "mlp_macs", "head_macs", "step_macs", "visible_macs"}
    assert dense["name"] == "switchhead/wt103_47m_dense_h10"
    assert sparse["attention_macs"] < dense["attention_macs"]
    shorter, = headroom.json("cost", "switchhead/wt103_47m", "--set", "model.n_layers=8")
    assert shorter["parameters"] < sparse["parameters"]


def test_cost_finds_the_size_for_a_time(headroom, tmp_path):
    tiny = train_runs.prepare(tmp_path)
    size, = headroom.json("cost", tiny, "--time", "30s")
    assert size["tokens"] == 20 * size["parameters"] and 0 < size["seconds"] <= 30
    assert abs(size["tokens"] - size["tokens_per_second"] * size["seconds"]) < 1
    chosen = [word for change in size["set"] for word in ("--set", change)]
    assert headroom.json("cost", tiny, *chosen)[0]["parameters"] == size["parameters"]
    assert "tokens/s" in headroom("cost", tiny, "--time", "30s").stdout
    assert "language model" in headroom.refusal("cost", "small/listops_dense_h8", "--time", "1h")
    assert "--vary" in headroom.refusal("cost", tiny, "--time", "1h", "--vary", "model.n_layers=1,2")
    assert "--paper" in headroom.refusal("cost", "--paper", "moa", "--time", "1h")


def test_match_prints_a_config_that_costs_as_much(headroom, tmp_path):
    arguments = ["cost", "demo/switchhead_h2", "--match", "demo/dense_h8", "--by", "parameters"]
    matched = tmp_path / "matched.toml"
    matched.write_text(headroom(*arguments).stdout)
    document = headroom.json(*arguments)
    cost, target = headroom.json("cost", matched, "demo/dense_h8")
    assert cost["parameters"] == document["parameters"]
    assert document["target"] == target["parameters"]
    text = matched.read_text()
    assert text.startswith('base = "demo/switchhead_h2"\n'), "what changes comes first"
    full = tmp_path / "full.toml"
    full.write_text(headroom(*arguments, "--full").stdout)
    assert len(text.splitlines()) < 30 < len(full.read_text().splitlines())
    assert headroom.json("cost", full)[0]["parameters"] == document["parameters"]
    # One more hidden channel in each of the 4 layers would exceed the target.
    assert 0 <= document["target"] - document["parameters"] < 4 * (2 * 192 + 1)


def test_match_names_a_file_so_that_it_is_found_from_anywhere(headroom, tiny, tmp_path):
    asked = ["cost", tiny.name, "--match", tiny.name, "--set", "model.attention.n_heads=1", "--set", "train.steps=7"]
    text = headroom(*asked, cwd=tiny.parent).stdout
    assert text.startswith(f'base = "{tiny}"\n') and "\nsteps = 7  # was 60\n" in text and "\nn_heads = 1  # was 2\n" in text
    matched = tmp_path / "matched.toml"
    matched.write_text(text)
    document = headroom.json("cost", tiny, *asked[2:3], tiny, *asked[4:])
    assert headroom.json("cost", matched)[0]["parameters"] == document["parameters"]


def test_match_into_a_file_can_be_moved_with_its_base(headroom, tiny, tmp_path):
    here = tmp_path / "here"
    (here / "matched").mkdir(parents=True)
    (here / "mine.toml").write_text(tiny.read_text())
    with open(here / "matched" / "matched.toml", "w") as file:
        headroom("cost", here / "mine.toml", "--match", tiny, capture_output=False, stdout=file)
    there = here.rename(tmp_path / "there")
    assert (there / "matched" / "matched.toml").read_text().startswith('base = "../mine.toml"\n')
    assert headroom.json("cost", there / "matched" / "matched.toml")[0]["parameters"] > 0


def test_tokenizer_and_data(headroom, tiny, tmp_path):
    text = tiny.parent / "train.txt"
    made = headroom.json("tokenizer", "train", text, "--vocabulary-size", 300, "--keep-whitespace", "--out",
                         tmp_path / "pieces.tokenizer")
    assert made["vocabulary_size"] == 300
    ids = headroom.json("tokenizer", "encode", made["file"], "the room rests.\n")["ids"]
    assert all(0 <= i < 300 for i in ids)
    assert headroom.json("tokenizer", "decode", made["file"], *ids)["text"] == "the room rests.\n"
    assert headroom("tokenizer", "encode", made["file"], "the room rests.\n").stdout.split() == list(map(str, ids))

    prepared = headroom.json("data", "prepare", text, "--tokenizer", made["file"], "--out", tmp_path / "train.tokens")
    assert prepared["tokenizer"] == made["tokenizer"]
    assert prepared["text_bytes"] == text.stat().st_size
    assert 0 < prepared["tokens"] < prepared["text_bytes"]


def test_train(headroom, tiny, tmp_path):
    result = headroom.json("train", tiny, "--out", tmp_path / "run", "--set", "train.steps=6", "--threads", 1)
    assert {"steps", "train_loss", "validation_loss", "tokens_per_second", "seconds", "peak_memory_bytes", "parameters",
            "parameters_sha256"} <= result.keys()
    assert result["steps"] == 6
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text().strip() == "step_6.safetensors"
    ids = headroom.json("tokenizer", "encode", tmp_path / "run", "the room")
    assert ids == headroom.json("tokenizer", "encode", tmp_path / "run" / "checkpoints", "the room")
    assert ids == headroom.json("tokenizer", "encode", tmp_path / "run" / "checkpoints" / "step_6.safetensors", "the room")
    assert "--resume" in headroom.refusal("train", tiny, "--out", tmp_path / "run")
    assert "no.txt: does not exist" in headroom.refusal("train", tiny, "--set", 'data.train=["no.txt"]', "--out", tmp_path / "run")


def test_train_writes_below_runs_by_default(headroom, tiny, tmp_path):
    headroom("train", tiny, "--set", "train.steps=6", cwd=tmp_path)
    assert (tmp_path / "runs" / "tiny" / "config.toml").exists()


def test_evaluate(headroom, tiny, trained, tmp_path):
    own = headroom.json("evaluate", trained)
    assert {"loss", "perplexity", "bits_per_byte", "tokens"} <= own.keys()
    # The run's validation data can be given by name. The first byte of each of up to 16 streams is not predicted.
    text = tiny.parent / "validation.txt"
    named = headroom.json("evaluate", trained, "--data", text)
    assert named["loss"] == own["loss"] and named["data"] == own["data"] == str(text)
    assert f"predictions of {text}" in headroom("evaluate", trained).stdout
    assert text.stat().st_size - 16 <= own["tokens"] < text.stat().st_size
    checkpoint = trained / "checkpoints" / "step_6.safetensors"
    assert headroom.json("evaluate", checkpoint)["loss"] == own["loss"]
    assert re.search(r"^expert_linear: fused [1-9]\d* times, reference 0 times$",
                     headroom("evaluate", trained, "--verbose").stderr, re.MULTILINE)
    for option in ("--beam", "--length-penalty"):
        assert f'{option}: ' in headroom.refusal("evaluate", trained, option, 2)
    assert "step_N.safetensors" in headroom.refusal("evaluate", trained, "--checkpoint", 6)
    assert f": {text}: is not a safetensors file" in headroom.refusal("evaluate", text)
    assert headroom("evaluate", trained).stdout.endswith(f", {own['precision']}\n")
    assert headroom.json("evaluate", trained, "--tokens", 64)["tokens"] < own["tokens"]


def test_generate(headroom, trained):
    arguments = ["generate", trained, "--prompt", "the room ", "--tokens", 20, "--seed", 3]
    document = headroom.json(*arguments)
    assert {"text", "tokens_per_second"} <= document.keys()
    assert headroom(*arguments).stdout == "the room " + document["text"] + "\n"
    assert headroom.json(*arguments[:-1], 4)["text"] != document["text"]
    assert headroom("generate", trained, "--tokens", "0", "--prompt", "as it is").stdout == "as it is\n"
    for option in ("--beam", "--length-penalty"):
        assert f'{option}: ' in headroom.refusal(*arguments, option, 2)
    assert "use > FILE" in headroom.refusal(*arguments, "--out", "text.txt")


def test_generated_text_is_escaped_on_a_terminal(headroom, trained):
    command = ["generate", trained, "--tokens", "1", "--prompt", "a\x1b[31mb"]
    assert headroom(*command).stdout.startswith("a\x1b[31mb"), "a file gets what was written"
    screen, terminal = os.openpty()
    headroom(*command, capture_output=False, stdout=terminal, stderr=subprocess.DEVNULL)
    os.close(terminal)
    with open(screen, "rb") as shown:
        assert shown.read1().startswith(b"a\\x1b[31mb")


def test_bench_profiles_the_step_of_a_config(headroom, tiny):
    step, *operators = headroom.json("bench", "profile", "--config", tiny, "--repeats", "1", "--threads", "1")
    assert step["name"] == f"{tiny} B4, a step" and step["seconds"] > 0
    assert 0 < sum(row["seconds"] for row in operators) <= step["seconds"]
    assert any("_backward" in row["name"] for row in operators)
    steps = [row for row in headroom.json("bench", "profile", "--config", tiny, "--config", tiny, "--repeats", 1, "--threads", 1,
                                          "--set", "train.batch_size=2") if row["name"] == f"{tiny} B2, a step"]
    assert steps[0]["ratio_to_reference"] == 1 and steps[1]["ratio_to_reference"] > 0
    assert "--config" in headroom.refusal("bench", "attention", "--config", tiny)
    assert "--set" in headroom.refusal("bench", "attention", "--set", "train.batch_size=2")
    assert "missing.toml" in headroom.refusal("bench", "profile", "--config", tiny.parent / "missing.toml")


def test_bench_times_whole_models_of_configs(headroom, tiny):
    one = ["--repeats", "1", "--threads", "1", "--batch-size", "2"]
    rows = headroom.json("bench", "evaluate", tiny, tiny, *one)
    assert [row["name"] for row in rows] == [f"read B2: {tiny}"] * 2
    assert all(row["seconds"] > 0 and row["peak_memory_bytes"] > 0 for row in rows)
    prompt, tokens = headroom.json("bench", "generation", tiny, "--prompt", "6", "--tokens", "3", *one)
    assert prompt["name"].startswith(f"prompt of 6 B2: {tiny} (") and tokens["name"].startswith("3 tokens after 6 B2: ")
    assert prompt["ratio_to_reference"] == tokens["ratio_to_reference"] == 1
    assert "9999" in headroom.refusal("bench", "generation", tiny, "--prompt", "9999")
    assert "mgk/lra_listops_softmax_h1" in headroom.refusal("bench", "generation", "mgk/lra_listops_softmax_h1")


def test_doctor(headroom):
    document = headroom.json("doctor")
    assert {"headroom", "torch", "cpu", "cpu_features", "physical_cores", "threads", "devices", "precision_auto", "cache",
            "operators"} <= document.keys()
    assert document["devices"][0] == "cpu"
    assert {"attention", "expert_linear", "linear_cross_entropy"} <= document["operators"].keys()
    assert f"torch: {document['torch']}" in headroom("doctor").stdout
    assert document["operators"]["linear"]["cpu fp32"] == "fused: products"
    installed = list(pathlib.Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4"))
    assert document["allocator"] == ("tcmalloc" if installed else "system")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_a_user_without_a_home_folder(headroom, trained):
    bare = {key: value for key, value in headroom.environment.items()
            if key not in {"HOME", "HEADROOM_CACHE", "XDG_CACHE_HOME"}}

    def run(*arguments):
        return subprocess.run(["setpriv", "--reuid", "54321", train_runs.program(), *arguments], env=bare,
                              capture_output=True, text=True, timeout=train_runs.PATIENCE)
    doctor = run("doctor")
    assert doctor.returncode == 0 and "cache: none (" in doctor.stdout, doctor.stderr
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # readable by other users, unlike pytest's
        os.chmod(folder, 0o755)
        shutil.copytree(trained, f"{folder}/run")
        pathlib.Path(folder, "some.txt").write_text("one and two\n" * 50)
        done = run("evaluate", f"{folder}/run", "--data", f"{folder}/some.txt")
        assert done.returncode == 0, done.stderr


def test_a_missing_device_is_a_user_error(headroom, tiny, trained, tmp_path):
    there = headroom.json("doctor")["devices"]
    missing = "cuda" if there == ["cpu"] else f"cuda:{len(there)}"
    asked = [["train", tiny, "--out", tmp_path / "run", "--set", f"train.device={missing}"],
             ["evaluate", trained, "--device", missing], ["generate", trained, "--prompt", "a", "--device", missing],
             ["bench", "machine", "--device", missing]]
    for arguments in asked:
        assert f"device {missing}: " in headroom.refusal(*arguments)
    assert "gpu" in headroom.refusal("generate", trained, "--prompt", "a", "--device", "gpu")
    assert headroom.json("evaluate", trained, "--device", "cpu")["loss"] > 0


def test_doctor_shows_what_is_fused_and_why_not(headroom):
    operators = headroom.json("doctor", "dcmha/405m_dcformer_pp")["operators"]
    assert operators["attention"]["cpu fp32"] == "fused: kernels"
    learned = headroom.json("doctor", "zoo/mgk", "--set", "model.attention.scale=learned")
    assert "learned scale" in learned["operators"]["attention"]["cpu fp32"]
    assert "no_such" in headroom.refusal("doctor", "mgk/no_such")
    assert "dott" in headroom.refusal("doctor", "--set", "model.attention.score=dott")


def test_sentencepiece_does_not_write_into_torch(headroom):
    """SentencePiece and c10 define FLAGS_minloglevel of different types; each must read its own (cmake/dependencies.cmake)."""
    done = subprocess.run([train_runs.program(), "doctor"], capture_output=True, text=True, check=True,
                          env={**headroom.environment, "LD_DEBUG": "bindings"})
    bound = re.findall(r"binding file (\S+) .*? to (\S+) .*`FLAGS_minloglevel'", done.stderr)
    assert any("libc10" in user for user, _ in bound)
    assert all("libsentencepiece" in definition for _, definition in bound), bound
