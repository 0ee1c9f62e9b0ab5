"""Makes small random models of transformers, with their logits, in this folder. The authors' code made dcformer and
dcpythia.

python make.py [NAME...]        # needs transformers and torch
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY, LENGTH = 40, 24

MODELS = {
    "gpt2": transformers.GPT2Config(n_layer=2, n_embd=16, n_head=4, n_positions=LENGTH, n_inner=24),
    "gpt_neox": transformers.GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=2, intermediate_size=24, rotary_pct=0.25,
        max_position_embeddings=LENGTH, rotary_emb_base=500),
    "gpt_neox_sequential": transformers.GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=24, rotary_pct=1.0,
        max_position_embeddings=LENGTH, use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False,
        layer_norm_eps=1e-3, tie_word_embeddings=True),
    "llama": transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=24, max_position_embeddings=LENGTH, rms_norm_eps=1e-3, rope_theta=700.0),
    "llama_biases": transformers.LlamaConfig(
        num_hidden_layers=1, hidden_size=16, num_attention_heads=2, intermediate_size=24, hidden_act="gelu",
        max_position_embeddings=LENGTH, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "llama_scaled": transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
        intermediate_size=24, max_position_embeddings=LENGTH, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 90.0, "factor": 4.0, "low_freq_factor": 0.5,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 10}),
    "mistral": transformers.MistralConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=1, head_dim=4,
        intermediate_size=24, max_position_embeddings=LENGTH, sliding_window=5),
    "qwen2": transformers.Qwen2Config(
        num_hidden_layers=1, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24,
        max_position_embeddings=LENGTH),
    "qwen3": transformers.Qwen3Config(
        num_hidden_layers=3, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=24, max_position_embeddings=LENGTH, rms_norm_eps=1e-4, use_sliding_window=True,
        sliding_window=5, max_window_layers=1),
    "gemma3_text": transformers.Gemma3TextConfig(
        num_hidden_layers=4, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=24, max_position_embeddings=LENGTH, sliding_window=5, query_pre_attn_scalar=9,
        sliding_window_pattern=3),
    "gemma3_text_scaled": transformers.Gemma3TextConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=6,
        intermediate_size=24, max_position_embeddings=LENGTH, sliding_window=5, query_pre_attn_scalar=6,
        sliding_window_pattern=2,
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 90.0},
                         "full_attention": {"rope_type": "linear", "rope_theta": 700.0, "factor": 8.0}}),
    "gpt_oss": transformers.GptOssConfig(
        num_hidden_layers=3, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        intermediate_size=12, num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=LENGTH,
        sliding_window=5, rope_parameters={"rope_type": "default", "rope_theta": 700.0}),
    "gpt_oss_yarn": transformers.GptOssConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=12,
        intermediate_size=12, num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "yarn", "rope_theta": 90.0, "factor": 4.0, "beta_fast": 1.5, "beta_slow": 0.2,
                         "truncate": False, "original_max_position_embeddings": 12}),
    "deepseek_v2": transformers.DeepseekV2Config(
        num_hidden_layers=3, hidden_size=16, num_attention_heads=2, intermediate_size=24, moe_intermediate_size=12,
        first_k_dense_replace=1, n_routed_experts=5, n_shared_experts=2, num_experts_per_tok=2,
        routed_scaling_factor=1.5, kv_lora_rank=8, q_lora_rank=6, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5,
        max_position_embeddings=LENGTH),
    "deepseek_v2_lite": transformers.DeepseekV2Config(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=2, intermediate_size=24, moe_intermediate_size=12,
        n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=3, kv_lora_rank=8, q_lora_rank=None,
        qk_nope_head_dim=4, qk_rope_head_dim=8, v_head_dim=6, max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": "yarn", "rope_theta": 90.0, "factor": 3.0, "beta_fast": 2.0, "beta_slow": 0.3,
                         "mscale": 0.7, "mscale_all_dim": 0.5, "original_max_position_embeddings": 12}),
    "jetmoe": transformers.JetMoeConfig(
        num_hidden_layers=2, hidden_size=16, num_key_value_heads=3, kv_channels=4, intermediate_size=12,
        num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=LENGTH, rms_norm_eps=1e-3),
    "qwen3_next_experts": transformers.Qwen3NextConfig(
        num_hidden_layers=3, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=24, max_position_embeddings=LENGTH, layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
        linear_value_head_dim=5, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12,
        shared_expert_intermediate_size=10, mlp_only_layers=[2], norm_topk_prob=True),
}


def make(name, config):
    torch.manual_seed(len(name))
    config.vocab_size = VOCABULARY
    config.bos_token_id = config.eos_token_id = 0
    config.pad_token_id = None  # the padding row of the embedding would get no gradient
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # zeros and ones would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.2)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    model.save_pretrained(HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()  # without the routers' balance losses
    written = model.generate(tokens[:1, :8], max_new_tokens=12, do_sample=False, eos_token_id=None)
    save_file({"tokens": tokens, "logits": logits.detach(), "written": written[0],
               "gradient": model.get_input_embeddings().weight.grad}, HERE / name / "expected.safetensors")


def make_tokenizer():
    """Writes a tokenizer with one id for each character."""
    characters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;"
    assert len(characters) == VOCABULARY
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(characters)}, "merges": []}
    document = {"version": "1.0", "pre_tokenizer": level, "decoder": level, "model": model}
    (HERE / "tokenizer.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    make_tokenizer()
    for model_name in sys.argv[1:] or MODELS:
        make(model_name, MODELS[model_name])
