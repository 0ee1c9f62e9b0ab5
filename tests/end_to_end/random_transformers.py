"""Makes small models of `transformers` with random parameters, including biases and norms, and tokenizers."""

import tokenizers
import torch
import transformers

TEXT = "It's the head that attends; the room, it doesn't. In 1984 he'll say 'hello' -- 12345 times:\n\n  a b  c\n" * 3
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

CONFIGS = {
    "gpt2": lambda v, context: transformers.GPT2Config(
        vocab_size=v, n_layer=2, n_embd=32, n_head=4, n_positions=context),
    "gpt_neox": lambda v, context: transformers.GPTNeoXConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=96,
        max_position_embeddings=context),
    "llama": lambda v, context: transformers.LlamaConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=context),
    "qwen3": lambda v, context: transformers.Qwen3Config(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, max_position_embeddings=context),
    "gemma3_text": lambda v, context: transformers.Gemma3TextConfig(
        vocab_size=v, num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48, max_position_embeddings=context, sliding_window=7, sliding_window_pattern=2),
    "gpt_oss": lambda v, context: transformers.GptOssConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=context,
        sliding_window=7),
    "gpt_oss_without_windows": lambda v, context: transformers.GptOssConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=24, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=context,
        layer_types=["full_attention"] * 2),
    "deepseek_v2": lambda v, context: transformers.DeepseekV2Config(
        vocab_size=v, num_hidden_layers=3, hidden_size=32, num_attention_heads=4, intermediate_size=48,
        moe_intermediate_size=16, first_k_dense_replace=1, n_routed_experts=4, num_experts_per_tok=2, kv_lora_rank=12,
        q_lora_rank=None, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8, max_position_embeddings=context),
    "jetmoe": lambda v, context: transformers.JetMoeConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_key_value_heads=2, kv_channels=8, intermediate_size=24,
        num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=context),
    "jetmoe_one_expert": lambda v, context: transformers.JetMoeConfig(
        vocab_size=v, num_hidden_layers=2, hidden_size=32, num_key_value_heads=2, kv_channels=8, intermediate_size=24,
        num_local_experts=4, num_experts_per_tok=1, max_position_embeddings=context),
    "qwen3_next": lambda v, context: transformers.Qwen3NextConfig(
        vocab_size=v, num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=48, max_position_embeddings=context, num_experts=0, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12),
    "qwen3_next_experts": lambda v, context: transformers.Qwen3NextConfig(
        vocab_size=v, num_hidden_layers=4, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=48, max_position_embeddings=context, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=16, shared_expert_intermediate_size=24, norm_topk_prob=False, mlp_only_layers=[1],
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12),
}


def scaled(config, scaling):
    """Returns the config with another scaling of rotary positions in all layers without a window."""
    of_layers = config.rope_parameters.get("full_attention", config.rope_parameters)
    kept = {key: value for key, value in of_layers.items() if key in ("rope_theta", "partial_rotary_factor")}
    of_layers.clear()
    of_layers.update(kept | scaling)
    return config


def random_model(kind, vocabulary_size, context, scaling=None):
    torch.manual_seed(5)
    config = CONFIGS[kind](vocabulary_size, context)
    made = transformers.AutoModelForCausalLM.from_config(scaled(config, scaling) if scaling else config).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def bpe(kind):
    """Trains a tokenizer with the pre- and postprocessing of this kind of model."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.decoder = tokenizers.decoders.ByteLevel()
    level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind != "llama")
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(LLAMA3), "isolated")
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, level]) if kind == "llama" else level
    if kind == "gpt_neox":
        made.normalizer = tokenizers.normalizers.NFC()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([TEXT, "été déjà vu " * 20, "日本語の文" * 20], trainer)
    if kind == "gpt_neox":
        made.add_tokens([tokenizers.AddedToken(" " * n, normalized=True) for n in range(2, 9)])
    return made
