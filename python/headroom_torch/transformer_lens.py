"""Hooks of TransformerLens on Headroom language models, through its entry point `transformer_lens.architectures`.

    model = headroom_torch.huggingface.HeadroomForCausalLM.from_checkpoint("runs/mine")
    bridge = transformer_lens.model_bridge.sources.build_bridge_from_module(
        model, "HeadroomForCausalLM", hf_config=model.config)
    logits, cache = bridge.run_with_cache(tokens)
    cache["blocks.0.attn.hook_out"]

The loaders by name, TransformerBridge.boot_transformers(), accept only TransformerLens's own architectures (4.3).

Every layer has the hooks hook_in and hook_out of the block ("blocks.0"), of its attention ("blocks.0.attn") and of its MLP
("blocks.0.mlp"), the model has the hooks of the final norm ("ln_final") and of the output layer ("unembed"). Values inside
attention have no hooks there; headroom_torch.observe() shows them.
"""

from __future__ import annotations

from typing import Any

from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent
from transformer_lens.model_bridge.generalized_components.opaque_block import OpaqueBlockBridge

__all__ = ["HeadroomAdapter"]


class HeadroomAdapter(ArchitectureAdapter):
    """Maps the modules of a HeadroomForCausalLM to names of TransformerLens."""

    applicable_phases: list[int] = []  # its checks of weights and attention patterns assume dense heads
    supports_kv_cache = False  # a model with hooks reads each chunk again

    def __init__(self, cfg: Any):
        super().__init__(cfg)
        self.weight_processing_conversions = {}
        self.component_mapping = {
            "blocks": OpaqueBlockBridge(name="model.blocks", submodules={
                "attn": GeneralizedComponent(name="attention"), "mlp": GeneralizedComponent(name="ffn")}),
            "ln_final": GeneralizedComponent(name="model.norm_f"),
            "unembed": GeneralizedComponent(name="model.head"),
        }
