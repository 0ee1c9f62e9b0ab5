"""Every command of docs/papers.md runs as written, with the recipes scaled down, and reports a figure."""

import gzip
import io
import json
import math
import re
import shlex
import struct
import subprocess
import tarfile

import pytest

import train_runs

NOT_RUN = {
    "headroom import": "names the command; the model is downloaded by the reader",
    "headroom bench switchhead": "trains models of 47M and 262M parameters",
    "headroom bench dcformer": "trains layers of the 405M models",
}
PAPERS = ["switchhead", "switchhead_draft", "moa", "dcmha", "mgk"]
AT_MOST = {"n_layers": 2, "n_decoder_layers": 2, "context_length": 24, "memory_length": 24, "d_head_hidden": 8, "n_classes": 10,
           "image_size": 8, "patch_size": 4, "n_heads": 4, "n_kv_heads": 4, "d_head": 8, "n_experts": 4, "top_k": 4,
           "window": 8, "d_hidden": 16, "generated_train": 20, "generated_validation": 5, "batch_size": 4,
           "batch_tokens": 200, "accumulate": 2, "warmup_steps": 1, "source_vocabulary_size": 280}
EXACT = {"threads": "1", "precision": '"fp32"', "checkpoint_every": "1", "keep_checkpoints": "10",
         "evaluate_every": "0", "extra_length": "2", "sample_every": "0"}


def scaled_down(text, data):
    """Returns a complete config with small sizes and the data that its kind of model reads."""
    kind = re.search(r'^kind = "(\w+)"', text, re.MULTILINE)[1]  # of [model], the first table
    generated = re.search(r'^generator = "(\w+)"', text, re.MULTILINE)[1]
    paired = "\npaired = true\n" in text
    files = data / ("pairs.tsv" if kind == "encoder_decoder" else "pictures" if kind == "vision" else
                    "text.txt" if kind != "classifier" else "listops.tsv" if generated != "none" else
                    "paired.tsv" if paired else "labelled.tsv")
    vocabulary = {"bytes": 256, "words": 10}
    lines, table, tokenizer = [], "", re.search(r'\[tokenizer\]\nkind = "(\w+)"', text)[1]
    for line in text.splitlines():
        key, _, value = line.partition(" = ")
        table = line if line.startswith("[") else table
        if key in AT_MOST and value.isdigit():
            value = str(min(int(value), AT_MOST[key]))
        elif key == "d_model":
            value = str(max(16, int(value) // 64))
        elif key == "adaptive_cutoffs" and value != "[]":
            value = "[2, 4, 6]"
        elif key in ("train", "validation") and table == "[data]":
            value = json.dumps([str(files)])
        elif key == "vocabulary_size" and kind not in ("classifier", "vision"):
            special = 2 if table == "[model]" and kind == "masked_language_model" else 0
            value = str(vocabulary.get(tokenizer, 295) + special)
        elif key == "steps":  # only translations are evaluated as the mean of ten checkpoints
            value = "10" if kind == "encoder_decoder" else "2"
        value = EXACT.get(key, value)
        lines.append(f"{key} = {value}" if value else line)
    text = "\n".join(lines) + "\n"
    if kind == "vision":
        text = re.sub(r"^context_length = .*$", "context_length = 4", text, flags=re.MULTILINE)
    return text


def stored_as_zstd(content):
    """Returns a zstd frame with one uncompressed block."""
    return b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", len(content)) + struct.pack("<I", len(content) << 3 | 1)[:3] + content


def write_data(folder):
    """Makes small files of every format that the page's commands and recipes read."""
    def write(name, content):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())

    def rows(*objects):
        return "".join(json.dumps(one) + "\n" for one in objects)

    def archive(members):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, content in members.items():
                about = tarfile.TarInfo(name)
                about.size = len(content)
                tar.addfile(about, io.BytesIO(content))
        return out.getvalue()

    def picture(i):
        return b"P6\n8 8\n255\n" + bytes((i * 37 + k) % 256 for k in range(192))

    train_runs.write_text(folder / "text.txt", 3000, 1)
    text = (folder / "text.txt").read_text()
    sentences = [line.strip() for line in text.splitlines() if 8 < len(line) < 40][:12]
    write("pairs.tsv", "".join(f"{s}\t{s.upper()}\n" for s in sentences))
    write("labelled.tsv", "label\ttext\n" + "".join(f"{i % 2}\t{s}\n" for i, s in enumerate(sentences)))
    write("paired.tsv", "".join(f"{i % 2}.0\ta\tb\t{s}\t{s.upper()}\n" for i, s in enumerate(sentences)))
    write("listops.tsv", "Source\tTarget\n" + "".join(
        f"[MAX {i} [MIN 4 2 ] 1 ]\t{max(i, 2)}\n" for i in range(10)))
    for i in range(10):
        for split in ("pictures", "imagenet/train", "imagenet/val"):
            write(f"{split}/class{i}/one.ppm", picture(i))
    write("iwslt14.tsv", (folder / "pairs.tsv").read_bytes())
    write("test.txt", text)
    write("wiki.test.txt", text[:300])
    write("corpus.jsonl", rows(*({"text": text} for _ in range(10))))
    write("test.jsonl.zst", stored_as_zstd(rows({"text": text[:400]}).encode()))
    write("lambada_test.jsonl.gz", gzip.compress(rows({"text": "the head room attends"}).encode()))
    blimp = rows({"sentence_good": "the head attends.", "sentence_bad": "the head attend.", "UID": "agreement"})
    write("blimp.tar.gz", gzip.compress(archive({"data/agreement.jsonl": blimp.encode()})))
    story = "".join(f"{i} the head attends .\n" for i in range(1, 21)) + "21 the XXXXX attends .\tw3\t\t" + "|".join(f"w{i}" for i in range(10)) + "\n\n"
    write("CBTest.tgz", gzip.compress(archive({"CBTest/data/cbtest_NE_test_2500ex.txt": story.encode()})))
    examples = rows({"task_id": "task0", "texts": "\n< A has b. >. A has b\n< A has c. >. A has c\n< A has d. >. A has [ d ]\n"})
    write("synthetic_dataset.jsonl.gz", gzip.compress(examples.encode()))
    write("piqa.jsonl", rows({"query": "the", "choices": [" head", " room"], "gold": 1}))
    write("hellaswag.jsonl", rows(*({"query": f"the {i}", "choices": [" a", " b", " c", " d"], "gold": i % 4} for i in range(8))))
    write("flan.jsonl", rows({"inputs": "the head", "targets": "room"}))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    write_data(folder)
    return folder


def scale_down(headroom, place, folder, row):
    """Writes a recipe with small sizes into the home folder; ignores paths that are not recipes."""
    file = place / "home" / "recipes" / folder / f"{row}.toml"
    if file.exists() or not (train_runs.ROOT / "recipes" / folder).is_dir():
        return
    full, = headroom.json("recipes", f"{folder}/{row}", "--resolved")
    file.parent.mkdir(parents=True, exist_ok=True)
    tables = re.sub(r"^\[", f"[rows.{row}.", scaled_down(full["resolved"], place), flags=re.MULTILINE)
    file.write_text(f"[rows.{row}]\n{tables}")


def run(headroom, place, words, scaled=True):
    if scaled:
        for folder, row in re.findall(r"(?<![\w/.])(\w+)/(\w+)(?![\w/.])", " ".join(words)):
            scale_down(headroom, place, folder, row)
    environment = {**headroom.environment, **({"HEADROOM_HOME": str(place / "home")} if scaled else {})}
    done = subprocess.run([train_runs.program(), *words, "--json"], cwd=place, env=environment, text=True, capture_output=True,
                          timeout=train_runs.PATIENCE)
    assert done.returncode == 0, f"headroom {shlex.join(words)}:\n{done.stderr}"
    return json.loads(done.stdout)


def run_folder(headroom, place, name):
    out = place / "trained" / name.replace("/", "_")
    if not out.exists():
        run(headroom, place, ["train", name, "--out", str(out)])
    return str(out)


# In a command with this word, RUN stands for a run of this recipe.
EVALUATED = {"--beam": "moa/wmt14_ende_8k8e128d", "composition": "small/composition_dense",
             "--stride": "mgk/wt103_small_mgk_h4",
             "evaluate": "switchhead/wt103_47m", "convert": "dcmha/405m_transformer_pp"}
MORE = {"tokenizer": ["--vocabulary-size", "300"], "convert": ["--tokens", "96"], "bench": ["--repeats", "1", "--threads", "1"]}
SHORTER = {"1024": "16", "128": "8"}  # of `bench generation`


def figures_of(words, document):
    """Returns the figures that a command's result must have."""
    command = words[0]
    if command == "train":
        return [document["validation_loss"], document["parameters"]]
    if command in ("compare", "report"):
        return [value for one in document["runs"] for value in (one.get("validation_loss_mean", one.get("validation_loss")),
                                                                one["parameters"])]
    if command == "cost":
        rows = [document] if "--match" in words else document
        return [one["computed"] if "--paper" in words else one["parameters"] for one in rows]
    if command == "bench":
        return [one["seconds"] for one in document]
    if command == "evaluate":
        return [document["accuracy"] if "--task" in words else document["loss"]]
    if command == "analyse":
        what = words[words.index("--what") + 1].split(",")
        assert document["analyses"].keys() == set(what)
        return [len(document["analyses"][name]) for name in what]
    return [len(document)]


def prepared(headroom, place, words, recipes):
    """Returns the words of a command with actual files, folders and runs in place of the page's placeholders."""
    if any(word.startswith("RUN") for word in words):
        name = recipes[0] if words[0] == "analyse" else next(name for word, name in EVALUATED.items() if word in words)
        words = [word.replace("RUN", run_folder(headroom, place, name)) for word in words]
    if "test.tsv" in words:
        kind = "listops.tsv" if "--test" in words else "pairs.tsv"
        (place / "test.tsv").write_bytes((place / kind).read_bytes())
    pairs = recipes and "retrieval" in recipes[0]
    if "FILE" in words:
        kind = "paired.tsv" if pairs else "pairs.tsv" if "wmt14" in recipes[0] else "text.txt"
        (place / "FILE").write_bytes((place / kind).read_bytes())
    if words[:2] == ["bench", "generation"]:
        words = [SHORTER.get(word, word) for word in words]
    own = {"TEXT": "one text\tand another" if pairs else "one text, read twice", "DIR": f"DIR{len(list(place.glob('DIR*')))}"}
    return [own.get(word, word) for word in words] + MORE.get(words[0], [])


def test_each_command_of_the_papers_page_gives_a_figure(headroom, place):
    seen, failures = set(), []
    for item in (item for name in PAPERS for paper in headroom.json("recipes", "--paper", name) for item in paper["items"]):
        for command in item["commands"]:
            recipes = item["recipes"] if command.startswith("headroom analyse") else []
            if command in NOT_RUN or (command, *recipes[:1]) in seen:
                continue
            seen.add((command, *recipes[:1]))
            words = prepared(headroom, place, shlex.split(command)[1:], recipes)
            try:
                figures = figures_of(words, run(headroom, place, words, words[0] not in ("cost", "recipes", "doctor")))
                assert figures and all(value is not None and math.isfinite(value) for value in figures), figures
                if "--plot" in words:
                    assert (place / words[words.index("--plot") + 1]).read_text().startswith("<!doctype html>")
            except (AssertionError, KeyError) as error:
                failures.append(f"{item['item']}: {command}: {error!r}")
    assert len(seen) > 60 and not failures, "\n".join(failures)
