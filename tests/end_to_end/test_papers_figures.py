"""The papers' figures of trained models: the commands of docs/papers.md and their results, on small models of the recipes."""

import json
import re

import pytest

import train_runs
from train_runs import tensor

PAGE = (train_runs.ROOT / "docs" / "papers.md").read_text()
LENGTH = 48  # context of the small models


def command_of(paper, figure, program="analyse"):
    """The arguments of the command in the row of a paper's figure."""
    section = PAGE.split(f"`headroom recipes --paper {paper}`")[1].split("\n## ")[0]
    row = next(line for line in section.splitlines() if line.startswith(f"| {figure} |"))
    return re.search(rf"`headroom ({program} [^`]*)`", row)[1].split()


class Runs:
    """Small models of recipes, trained for two steps when they are first asked for."""

    def __init__(self, headroom, folder):
        self.headroom, self.folder = headroom, folder
        words = "the cat sat on a mat and saw another cat that sat on the same old mat by the door"
        rows = [f"{i % 2}.0\t{i}\t{i}\t{words[i % 20:]}\t{words[(7 * i) % 20:]}\n" for i in range(40)]
        self.pairs, self.text = folder / "pairs.tsv", folder / "text.txt"
        self.pairs.write_text("".join(rows))
        self.text.write_text((words + ".\n") * 60)

    def __call__(self, recipe, *settings):
        out = self.folder / recipe.replace("/", "_")
        if not out.exists():
            data = self.pairs if "retrieval" in recipe else self.text
            shrunk = [f'data.train=["{data}"]', f'data.validation=["{data}"]', f"model.context_length={LENGTH}", "train.steps=2",
                      "train.warmup_steps=0", "train.batch_size=2", "train.accumulate=1", "train.evaluate_every=0", "train.precision=fp32", *settings]
            if "retrieval" not in recipe:
                shrunk += ["tokenizer.kind=bytes", "tokenizer.vocabulary_size=256", "model.vocabulary_size=256", "model.n_layers=2",
                           "model.d_model=32", "model.attention.d_head=8", "model.mlp.d_hidden=48"]
            self.headroom("train", recipe, "--out", out, "--quiet", *(word for one in shrunk for word in ("--set", one)))
        return out

    def analyse(self, run, words, text=None):
        """Runs the command of a row; returns the analyses, the tensors' file and the page."""
        out = self.folder / f"{run.name}_{'_'.join(words)}".replace("/", "_")
        values = {"RUN": run, "DIR": out, "FILE": self.pairs if "retrieval" in run.name else self.text, "TEXT": text}
        found = self.headroom.json(*(values.get(word, word) for word in words))
        return found["analyses"], out / "analysis.safetensors", (out / "report.html").read_text()


@pytest.fixture(scope="module")
def runs(headroom, tmp_path_factory):
    return Runs(headroom, tmp_path_factory.mktemp("figures"))


def rows_of(shape, values):
    columns = shape[-1]
    return [values[i:i + columns] for i in range(0, len(values), columns)]


@pytest.mark.parametrize("recipe", ["mgk/lra_retrieval_linear_h4", "mgk/lra_retrieval_mlk_h2"])
def test_mgk_figure_8_linear_attention_has_matrices(runs, recipe):
    found, tensors, page = runs.analyse(runs(recipe), command_of("mgk", "Figure 8"))
    shape, weights = tensor(tensors, "maps.layer1.attention")
    assert shape[0] == int(recipe[-1]) and shape[1] == shape[2]
    assert all(min(row) > 0 and sum(row) == pytest.approx(1, abs=1e-4) for row in rows_of(shape, weights))
    assert page.count("maximum over heads") == 2


@pytest.mark.parametrize("recipe", ["mgk/lra_retrieval_softmax_h4", "mgk/lra_retrieval_mgk_h2"])
def test_mgk_figure_2_ranks_of_every_sample(runs, recipe):
    found, tensors, _ = runs.analyse(runs(recipe), command_of("mgk", "Figure 2"))
    heads = int(recipe[-1])
    for layer in found["rank"]["layers"].values():
        assert layer["matrices"] == 40 * 2 * heads, "both texts of all 40 rows, fewer than the paper's 1,000 samples"
        assert 0 < layer["least"] <= layer["mean"] <= layer["largest"] <= layer["full"]
    assert set(found["maps"]) == {"layer0.attention", "layer1.attention"}
    assert command_of("mgk", "Figure 6")[2:6] == ["--what", "rank", "--samples", "1000"]


@pytest.mark.parametrize("recipe, components", [("mgk/lra_retrieval_softmax_h2", 1), ("mgk/lra_retrieval_mgk_h1", 2),
                                                ("mgk/lra_retrieval_smgk_h1", 2)])
def test_mgk_figures_11_and_12_and_table_7(runs, recipe, components):
    heads, text = int(recipe[-1]), "one text\tand another one"
    assert command_of("mgk", "Figure 11") == command_of("mgk", "Figure 12") == command_of("mgk", "Table 7")
    found, tensors, page = runs.analyse(runs(recipe), command_of("mgk", "Figure 11"), text)
    shape, _ = tensor(tensors, "mixture.layer0.attention.keys")
    assert shape[:2] == [components, heads] and shape[3] == 32
    matrices = 1 if "smgk" in recipe else components  # shifted keys share their matrix
    assert len(re.findall(r'"title":"W_K\d of head', page)) == 2 * heads * matrices
    assert len(re.findall(r'"title":"keys \d of head', page)) == 2 * heads * components
    for layer in found["mixture"].values():
        assert ("prior" in layer) == (components > 1)
        if components > 1:
            for column in ("prior", "responsibility"):
                assert sum(of[0] for of in layer[column]) == pytest.approx(1, abs=0.05), column


def composed(runs):
    return runs("dcmha/6b9_dcpythia", "model.attention.n_heads=4", "model.attention.window=16")


def test_dcmha_figure_7_breaks_a_weight_down(runs):
    words = command_of("dcmha", "Figure 7")
    found, tensors, page = runs.analyse(composed(runs), words, "one of two")
    for layer in found["composition"].values():
        for stage in ("pre", "post"):
            pair = layer[stage]["pair"]
            assert pair["key_place"] == int(words[words.index("--key") + 1])
            terms = [pair[term] for term in ("base", "query_low_rank", "query_gate", "key_low_rank", "key_gate")]
            assert [sum(of) for of in zip(*terms)] == pytest.approx(pair["after"], abs=1e-4)
    assert page.count('W_k2 of the key, by head"') == 4  # two layers, two stages


def test_dcmha_figure_8_shows_weights_before_and_after(runs):
    text = "one of two"
    found, tensors, page = runs.analyse(composed(runs), command_of("dcmha", "Figure 8"), text)
    for layer in (0, 1):
        before, after = (tensor(tensors, f"composition.layer{layer}.attention.post.query_{when}") for when in ("before", "after"))
        assert before[0] == after[0] == [4, len(text)] and before[1] != after[1]
        assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in rows_of(*before))
        for factors in ("key_factors", "key_outputs", "query_factors", "query_outputs"):
            assert tensor(tensors, f"composition.layer{layer}.attention.post.{factors}")[0] == [2 * 4, len(text)]
        # The last row of the maps is the last query's weights after composition.
        shape, maps = tensor(tensors, f"maps.layer{layer}.attention")
        rows = rows_of(shape, maps)
        assert [list(rows[(head + 1) * len(text) - 1]) for head in range(4)] == [list(row) for row in rows_of(*after)]


def test_dcmha_appendix_g_attributes_the_answer(runs):
    found, _, page = runs.analyse(composed(runs), command_of("dcmha", "Appendix G"), "one of two, of two")
    gradients = found["circuits"]["gradients"]
    for name, layer in gradients["layers"].items():
        assert abs(layer["residual"]) <= max(0.01 * abs(layer["all_heads"]), 1e-4), name
        assert sum(layer["by_head"]) + layer["jumps"] + layer["residual"] == pytest.approx(layer["all_heads"], abs=1e-6)
    assert len(found["circuits"]["ov"]["layer0.attention"][0]["tokens"][0]["to"]) == 10


def test_switchhead_figure_6_draws_induction_heads_and_stripes(runs):
    run = runs("switchhead/wt103_47m", f"model.memory_length={LENGTH}")
    found, _, page = runs.analyse(run, command_of("switchhead", "Figure 6"))
    for length in found["induction"]["lengths"]:
        assert 0 < length["by_chance"]["prefix_matching"] < length["by_chance"]["copying"] <= 0.1
    assert re.search(r"head \d on repeated random tokens", page)
    assert len(re.findall(r'"title":"layer\d\.attention head \d: 0\.\d\d on key', page)) == 4
    for layer in found["maps"].values():
        assert len(layer["stripe"]) == 2 and all(0 < one["weight"] <= 1 and one["key"] >= 1 and one["by_chance"] > 0 for one in layer["stripe"])


def test_mgk_figure_3_compares_half_the_heads(headroom, tmp_path):
    """The mixture costs less than its baseline with twice the heads, and the more so the more heads there are."""
    for baseline in ("softmax", "linear"):
        words = command_of("mgk", "Figure 3", "cost") if baseline == "softmax" else \
            re.findall(r"`headroom (cost [^`]*)`", next(line for line in PAGE.splitlines() if "linear.html" in line))[1].split()
        words[words.index("--plot") + 1] = tmp_path / f"{baseline}.html"
        costs = headroom.json(*words)
        assert len(costs) == 6 and all(baseline in one["name"] for one in costs[3:])
        for figure in ("parameters", "attention_macs"):
            saved = [other[figure] - own[figure] for own, other in zip(costs, costs[3:])]
            assert 0 < saved[0] < saved[1] < saved[2], (baseline, figure, saved)
        assert (tmp_path / f"{baseline}.html").read_text().startswith("<!doctype html>")
