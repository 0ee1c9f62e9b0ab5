"""Hooks of TransformerLens work on Headroom models."""

import importlib

import pytest
import torch

import headroom_torch as ht
from headroom_torch import huggingface as hf

SIZES = ["model.n_layers=2", "model.d_model=32", "model.vocabulary_size=50", "model.context_length=16",
         "model.attention.n_heads=2", "model.attention.d_head=8", "model.mlp.d_hidden=48", "model.attention.position=rope"]
ATTENTION = {"switchhead": ["projection=experts", "n_experts=3", "top_k=2"], "dcmha": ["composition=dynamic"]}


@pytest.mark.parametrize("name", ATTENTION)
def test_hooks_read_and_replace_values(name):
    pytest.importorskip("transformer_lens", reason="transformer_lens is not installed")
    adapters = importlib.import_module("transformer_lens.factories.architecture_adapter_factory")
    sources = importlib.import_module("transformer_lens.model_bridge.sources")
    adapter = importlib.import_module("headroom_torch.transformer_lens").HeadroomAdapter
    adapters.ArchitectureAdapterFactory.register_adapter("HeadroomForCausalLM", adapter)  # without an installed wheel
    torch.manual_seed(1)
    model = hf.HeadroomForCausalLM(hf.HeadroomConfig(SIZES + [f"model.attention.{one}" for one in ATTENTION[name]])).eval()
    tokens = torch.randint(50, (2, 12))
    with torch.no_grad(), ht.observe("layer1.attention.out") as values:
        logits = model(tokens).logits
    bridge = sources.build_bridge_from_module(model, "HeadroomForCausalLM", hf_config=model.config)
    read, cache = bridge.run_with_cache(tokens)
    torch.testing.assert_close(read, logits)
    torch.testing.assert_close(cache["blocks.1.attn.hook_out"], values["layer1.attention.out"])
    without = bridge.run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_out", lambda t, hook: torch.zeros_like(t))])
    assert (without - logits).abs().max() > 0.1
    written = bridge.generate(tokens[:1, :5], max_new_tokens=4, do_sample=False, stop_at_eos=False, verbose=False)
    assert written.shape == (1, 9) and written[0, 5] == logits[0, 4].argmax()
