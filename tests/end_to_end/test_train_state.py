"""Runs that are killed and resumed: one for each kind of state that a step leaves."""

import re

import pytest

import train_runs

EXPERTS = """n_heads = 2
d_head = 8
projection = "experts"
n_experts = 3
top_k = 2
expert_dropout = 0.1
"""
MIXTURE = """n_heads = 2
d_head = 8
score = "gaussian_mixture"
keys = "shifted"
prior_update = "soft_e"
"""
ROUTED = """n_heads = 2
d_head = 8
projection = "routed_heads"
n_experts = 4
noisy_routing = true
"""
DYNAMIC = """n_heads = 4
d_head = 8
composition = "dynamic"
"""
SIGMA_MOE = """[model.mlp]
kind = "experts"
d_hidden = 16
n_experts = 4
top_k = 2
"""

KINDS = {
    "momentum of muon": (EXPERTS, {"optimizer": '"muon"', "muon_learning_rate": "6e-3"}),
    "momentum of muon in bf16": (EXPERTS, {"optimizer": '"muon"', "precision": '"bf16"'}),
    "priors": (MIXTURE, {}),
    "noise": (ROUTED, {}),
    "noise in bf16": (ROUTED, {"precision": '"bf16"', "accumulate": "2"}),
    "composed heads": (DYNAMIC, {"precision": '"bf16"'}),
}


def config_of(folder, attention, train):
    config = train_runs.prepare(folder)
    text = re.sub(r"n_heads = 2\n.*?(?=position)", attention, config.read_text(), flags=re.DOTALL)
    text = re.sub(r"\[model.mlp\]\nd_hidden = 64\n", SIGMA_MOE, text)
    text = re.sub(r"^steps = 60", "steps = 28", text, flags=re.MULTILINE)
    text = re.sub(r"(precision) = .*\n", lambda m: "" if m[1] in train else m[0], text)
    config.write_text(text + "".join(f"{key} = {value}\n" for key, value in train.items()))
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_and_resumed_run_is_identical(tmp_path, kind):
    config = config_of(tmp_path, *KINDS[kind])
    whole = train_runs.run(config, tmp_path / "whole")
    killed = train_runs.resumed_after_kills(config, tmp_path / "killed", (7, 20))
    assert killed["parameters_sha256"] == whole["parameters_sha256"]
    assert killed["validation_loss"] == whole["validation_loss"]
    assert train_runs.same_history(train_runs.metrics(tmp_path / "killed"), train_runs.metrics(tmp_path / "whole"))
