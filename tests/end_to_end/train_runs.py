"""Helpers for tests of `headroom train`: the program, a tiny corpus, and a config that uses all sources of randomness."""

import array
import contextlib
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds after which a test gives up waiting. Only a hang may take that long, however slow or busy the machine is.
PATIENCE = 1200

SETTINGS = (
    "model.vocabulary_size = 256", "model.context_length = 16", "model.memory_length = 16", "model.dropout = 0.1",
    "model.attention.d_head = 8", 'model.attention.projection = "experts"', "model.attention.n_experts = 3",
    "model.attention.top_k = 2", "model.attention.expert_dropout = 0.1", 'model.attention.position = "relative"',
    "model.mlp.d_hidden = 64", "tokenizer.vocabulary_size = 256", "train.steps = 60", "train.learning_rate = 3e-3",
    "train.warmup_steps = 5", "train.log_every = 1", "train.evaluate_every = 25", "train.checkpoint_every = 1",
    "train.keep_checkpoints = 3")

# Config lines that make small.toml's model like LLaMA.
LLAMA = ("model.head_bias = false", 'model.norm = "rms"', 'model.attention.position = "rope"', 'model.mlp.kind = "gated"',
         'model.mlp.activation = "silu"', "model.mlp.bias = false")


def small_config(file, train, *lines, validation=None):
    """Writes a config that inherits from small.toml, reads these texts (train=None: sets no text) and has these lines."""
    texts = [f'data.train = ["{train}"]', f'data.validation = ["{validation or train}"]'] if train else []
    file.write_text("\n".join([f'base = "{ROOT}/tests/end_to_end/small.toml"', *texts, *lines, ""]))
    return file


def tensor(file, name):
    """Returns the shape and the values of a float32 tensor of a safetensors file."""
    data = pathlib.Path(file).read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    about = json.loads(data[8:8 + size])[name]
    assert about["dtype"] == "F32"
    begin, end = about["data_offsets"]
    return about["shape"], array.array("f", data[8 + size + begin:8 + size + end])


def program():
    """Returns $HEADROOM_PROGRAM, or the newest program built under build/."""
    if "HEADROOM_PROGRAM" in os.environ:
        return os.environ["HEADROOM_PROGRAM"]
    found = [p for p in ROOT.glob("build/**/headroom") if p.is_file() and os.access(p, os.X_OK)]
    assert found, f"no headroom program under {ROOT / 'build'}: build it first"
    return str(max(found, key=lambda p: p.stat().st_mtime))


def write_text(path, size, seed):
    words = ["the", "head", "room", "attends", "to", "every", "token", "twice", "and", "rests"]
    draw = random.Random(seed)
    text = ""
    while len(text) < size:
        text += draw.choice(words) + draw.choice([" ", " ", " ", ".\n"])
    path.write_text(text)


def prepare(folder):
    """Writes a corpus and its config; returns the config's path."""
    write_text(folder / "train.txt", 3000, 1)
    write_text(folder / "validation.txt", 600, 2)
    return small_config(folder / "tiny.toml", folder / "train.txt", *SETTINGS, validation=folder / "validation.txt")


def command(config, out, *more):
    return [program(), "train", str(config), "--out", str(out), "--json", *more]


def environment(folder):
    return {**os.environ, "HEADROOM_CACHE": str(folder / "cache")}


def start(config, out, *more):
    return subprocess.Popen(command(config, out, *more), env=environment(config.parent), stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_until(condition, process=None):
    """Waits for the condition; fails if the process ends first."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            assert condition(), process.communicate()[1]
            return
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.0005)


def run(config, out, *more, status=0):
    """Runs to the end; returns the JSON on stdout, or stderr if another status is expected."""
    done = subprocess.run(command(config, out, *more), env=environment(config.parent), capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == status, f"status {done.returncode}:\n{done.stderr}"
    return json.loads(done.stdout) if status == 0 else done.stderr


def metrics(out):
    """Returns the complete lines; a running program may not have finished the last one."""
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def same_history(one, other):
    """Returns whether two metrics files agree in every step, except in times and memory."""
    def facts(lines):
        return [{k: v for k, v in line.items() if "second" not in k and "memory" not in k} for line in lines]

    return facts(one) == facts(other)


def check_checksums(out):
    """Returns the names of all tensors of all checkpoints; checks their bytes against the stored CRC-32."""
    files = sorted((out / "checkpoints").glob("*.safetensors"))
    assert files
    names = []
    for file in files:
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        tensors = json.loads(data[8:begin])
        sums = json.loads(tensors.pop("__metadata__")["checksums"])
        tensors.pop("tokenizer", None)
        assert sums.keys() == tensors.keys()
        for name, tensor in tensors.items():
            first, end = tensor["data_offsets"]
            assert sums[name] == f"{zlib.crc32(data[begin + first:begin + end]):08x}", f"{file}: {name}"
        names.append((file.name, sorted(sums.items())))
    return names


def saved_step(out):
    """Returns the step that `latest` names, or 0 if there is no such file."""
    try:
        return int((out / "checkpoints" / "latest").read_text().strip()[len("step_"):-len(".safetensors")])
    except FileNotFoundError:
        return 0


def kill(process):
    with contextlib.suppress(ProcessLookupError):  # it may have exited
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def resumed_after_kills(config, out, goals, *more):
    """Returns the result of a run that is killed after it has saved each of these steps, and resumed each time."""
    for goal in goals:
        process = start(config, out, "--resume", *more)
        while saved_step(out) < goal and process.poll() is None:
            time.sleep(0.0005)
        kill(process)
    return run(config, out, "--resume", *more)
