"""Small models of `transformers` with random parameters, biases and norms included."""

import torch
import transformers

CONFIGS = {
    "gpt2": lambda v, context: transformers.GPT2Config(
        vocab_size=v, n_layer=2, n_embd=32, n_head=4, n_positions=context),
    "gpt_neox": lambda v, context: transformers.GPTNeoXConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=context),
    "llama": lambda v, context: transformers.LlamaConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=context),
    "qwen3_next": lambda v, context: transformers.Qwen3NextConfig(
        vocab_size=v, num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=48, max_position_embeddings=context, num_experts=0, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12),
}


def random_model(kind, vocabulary_size, context):
    torch.manual_seed(5)
    made = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind](vocabulary_size, context)).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made
