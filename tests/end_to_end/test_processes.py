"""Runs on several ranks give the same bits for any number of ranks, and handle the failure of a rank."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import processes
import train_runs

# Four micro-batches per step.
SHARED = ["--set", "train.batch_size=4", "--set", "train.accumulate=4", "--set", "train.steps=6", "--set",
          "train.evaluate_every=3", "--set", "train.checkpoint_every=3"]


def settings(*pairs):
    return [argument for pair in pairs for argument in ("--set", pair)]


# Started without torchrun.
LAUNCHERS = {"two gradient accumulators": processes.srun, "steps that are verified": processes.script}

# These settings add state or random numbers. With each, the parameters must not depend on the number of ranks.
KINDS = {
    "experts, dropout, carried memory": [],
    "tensors in pieces": settings('model.mlp.kind="dense"', "model.mlp.d_hidden=3000", "train.clip_norm=0.1"),
    "muon, an embedding in pieces": settings('train.optimizer="muon"', "model.d_model=256"),
    "shared keys, no attention, no MLP": settings(
        "model.n_layers=3", 'model.attention.position="rope"', 'model.attention.projection="dense"',
        'model.layers=[{}, {attention = {share_kv = 1}, mlp = {kind = "none"}}, {attention = {n_heads = 0}}]'),
    "muon, bf16": settings('train.optimizer="muon"', 'train.precision="bf16"'),
    "soft-E priors": settings('model.attention.projection="dense"', 'model.attention.score="gaussian_mixture"',
                              'model.attention.prior_update="soft_e"', 'model.attention.position="none"'),
    "routed heads, balance losses": settings(
        'model.attention.projection="routed_heads"', "model.attention.n_experts=4", "model.attention.top_k=2",
        'model.mlp.kind="experts"', "model.mlp.n_experts=4", "model.mlp.top_k=2"),
    "two gradient accumulators": settings("train.gradient_accumulators=2"),
    "steps that are verified": settings("train.verify_every=2"),
    "translation": settings('model.kind="encoder_decoder"', "model.memory_length=0", 'model.attention.position="none"',
                            "model.context_length=32", 'data.train=["{folder}/pairs.tsv"]', "data.validation=[]",
                            "data.validation_fraction=0.2", 'tokenizer.kind="sentencepiece"', "tokenizer.vocabulary_size=300",
                            "model.vocabulary_size=300"),
}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    config = train_runs.prepare(tmp_path_factory.mktemp("processes"))
    draw = random.Random(4)
    words = ["one", "two", "three", "four", "five", "six"]
    pairs = [" ".join(draw.choices(words, k=draw.randrange(2, 7))) for _ in range(60)]
    (config.parent / "pairs.tsv").write_text("".join(f"{text}\t{text.upper()}\n" for text in pairs))
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_processes_gives_the_same_parameters(config, tmp_path, kind):
    """With two ranks, both compute two of the four micro-batches; with three, one rank computes more."""
    more = [*SHARED, *(word.replace("{folder}", str(config.parent)) for word in KINDS[kind])]
    alone = train_runs.run(config, tmp_path / "1", *more)
    train_runs.check_checksums(tmp_path / "1")
    for n in (2, 3, 4) if kind in list(KINDS)[:2] else (2,) if "two" in kind else (3,):
        together = processes.run(n, config, tmp_path / str(n), *more, launcher=LAUNCHERS.get(kind))
        for key in ("parameters_sha256", "validation_loss", "validation_bleu", "train_loss"):
            assert together.get(key) == alone.get(key), (n, key)
        assert train_runs.same_history(train_runs.metrics(tmp_path / str(n)), train_runs.metrics(tmp_path / "1")), n
        assert train_runs.check_checksums(tmp_path / str(n)) == train_runs.check_checksums(tmp_path / "1"), n


def test_a_run_continues_on_another_number_of_processes(config, tmp_path):
    steps = [settings(f"train.steps={n}") for n in (6, 9, 12, 15)]
    whole = train_runs.run(config, tmp_path / "whole", *SHARED, *settings("train.schedule=constant"), *steps[3])
    for n, until in zip((4, 2, 1, 3), steps):
        last = processes.run(n, config, tmp_path / "run", "--resume", *SHARED, *settings("train.schedule=constant"),
                             *until)
    assert last["parameters_sha256"] == whole["parameters_sha256"]


def test_more_processes_than_micro_batches(config, tmp_path):
    """A run raises train.accumulate if needed; its first lines name the equivalent settings on one rank."""
    more = [*SHARED, *settings("train.accumulate=1", "train.batch_size=6")]
    done = processes.train(3, config, tmp_path / "run", "--json", *more).finish()
    assert [status for status, _, _ in done] == [0, 0, 0]
    line = next(line for line in done[0][2].splitlines() if "one rank gives the same" in line)
    assert "--threads 1" in line and "train.accumulate = 3 (raised from 1" in line, line
    alone = train_runs.run(config, tmp_path / "alone", "--threads", "1", *more, *settings("train.accumulate=3"))
    assert json.loads(done[0][1])["parameters_sha256"] == alone["parameters_sha256"]
    resumed = train_runs.run(config, tmp_path / "run", "--resume", *more)  # the config still has 1
    assert resumed["parameters_sha256"] == alone["parameters_sha256"]


def test_processes_that_cannot_read_each_others_memory_send_it(config, tmp_path):
    """Ranks 0 and 1 share a machine; rank 2 has its own process namespace."""
    hide = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        pytest.skip("this process may not give a part of the ranks other numbers")
    more = [*SHARED, *KINDS["tensors in pieces"]]
    alone = train_runs.run(config, tmp_path / "alone", *more)
    assert processes.run(3, config, tmp_path / "run", *more, before={2: hide})["parameters_sha256"] == alone["parameters_sha256"]


def test_fewer_parts_than_processes_are_raised(config, tmp_path):
    """Resuming on fewer ranks keeps the micro-batches and train.gradient_accumulators."""
    more = [*SHARED, *settings("train.batch_size=8", "train.accumulate=8", "train.gradient_accumulators=2", "train.schedule=constant")]
    ended = processes.train(3, config, tmp_path / "run", "--json", *more).finish()
    assert [status for status, _, _ in ended] == [0, 0, 0], ended
    assert "train.gradient_accumulators" in ended[0][2]
    longer = settings("train.steps=9")
    resumed = train_runs.run(config, tmp_path / "run", "--resume", *more, *longer)
    alone = train_runs.run(config, tmp_path / "alone", *more, *longer, *settings("train.gradient_accumulators=4"))
    assert resumed["parameters_sha256"] == alone["parameters_sha256"]


def alone(folder, *arguments):
    """Returns the JSON of a command on one rank."""
    done = subprocess.run([train_runs.program(), *map(str, arguments), "--json"], env=train_runs.environment(folder),
                          text=True, capture_output=True, check=True)
    return json.loads(done.stdout)


def together(n, folder, *arguments):
    """Returns the JSON of a command on `n` ranks."""
    return processes.Group(n, folder, *arguments, "--json").json()


@pytest.fixture(scope="module")
def trained(config):
    """Returns a run whose evaluation can be distributed, because it has no memory between batches."""
    out = config.parent / "trained"
    train_runs.run(config, out, *SHARED, *settings("model.memory_length=0"))
    return out


def test_evaluate_is_shared(trained):
    evaluate = ["evaluate", trained, "--batch-size", "2", "--threads", "1"]
    expected = alone(trained.parent, *evaluate)
    for n in (2, 3):
        assert together(n, trained.parent, *evaluate)["loss"] == expected["loss"], n


TESTS = {  # rows of different lengths, whose answers have several
    "lambada": [{"text": f"every head {'rests ' * n}twice"} for n in range(7)],
    "blimp": [{"sentence_good": f"the head {'rests ' * n}", "sentence_bad": f"the {'room ' * n}head", "UID": f"set{n % 2}"}
              for n in range(1, 8)],
    "arc_easy": [{"query": f"the {'room ' * n}", "choices": ["attends", "rests twice", "to"], "gold": n % 3}
             for n in range(1, 8)],
    "composition": [{"task_id": f"task{n}", "texts": "".join(f"{'ab' * k} [ {'cd' * k} ]\n" for k in range(1, n + 1))}
                    for n in range(1, 8)],
}


@pytest.mark.parametrize("test", TESTS)
def test_tests_without_training_are_shared(trained, tmp_path, test):
    """Every figure and item is bit-identical; the three ranks have unequal numbers of batches."""
    data = tmp_path / f"{test}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in TESTS[test]))
    words = ["evaluate", trained, "--batch-size", "2", "--threads", "1", "--task", test, "--data", data]

    def results(n):
        items = tmp_path / f"items_of_{n}.jsonl"
        document = (alone(trained.parent, *words, "--items", items) if n == 1 else
                    together(n, trained.parent, *words, "--items", items))
        return {key: value for key, value in document.items() if "second" not in key}, items.read_text()

    expected = results(1)
    assert len(expected[1].splitlines()) >= 7
    for n in (2, 3):
        assert results(n) == expected, n


def test_compare_is_shared(config, tmp_path):
    compare = ["compare", config, config, "--seeds", "2", *SHARED]
    other = config.parent / "other.toml"
    other.write_text(f'base = "{config}"\n[model.attention]\nn_heads = 1\n')
    compare[2] = other
    figures = [[seed["parameters_sha256"] for model in result["runs"] for seed in model["seeds"]]
               for result in (together(2, config.parent, *compare, "--out", tmp_path / "two"),
                              alone(config.parent, *compare, "--out", tmp_path / "one"))]
    assert figures[0] == figures[1] and len(set(figures[0])) == 4
    assert (tmp_path / "two" / "report.html").exists()
    # The ranks have raised train.accumulate to their number. Repeated on any number of ranks, the command trains nothing.
    for again in (together(2, config.parent, *compare, "--out", tmp_path / "two"),
                  alone(config.parent, *compare, "--out", tmp_path / "two")):
        assert [seed["parameters_sha256"] for model in again["runs"] for seed in model["seeds"]] == figures[0]


@pytest.mark.parametrize("command", [["compare"], ["try", "--set", "train.learning_rate=1e-3"]])
def test_a_folder_that_another_process_works_in_is_refused(config, tmp_path, command):
    out = tmp_path / "out"
    words = [train_runs.program(), command[0], str(config), *command[1:], "--out", str(out)]
    long = settings("train.steps=1000000") if command[0] == "compare" else ["--both", "train.steps=1000000", "--budget", "1000h"]
    first = subprocess.Popen([*words, *long], env=train_runs.environment(config.parent), stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        train_runs.wait_until(lambda: list(out.glob("**/metrics.jsonl")), first)
        second = subprocess.run([*words, *long], env=train_runs.environment(config.parent), text=True, capture_output=True,
                                timeout=train_runs.PATIENCE)
    finally:
        train_runs.kill(first)
    assert second.returncode == 2
    assert f"{out}: in use by process {first.pid}" in only_error(second.stderr)


def only_error(stderr):
    lines = [line for line in stderr.splitlines() if line.startswith("headroom:")]
    assert len(lines) == 1, stderr
    return lines[0]


@pytest.mark.parametrize("batch_size, example", [(4, "example 3 or 6"), (2, "example 3")])
def test_a_user_error_is_printed_once_and_not_retried(config, tmp_path, batch_size, example):
    group = processes.train(3, config, tmp_path / "run", *settings(f"train.batch_size={batch_size}", "train.accumulate=1"))
    stderr = "".join(err for _, _, err in group.finish())
    line = only_error(stderr)
    assert "train.batch_size: " in line and line.endswith(example)
    assert group.store.check(["headroom/final"])


def test_processes_that_are_not_alike_are_named(config, tmp_path):
    other = tmp_path / "other.txt"
    train_runs.write_text(other, 20_000, seed=99)
    for setting, words in [("train.learning_rate=0.5", ["train.learning_rate", "0.5", "rank 1 (on ", "0.003"]),
                           (f'data.train=["{other}"]', ["data.train", "other.txt", "rank 1 (on "])]:
        group = processes.train(2, config, tmp_path / "run", *SHARED, more={1: settings(setting)})
        stderr = only_error("".join(err for _, _, err in group.finish()))
        for word in words:
            assert word in stderr


def test_a_file_that_differs_between_hosts_is_named(config, tmp_path):
    """Hosts without a shared disk have different content at the same path."""
    text = tmp_path / "text.txt"
    train_runs.write_text(text, 20_000, seed=1)
    other = tmp_path / "other.txt"
    train_runs.write_text(other, 21_000, seed=2)
    hide = ["unshare", "--mount", "sh", "-c", f'mount --bind "{other}" "{text}" && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        pytest.skip("this process may not mount: no file can be another one for a part of the ranks")
    group = processes.train(2, config, tmp_path / "run", *SHARED, *settings(f'data.train=["{text}"]'), before={1: hide})
    stderr = only_error("".join(err for _, _, err in group.finish()))
    assert "training data" in stderr and "rank 1 (on " in stderr


def test_a_rank_that_cannot_write_ends_all_and_loses_no_checkpoint(config, tmp_path):
    """A limit on file sizes makes one rank's writes fail as on a full disk."""
    out = tmp_path / "run"
    more = [*SHARED, *settings("train.schedule=constant", "train.checkpoint_every=2", "train.evaluate_every=0")]
    processes.run(2, config, out, *more, *settings("train.steps=6"))
    step = train_runs.saved_step(out)
    good = (out / "checkpoints" / f"step_{step}.safetensors").read_bytes()
    small = ["prlimit", f"--fsize={len(good) // 4}"]
    group = processes.train(3, config, out, "--resume", *more, *settings("train.steps=10"), before={2: small})
    ended = group.finish()
    stderr = only_error("".join(err for _, _, err in ended))
    assert "File too large" in stderr and ".safetensors" in stderr and "rank 2 (on " in stderr
    assert all(status == 1 for status, _, _ in ended)
    assert (out / "checkpoints" / f"step_{step}.safetensors").read_bytes() == good
    assert not list(out.glob("**/*.tmp-*"))
    more += settings("train.steps=10")
    alone = train_runs.run(config, tmp_path / "alone", *more)
    assert processes.run(2, config, out, "--resume", *more)["parameters_sha256"] == alone["parameters_sha256"]


def test_a_killed_rank_is_named_and_ends_all(config, tmp_path):
    group = processes.train(3, config, tmp_path / "run", *settings("train.steps=100000", "train.schedule=constant", "train.accumulate=4"))
    wait_for_step(tmp_path / "run", 2)
    group.ranks[2].kill()
    ended = group.finish()
    assert "rank 2 (on " in only_error("".join(err for _, _, err in ended))
    assert [status for status, _, _ in ended[:2]] == [1, 1]


def wait_for_step(out, step):
    train_runs.wait_until(lambda: train_runs.saved_step(out) >= step)


def test_ranks_that_hang_or_do_not_connect_are_named(config, trained, tmp_path):
    """Ranks hang before the first step or after it, or do not connect. The three groups wait at the same time."""
    def start(n, name, *more, **how):
        return processes.train(n, config, tmp_path / name, *settings("train.steps=100000", "train.schedule=constant", *more), **how)

    def of_three(rank, n, port):
        return processes.script(rank, 3, port)

    lonely = start(1, "lonely", launcher=of_three)
    early, late = start(2, "early", "train.timeout=5"), start(3, "late", "train.accumulate=4", "train.timeout=10")
    train_runs.wait_until(lambda: (tmp_path / "early" / ".lock").exists())
    early.ranks[1].send_signal(signal.SIGSTOP)
    wait_for_step(tmp_path / "late", 2)
    late.ranks[1].send_signal(signal.SIGSTOP)
    for group in (early, late):
        errors = [rank.communicate(timeout=train_runs.PATIENCE)[1] for rank in group.ranks if rank is not group.ranks[1]]
        group.ranks[1].kill()
        assert "rank 1 (on " in only_error("".join(errors))
    [(status, _, error)] = lonely.finish()
    assert status == 1 and "ranks 1, 2 did not connect" in only_error(error)
    [(ignored, _, _)] = processes.Group(1, config.parent, "checkpoint", "info", trained, launcher=of_three).finish()
    assert ignored == 0, "a command of one process"


def test_ctrl_c_saves_and_resumes(config, tmp_path):
    more = [*SHARED, *settings("train.schedule=constant", "train.evaluate_every=0", "train.checkpoint_every=1")]
    group = processes.train(2, config, tmp_path / "run", *more,
                            *settings("train.steps=100000"))
    wait_for_step(tmp_path / "run", 3)
    for rank in group.ranks:
        rank.send_signal(signal.SIGINT)
    ended = group.finish()
    assert [status for status, _, _ in ended] == [130, 130]
    step = train_runs.saved_step(tmp_path / "run") + 3
    resumed = processes.run(3, config, tmp_path / "run", "--resume", *more, *settings(f"train.steps={step}"))
    alone = train_runs.run(config, tmp_path / "alone", *more, *settings(f"train.steps={step}"))
    assert resumed["parameters_sha256"] == alone["parameters_sha256"]


def test_the_readmes_command_runs(config, tmp_path, counts_as_built):
    readme = (train_runs.ROOT / "README.md").read_text()
    line = next(line for line in readme.splitlines() if line.startswith("./run.sh torchrun --standalone"))
    words = line.replace("mine.toml", str(config)).replace("runs/two", str(tmp_path / "two")).split()
    done = subprocess.run([str(train_runs.ROOT / "run.sh"), *words[1:], *SHARED], text=True, capture_output=True,
                          env={**train_runs.environment(config.parent), **counts_as_built}, timeout=train_runs.PATIENCE,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert train_runs.saved_step(tmp_path / "two") == 6


def test_torchx_starts_ranks(config, tmp_path):
    pytest.importorskip("torchx")
    page = (train_runs.ROOT / "docs" / "processes.md").read_text().splitlines()
    printf, torchx = [next(line for line in page if line.startswith(word)) for word in ("printf ", "torchx run ")]
    torchx = torchx.replace("torchx", f"{sys.executable} -m torchx.cli.main", 1).replace("mine.toml", str(config))
    more = " ".join(SHARED).replace("--set ", "--set=")
    path = f"{os.path.dirname(train_runs.program())}:{train_runs.ROOT}/.env/bin:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", f"{printf}\n{torchx.replace('runs/two', 'two')} {more}"], cwd=tmp_path,
                          env={**train_runs.environment(config.parent), "PATH": path}, timeout=train_runs.PATIENCE,
                          stdin=subprocess.DEVNULL, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "two" / "result.json").read_text())
    assert result["parameters_sha256"] == train_runs.run(config, tmp_path / "one", *SHARED)["parameters_sha256"]


def children(process):
    listed = subprocess.run(["pgrep", "-P", str(process.pid), "-x", "headroom"], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


def wait_for_end(pids):
    train_runs.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))


def test_torchrun_continues_after_kills(config, tmp_path):
    """Kills a random rank or torchrun at random moments, and rank 0 during a save. $HEADROOM_KILLS is the number of kills."""
    kills = int(os.environ.get("HEADROOM_KILLS", "3"))
    more = [*SHARED, *settings(f"train.steps={5 * kills}", "train.checkpoint_every=1", "train.evaluate_every=10",
                               "train.schedule=constant")]
    alone = train_runs.run(config, tmp_path / "alone", *more)
    draw = random.Random(7)
    out = tmp_path / "run"
    command = [*processes.torchrun(2, "--max-restarts", str(kills), "--monitor-interval", "0.05"), train_runs.program(),
               "train", str(config), "--out", str(out), "--resume", *more]
    log = tmp_path / "stderr.txt"

    def start():
        with open(log, "w") as file:
            return subprocess.Popen(command, env=train_runs.environment(config.parent), stdout=file,
                                    stderr=subprocess.STDOUT)

    process, met = start(), 0
    for kill in range(kills):
        goal = train_runs.saved_step(out) + draw.randrange(1, 6)
        while train_runs.saved_step(out) < goal and process.poll() is None:
            time.sleep(0.002)
        time.sleep(draw.uniform(0.0, 0.02))
        ranks = children(process)
        if kill % 3 == 2:
            process.kill()
            process.wait()
            wait_for_end(ranks)
            process = start()
        elif ranks:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(draw.choice(ranks), signal.SIGKILL)
                met += 1
    assert process.wait(timeout=train_runs.PATIENCE) == 0, log.read_text()
    assert met >= kills // 2
    result = train_runs.run(config, out, "--resume", *more)
    assert result["parameters_sha256"] == alone["parameters_sha256"]
    assert train_runs.same_history(train_runs.metrics(out), train_runs.metrics(tmp_path / "alone"))
    assert not list(out.glob("**/*.tmp-*"))
