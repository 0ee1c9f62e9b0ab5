"""Compares training, evaluation and generation with recorded bits, to catch unintended changes of results.

recorded.json holds the results of every recipe below on one thread, with a section for each kind of CPU. A commit
that intentionally changes bits records them again: `HEADROOM_RECORD_BITS=1 ./run.sh test -R recorded_bits`.
Recording changed values removes the sections of other kinds of CPU, which are then out of date.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import platform
import random
import re
import struct
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "end_to_end"))

import serving  # noqa: E402
import train_runs  # noqa: E402

RECORDED = HERE / "recorded.json"
RECORDS = bool(os.environ.get("HEADROOM_RECORD_BITS"))
HOW = "HEADROOM_RECORD_BITS=1 ./run.sh test -R recorded_bits"

BASE = """
[model]
n_layers = 2
d_model = 32
context_length = 72
dropout = 0.1
[model.attention]
n_heads = 4
d_head = 12
[model.mlp]
d_hidden = 48
[tokenizer]
kind = "bytes"
[train]
steps = 20
batch_size = 4
learning_rate = 1e-2
threads = 1
device = "cpu"
log_every = 5
checkpoint_every = 0
evaluate_every = 0
"""

TEXT = ['data.train=["train.txt"]', 'data.validation=["validation.txt"]', 'data.order="given"']
PAIRS = ["model.kind=encoder_decoder", 'data.train=["pairs.tsv"]', "data.validation_fraction=0.1", "model.context_length=24",
         "tokenizer.kind=sentencepiece", "tokenizer.keep_whitespace=false", "tokenizer.vocabulary_size=280",
         "train.batch_size=8",
         "train.evaluate_tokens=100", "decoding.beam_size=2", "decoding.extra_length=4"]
IMAGES = ["model.kind=vision", "model.n_classes=3", "model.image_size=8", "model.patch_size=2", "model.image_channels=1",
          "model.context_length=16", 'data.train=["train-images-idx3-ubyte"]',
          'data.validation=["train-images-idx3-ubyte"]', "data.decode_threads=1"]
LISTOPS = ["model.kind=classifier", "model.vocabulary_size=16", "model.context_length=50", "model.n_classes=10",
           "data.generator=listops", "data.generated_train=100", "data.generated_validation=30"]
TABLE = ["model.kind=classifier", "model.n_classes=2", "model.context_length=40", 'data.train=["table.tsv"]',
         'data.validation=["table.tsv"]']

ATTENTION, MLP = "model.attention.", "model.mlp."


def attention(**settings):
    return [f"{ATTENTION}{key}={json.dumps(value)}" for key, value in settings.items()]


def mlp(**settings):
    return [f"{MLP}{key}={json.dumps(value)}" for key, value in settings.items()]


RECIPES = {
    "documents": ['data.train=["train.txt"]', "data.validation_fraction=0.1"] + attention(position="rope"),
    "memory": TEXT + attention(n_kv_heads=2, bias=True, position="relative", position_bias=True, dropout=0.1) + [
        "model.memory_length=72", "model.adaptive_cutoffs=[10, 20]", "tokenizer.kind=words", "train.accumulate=2",
        "train.weight_decay=0.01", "train.clip_norm=0.1", "train.warmup_steps=5"],
    "experts": TEXT + attention(projection="experts", experts=["v", "o"], n_experts=3, top_k=2, expert_dropout=0.1,
                                position="rope", entropy_coefficient=0.01, window=20, window_pattern="1:1") + mlp(
        kind="experts", n_experts=5, top_k=2, d_hidden=16, expert_dropout=0.1, activation="relu") + [
        "model.memory_length=72", "model.norm=rms", "train.schedule=linear", "train.accumulate=2"],
    "all_experts": TEXT + attention(projection="experts", experts=["q", "k", "v", "o"], n_experts=4, top_k=2,
                                    shared_selection=True, gate="softmax_top_k", composition="static",
                                    position="none") + mlp(kind="gated", activation="silu") + [
        "model.arrangement=parallel", "model.initialisation=pythia", "data.batching=chunks", "train.optimizer=muon",
        "train.weight_decay=0.1"],
    "routed_heads": TEXT + attention(projection="routed_heads", n_heads=2, n_experts=4, top_k=2, bias=True,
                                     gate="softmax_renormalised", noisy_routing=True, cv_coefficient=0.01,
                                     switch_slots_coefficient=0.01, score="gaussian_mixture", keys="own", prior="head",
                                     position="learned") + mlp(activation="gelu_tanh") + [
        "model.tied_embeddings=true", "model.initialisation=glorot", "data.batching=chunks", "train.sample_every=10"],
    "gated_heads": TEXT + attention(projection="gated_heads", top_k=2, gate="softmax_top_k", composition="dynamic",
                                    compose_groups=2, position="sinusoidal") + [
        "model.norm_position=post", "model.scaled_embeddings=true", "train.optimizer=muon", "train.schedule=one_cycle"],
    "latent": TEXT + attention(projection="latent", kv_rank=10, q_rank=14, d_rotary=4, d_value=9, score="sigmoid",
                               gate_output="head", composition="static", compose=["post"]) + [
        "model.norm=rms", "model.head_bias=false", "train.optimizer=muon", "train.muon_learning_rate=5e-3"],
    "sink": TEXT + attention(sink=True, n_kv_heads=1, qk_norm=True, scale="learned", rope_fraction=0.5,
                             gate_output="element", window=16, window_pattern="3:1") + [
        "model.initialisation=torch", "tokenizer.kind=sentencepiece", "tokenizer.keep_whitespace=false",
        "tokenizer.vocabulary_size=290"],
    "composition": attention(composition="dynamic", compose_static=True, compose_rank=1, compose_activation="gelu_tanh",
                             position="learned", window=30, window_pattern="1:1") + [
        "data.generator=composition", "data.generated_train=60", "data.generated_validation=10", "data.batching=chunks",
        "tokenizer.kind=bpe", "tokenizer.vocabulary_size=300", "model.initialisation=normal", "model.context_length=128",
        "train.schedule=inverse_sqrt", "train.warmup_steps=5"],
    "shared_keys": TEXT + attention(window=20) + mlp(kind="none") + [
        'model.layers=[{mlp={kind="gated"}}, {attention={share_kv=1, window=10, n_heads=8, n_kv_heads=4}}, '
        '{attention={n_heads=0}, mlp={kind="dense"}}]', "model.n_layers=3"],
    "differential": TEXT + attention(composition="differential", n_kv_heads=2, position="relative"),
    "repeated": TEXT + attention(projection="experts", n_experts=3, top_k=2, expert_entropy_coefficient=0.01,
                                 composition="differential", differential_version=1) + mlp(
        kind="experts", n_experts=5, top_k=2, d_hidden=16, activation="relu") + [
        "model.n_groups=1", "model.norm_position=peri", "model.memory_length=72"],
    "factored": TEXT + attention(projection="factored", kv_rank=2, q_rank=3, position="alibi") + mlp(
        kind="experts", expert_kind="gated", expert_bias="output", gate="softmax", n_experts=4, top_k=2, d_hidden=16),
    "tied": TEXT + attention(projection="tied", n_kv_heads=2, position="forgetting") + mlp(
        kind="experts", expert_kind="clamped", expert_bias="all", gate="softmax_top_k", n_experts=4, top_k=2, d_hidden=16),
    "shared_and_routed": TEXT + attention(projection="shared_and_routed", shared_heads=1, top_k=2, position="forgetting",
                                          forget="head", exclusive=True) + mlp(
        kind="experts", expert_kind="gated", gate="softmax_renormalised", n_experts=4, top_k=2, d_hidden=16),
    "routed_queries": TEXT + attention(projection="routed_queries", n_kv_heads=2, top_k=1, gate="softmax_renormalised",
                                       rope_scaling="yarn", rope_factor=2.0, rope_original_length=36),
    "hidden_biases": TEXT + attention(rope_scaling="llama3", rope_factor=2.0, rope_original_length=36) + mlp(
        kind="experts", expert_bias="hidden", n_experts=4, top_k=2, d_hidden=16),
    "shared_gate": TEXT + attention(rope_scaling="linear", rope_factor=2.0) + mlp(
        kind="experts", expert_kind="gated", n_experts=4, top_k=2, d_hidden=16, d_shared=16, shared_gate=True),
    "gated_delta": TEXT + attention(score="gated_delta", position="none", delta_key_heads=2, delta_d_value=8),
    "sparse_heads": TABLE + attention(projection="sparse_heads", n_heads=3, dense_heads=1, sparsity=4, position="none"),
    "formula": TEXT + attention(formula="sigmoid(s - slope * (i - j) + decay(j))", mask="i - j < 40 or j < 2",
                                normalise="none", n_kv_heads=2, position="none") + [
        'model.attention.learned={slope = {shape = "head", start = 0.5}, decay = {shape = "token, head"}}'],
    "linear": TEXT + attention(score="linear", keys="single", position="rope", n_kv_heads=2),
    "mixed_linear": TEXT + attention(score="linear", keys="own", linear_mixing="before_map", prior="layer",
                                     feature_map="elu_plus_one_l1", score_scale="inv_sqrt_head",
                                     output_scale="inv_sqrt_length", position="none") + ["model.memory_length=72"],
    "masked": TEXT + attention(score="gaussian_mixture", mixing="max", mixture_score="dot", position="relative",
                               gate_output="head") + ["model.kind=masked_language_model", "data.batching=chunks"],
    "listops": LISTOPS + attention(score="gaussian_mixture", keys="shifted", prior="head_position",
                                   position="learned", mixture_epsilon=1e-3) + [
        "model.d_head_hidden=20", "train.label_smoothing=0.1", "train.schedule=constant"],
    "soft_e": LISTOPS + attention(score="gaussian_mixture", keys="own", n_mixtures=3, prior="layer", prior_update="soft_e",
                                  mixture_coefficients=[0.4, 0.5, 0.6], position="learned"),
    "pairs_of_texts": TABLE + attention(score="gaussian_mixture", keys="own", prior="head_position",
                                        prior_update="soft_e", soft_e_pairs="all", position="rope") + [
        "model.paired=true", "train.accumulate=2"],
    "fixed_prior": TABLE + attention(score="gaussian_mixture", keys="own", prior="none", position="none") + mlp(
        kind="experts", n_experts=4, top_k=2, d_hidden=16) + ["model.embedding_std=0.5"],
    "translation": PAIRS + attention(projection="routed_heads", n_heads=2, n_experts=4, top_k=2, gate="softmax",
                                     position="sinusoidal") + [
        "model.norm_position=post", "model.tied_embeddings=true", "train.label_smoothing=0.1", "train.batch_tokens=192",
        "train.accumulate=2"],
    "linear_translation": PAIRS + attention(score="linear", keys="shifted", prior="head_position", prior_update="none",
                                            normaliser="none", output_scale="inv_sqrt_head", position="learned") + [
        "model.n_decoder_layers=1", "model.source_vocabulary_size=275", "train.cosine_period=steps"],
    "single_key_translation": PAIRS + attention(score="gaussian_mixture", keys="single", composition="static",
                                                position="relative"),
    "recall": attention(position="rope") + [
        "data.synthetic=recall", "data.generated_validation=20", "model.initialisation_seeds=by_name"],
    "images": IMAGES + attention(composition="dynamic", compose_low_rank=["query"], compose_gates=["key"],
                                 position="sinusoidal") + [
        "model.d_head_hidden=24", "data.augment_shift=1", "data.augment_flip=true", "data.randaugment=2",
        "data.mixup=0.2", "data.augment_crop=0.5", "train.accumulate=2"],
}

# Each recipe is trained with each of these settings.
WAYS = {"fp32": ["train.precision=fp32"], "bf16": ["train.precision=bf16"],
        "reference": ["train.precision=fp32", "train.implementation=reference"]}

# No recipe uses these values: they are too slow for a test, or equivalent to another value.
LEFT_OUT = {"data.synthetic": {"lookup", "copying", "induction", "needles", "parity", "permutations"},
            "data.generator": {"listops_long"}, "train.precision": {"auto"}, "train.implementation": {"fused"},
            "model.head_activation": {"gelu", "gelu_tanh", "silu"}}

# Variables with these prefixes can change results on the same CPU, so the programs run without them.
PREFIXES = ("HEADROOM_", "ATEN_", "ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_", "TORCH", "PYTORCH")
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(PREFIXES)}


def run(*arguments, folder):
    done = subprocess.run([train_runs.program(), *map(str, arguments), "--json"], cwd=folder, text=True, timeout=train_runs.PATIENCE,
                          env={**ENVIRONMENT, "HEADROOM_CACHE": str(folder / "cache")}, stdin=subprocess.DEVNULL,
                          capture_output=True)
    assert done.returncode == 0, f"status {done.returncode} of headroom {arguments}:\n{done.stderr}"
    return json.loads(done.stdout)


def write_data(folder):
    """Writes texts, translation pairs, a table and images, which are the same with every version of Python."""
    draw = random.Random(1).random  # the only method whose sequence Python guarantees
    syllables = ["ka", "lo", "mi", "re", "tu", "sho", "ne"]

    def words(count):
        return [syllables[int(draw() ** 2 * 7)] + syllables[int(draw() * 7)] for _ in range(count)]

    def text(lines):
        return "".join(" ".join(words(3 + int(draw() * 9))) + ".\n" for _ in range(lines))

    (folder / "base.toml").write_text(BASE)
    (folder / "train.txt").write_text(text(600))
    (folder / "validation.txt").write_text(text(20))
    sources = [words(1 + int(draw() * 6)) for _ in range(300)]
    (folder / "pairs.tsv").write_text("".join(" ".join(source) + "\t" + " ".join(word[::-1] for word in source[::-1]) + "\n"
                                              for source in sources))
    rows = [(words(2 + int(draw() * 3)), words(2 + int(draw() * 3))) for _ in range(60)]
    (folder / "table.tsv").write_text("label\ttext\ttext2\n" + "".join(
        f"{int(a[0] < b[0])}\t{' '.join(a)}\t{' '.join(b)}\n" for a, b in rows))
    labels = [int(draw() * 3) for _ in range(60)]
    pixels = bytes(int(draw() * 60) + (150 if row * 3 // 8 == label else 0) for label in labels for row in range(8)
                   for _ in range(8))
    (folder / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 60, 8, 8) + pixels)
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 60) + bytes(labels))


def figures(document, prefix):
    """Returns the results that do not depend on time or paths."""
    kept = ("parameters_sha256", "loss", "perplexity", "bits", "accuracy", "bleu", "chrf", "tokens", "text", "balance")
    return {f"{prefix} {key}": value for key, value in document.items()
            if any(word in key for word in kept) and "second" not in key and not isinstance(value, dict)}


def measure(name, settings, way, folder):
    """Trains a recipe, evaluates the trained model and returns the results."""
    out = f"{name}-{way}"
    sets = [argument for setting in settings + WAYS[way] for argument in ("--set", setting)]
    values = figures(run("train", "base.toml", "--out", out, "--quiet", *sets, folder=folder), "train:")
    if way == "fp32":
        values |= figures(run("evaluate", out, "--threads", 1, folder=folder), "evaluate:")
    if way != "reference" and settings[:len(PAIRS)] == PAIRS:
        document = run("generate", out, "--prompt", "kalo mire\ntusho\nnene kaka lolo", "--threads", 1, "--beam", 1,
                       folder=folder)
        values |= figures(document, "generate:")
    return values


def generations(names, way, folder):
    """Returns greedy continuations from a server of these models: each text, and a hash of its log-probabilities."""
    runs = [folder / f"{name}-{way}" for name in names]
    found = {}
    environment = {**ENVIRONMENT, "HEADROOM_CACHE": str(folder / "cache")}
    with serving.Server(*runs, "--precision", way, environment=environment) as server:
        for run_folder in runs:
            answer = server.complete(model=run_folder.name, prompt="kalo mi", max_tokens=24, temperature=0, logprobs=5)
            choice = answer["choices"][0]
            bits = json.dumps(choice["logprobs"], sort_keys=True).encode()
            found[run_folder.name] = {"generate: text": choice["text"],
                                      "generate: logprobs_sha256": hashlib.sha256(bits).hexdigest()}
    return found


def cpu_vendor():
    """Returns the CPU's vendor, by which oneDNN and MKL choose their kernels."""
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("vendor_id"):
            return line.split(":")[1].strip()
    return platform.machine()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """Returns the output of `headroom doctor`."""
    return run("doctor", folder=tmp_path_factory.mktemp("doctor"))


@pytest.fixture(scope="module")
def kind(machine):
    """Returns everything that bits depend on: vendor, instruction sets, torch and compiler."""
    return ", ".join([cpu_vendor(), *machine["cpu_features"], f"vectors {machine['vectors']}",
                      f"tile products {machine['tile_products']}", f"torch {machine['torch']}", machine["compiler"]])


@pytest.fixture(scope="module")
def recorded(kind):
    everything = json.loads(RECORDED.read_text())
    if kind not in everything and not RECORDS:
        pytest.skip(f"no bits are recorded for this kind of CPU ({kind}); to add it, run on a commit whose results are "
                    f"trusted: {HOW}")
    return everything


@pytest.fixture(scope="module")
def measured(recorded, kind, machine, tmp_path_factory):
    """Returns the results of every recipe with each of WAYS."""
    folder = tmp_path_factory.mktemp("bits")
    write_data(folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {f"{name}-{way}": pool.submit(measure, name, settings, way, folder) for name, settings in RECIPES.items()
                for way in WAYS}
        values = {name: job.result() for name, job in jobs.items()}
        texts = [name for name, settings in RECIPES.items() if "model.kind" not in " ".join(settings)]
        for found in pool.map(lambda way: generations(texts, way, folder), ["fp32", "bf16"]):
            for name, generated in found.items():
                values[name] |= generated
    if RECORDS:
        record(recorded, kind, machine["cpu"], values)
    return values


def record(recorded, kind, cpu, values):
    """Replaces the section of this kind of CPU, and removes other sections that are out of date."""
    changed = kind in recorded and recorded[kind]["values"] != values
    for other in [*recorded]:
        if changed or recorded[other]["values"].keys() != values.keys():
            del recorded[other]
    recorded[kind] = {"recorded_on": cpu, "values": values}
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", [f"{name}-{way}" for name in RECIPES for way in WAYS])
def test_bits_are_as_recorded(name, recorded, kind, machine, measured):
    section = recorded[kind]
    before, now = section["values"].get(name, {}), measured[name]
    changes = [f"{key} was {before.get(key)}, is {now.get(key)}" for key in sorted({*before, *now})
               if before.get(key) != now.get(key)]
    if changes:
        pytest.fail(f"recipe {name}: " + "; ".join(changes) + f" (recorded on {section['recorded_on']}, run on "
                    f"{machine['cpu']}). A commit that intentionally changes bits records them again in the same commit: "
                    f"{HOW}", pytrace=False)


def test_every_choice_of_a_config_is_in_a_recipe():
    done = subprocess.run([train_runs.program(), "train", "--help-config"], env=ENVIRONMENT, capture_output=True, text=True)
    settings = [setting for name in RECIPES for setting in RECIPES[name]] + [s for way in WAYS.values() for s in way]
    used = {"tokenizer.kind=bytes", *(setting.replace('"', "") for setting in settings)}  # bytes: BASE
    missing = []
    for table, fields in re.findall(r"^\[([\w.]+)\][^\n]*\n(.*?)(?=^\[|\Z)", done.stdout, re.M | re.S):
        for key, default, about in re.findall(r'^  (\w+) = "(\w*)"(.*?)(?=^  \w|\Z)', fields, re.M | re.S):
            choices = re.search(r"\((\w+(?: \| \w+)+)\)$", " ".join(about.split()))
            for choice in choices[1].split(" | ") if choices else []:
                if choice != default and choice not in LEFT_OUT.get(f"{table}.{key}", ()):
                    missing += [f"{table}.{key}={choice}"] * (f"{table}.{key}={choice}" not in used)
    assert len(re.findall(r" \| ", done.stdout)) > 50 and missing == []


def test_nothing_else_is_recorded(recorded, kind, measured):
    assert recorded[kind]["values"].keys() == measured.keys()
