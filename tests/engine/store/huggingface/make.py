"""Makes the folders here: small random models of transformers, with their logits.

    python make.py        # needs transformers and torch
"""

import json
import pathlib

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
    "mistral": transformers.MistralConfig(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=1, head_dim=4,
        intermediate_size=24, max_position_embeddings=LENGTH, sliding_window=5),
    "qwen2": transformers.Qwen2Config(
        num_hidden_layers=1, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=24,
        max_position_embeddings=LENGTH),
}


def make(name, config):
    torch.manual_seed(len(name))
    config.vocab_size = VOCABULARY
    config.bos_token_id = config.eos_token_id = 0
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():  # zeros and ones in biases and norms would hide mistakes
            parameter.add_(torch.randn_like(parameter) * 0.2)
    tokens = torch.randint(VOCABULARY, (2, LENGTH))
    model.save_pretrained(HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        save_file({"tokens": tokens, "logits": model(tokens).logits}, HERE / name / "expected.safetensors")


def make_tokenizer():
    """A tokenizer with one id for each character."""
    characters = "abcdefghijklmnopqrstuvwxyz0123456789.,:;"
    assert len(characters) == VOCABULARY
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": {c: i for i, c in enumerate(characters)}, "merges": []}
    document = {"version": "1.0", "pre_tokenizer": level, "decoder": level, "model": model}
    (HERE / "tokenizer.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    make_tokenizer()
    for model_name, model_config in MODELS.items():
        make(model_name, model_config)
