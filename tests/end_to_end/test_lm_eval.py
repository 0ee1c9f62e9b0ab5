"""Zero-shot scores of exported models, compared with lm-evaluation-harness. The package and its dependencies take 600 MB
and are not part of the tests' environment; without them (pip install lm_eval[hf]) these tests are skipped."""

import gzip
import json
import random

import pytest

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
for needed in ("lm_eval", "accelerate", "peft"):
    pytest.importorskip(needed, reason=f"{needed} is not installed (pip install lm_eval[hf])")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.huggingface import HFLM  # noqa: E402

import serving  # noqa: E402
import train_runs  # noqa: E402
from random_transformers import bpe, random_model  # noqa: E402

CONTEXT = 160
WORDS = ["the", "head", "room", "attends", "to", "every", "token", "twice", "and", "rests", "caf\u00e9", "12"]


def sentence(draw, n):
    return " ".join(draw.choice(WORDS) for _ in range(n))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Writes one file for each kind of test, in the published format or in the format of evaluation suites."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(11)

    def s(low=2, high=6):
        return sentence(draw, draw.randrange(low, high))

    rows = {
        "copa": [{"query": s() + ", because", "choices": [s(), s()], "gold": draw.randrange(2)} for _ in range(20)],
        "piqa": [{"goal": s(), "sol1": s(), "sol2": s(), "label": draw.randrange(2)} for _ in range(20)],
        "arc_easy": [{"query": f"Question: {s()}?", "choices": [s() for _ in range(4)], "gold": draw.randrange(4)}
                     for _ in range(20)],
        "winograd": [{"context_options": [s(), s()], "continuation": s() + ".", "gold": draw.randrange(2)}
                     for _ in range(20)],
        "winogrande": [{"sentence": f"{s()} _ {s()}.", "option1": s(1, 2), "option2": s(1, 3),
                        "answer": str(draw.randrange(1, 3))} for _ in range(20)],
        "boolq": [{"passage": s(8, 14), "question": s(), "answer": draw.random() < 0.5} for _ in range(10)],
        "lambada": [{"text": text} for text in [*(s(4, 16) for _ in range(20)), "two  blanks  here", "tab\tand\u00a0nbsp end",
                                                " first the\nline end", "a b "]],
        "blimp": [{"sentence_good": s(3, 9) + ".", "sentence_bad": s(3, 9) + ".", "UID": f"u{i % 2}"} for i in range(20)]}
    for name, some in rows.items():
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in some)
    return folder, rows


def trained_here(headroom, folder, *tokenizer):
    train_runs.write_text(folder / "text.txt", 20000, 3)
    train_runs.small_config(folder / "own.toml", folder / "text.txt", *train_runs.LLAMA, f"model.context_length = {CONTEXT}",
                            "model.n_layers = 1", *tokenizer, "train.steps = 20", "train.learning_rate = 1e-2")
    headroom("train", folder / "own.toml", "--out", folder / "run", "--quiet")
    headroom("checkpoint", "export", folder / "run", "--format", "huggingface", "--out", folder / "hf")
    return folder / "run", folder / "hf"


def imported(headroom, folder, adds_bos):
    made = bpe("gpt_neox")
    theirs = folder / "theirs"
    random_model("gpt_neox", made.get_vocab_size(), CONTEXT).save_pretrained(theirs)
    if adds_bos:
        made.post_processor = tokenizers.processors.TemplateProcessing(
            single="<|endoftext|> $A", pair="<|endoftext|> $A $B", special_tokens=[("<|endoftext|>", 0)])
    made.save(str(theirs / "tokenizer.json"))
    (theirs / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}))
    headroom("import", theirs, "--out", folder / "imported.safetensors")
    headroom("checkpoint", "export", folder / "imported.safetensors", "--format", "huggingface", "--out", folder / "hf")
    return folder / "imported.safetensors", folder / "hf"


MODELS = {
    "sentencepiece": (lambda headroom, folder: trained_here(headroom, folder, *serving.PIECES), "line_end", "none"),
    "bytes": (lambda headroom, folder: trained_here(headroom, folder), "line_end", "none"),
    "imported": (lambda headroom, folder: imported(headroom, folder, False), "none", "none"),
    "imported_with_bos": (lambda headroom, folder: imported(headroom, folder, True), "bos", "bos")}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request, headroom, tmp_path_factory):
    """Returns the checkpoint, lm_eval's model, and the tokens that begin a text in training and in lm_eval."""
    make, usual, theirs = MODELS[request.param]
    mine, folder = make(headroom, tmp_path_factory.mktemp(request.param))
    return mine, HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=8), usual, theirs


def test_every_choice_has_the_log_probability_of_the_package(headroom, data, model, tmp_path):
    mine, lm, usual, theirs = model
    folder, rows = data
    for task, some in rows.items():
        items = tmp_path / f"{task}.jsonl"
        data_of = ["--data", folder / f"{task}.jsonl.gz", "--items", items, "--threads", 1]
        document = headroom.json("evaluate", mine, "--task", task, "--begin", theirs, *data_of)
        assert document["begin"] == theirs and document["truncated"] == 0
        all_items = [json.loads(line) for line in items.read_text().splitlines()]
        assert len(all_items) == len(some)
        choices = [choice for item in all_items for choice in item["choices"]]
        requests = [Instance("loglikelihood", {}, (one["context"], one["continuation"]), i) for i, one in enumerate(choices)]
        for one, (log_probability, greedy) in zip(choices, lm.loglikelihood(requests, disable_tqdm=True)):
            assert one["log_probability"] == pytest.approx(log_probability, abs=2e-4), (task, one)
            assert one["greedy"] == greedy
        if task in ("copa", "blimp"):
            assert headroom.json("evaluate", mine, "--task", task, *data_of)["begin"] == usual
