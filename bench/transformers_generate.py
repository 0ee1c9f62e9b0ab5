"""generate() of a Llama model in transformers: greedy continuations of a batch of prompts, with the KV cache. Answers
baseline.py's lines.
"""

import argparse
import json

import torch
import transformers

import baseline


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--size", type=json.loads, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    size = options.size
    config = transformers.LlamaConfig(
        vocab_size=size["vocabulary_size"], hidden_size=size["d_model"], intermediate_size=size["d_hidden"],
        num_hidden_layers=size["n_layers"], num_attention_heads=size["n_heads"],
        max_position_embeddings=size["context_length"], tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None, pad_token_id=0)
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    prompt = torch.randint(1, size["vocabulary_size"], (size["rows"], size["prompt"]))

    def run():
        model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=size["tokens"],
                       min_new_tokens=size["tokens"], do_sample=False)

    baseline.answer(run)


if __name__ == "__main__":
    main()
