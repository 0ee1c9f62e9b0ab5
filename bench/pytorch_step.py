"""A dense model's training step in PyTorch: scaled_dot_product_attention, fused AdamW, eager or compiled; with
DistributedDataParallel if torchrun's variables are set.

Answers baseline.py's lines; "memory" is the peak resident memory in bytes minus that before the model was created, or on
a GPU the most memory that torch allocated.
"""

import argparse
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

import baseline


class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model, bias=False)
        self.out = nn.Linear(d_model, d_model, bias=False)
        self.norm_2 = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)

    def forward(self, h):
        b, t, d = h.shape
        q, k, v = self.qkv(self.norm_1(h)).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(o.transpose(1, 2).reshape(b, t, d))
        return h + self.down(F.gelu(self.up(self.norm_2(h))))


class LanguageModel(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.embed = nn.Embedding(size["vocabulary_size"], size["d_model"])
        self.position = nn.Parameter(torch.randn(size["context_length"], size["d_model"]) * 0.02)
        self.blocks = nn.ModuleList(Block(size["d_model"], size["n_heads"]) for _ in range(size["n_layers"]))
        self.norm = nn.LayerNorm(size["d_model"])
        nn.init.normal_(self.embed.weight, std=size["d_model"] ** -0.5)

    def forward(self, inputs, targets):
        h = self.embed(inputs) + self.position
        for block in self.blocks:
            h = block(h)
        logits = F.linear(self.norm(h), self.embed.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))


def status_bytes(field):
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--device", type=torch.device, default="cpu")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model and its loss")
    parser.add_argument("--size", type=json.loads, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    size = options.size
    torch.manual_seed(1)
    before = status_bytes("VmRSS")
    model = LanguageModel(size).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, weight_decay=0.0)
    tokens = torch.randint(size["vocabulary_size"], (size["batch"], size["context_length"] + 1), device=options.device)

    forward = torch.compile(model) if options.compile else model
    if "RANK" in os.environ:  # one of several ranks
        torch.distributed.init_process_group("gloo")
        forward = nn.parallel.DistributedDataParallel(model)

    def step():
        with torch.autocast(options.device.type, dtype=torch.bfloat16, enabled=options.precision == "bf16"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if options.device.type != "cpu":
            torch.accelerator.synchronize(options.device)

    def memory():
        if options.device.type == "cpu":
            return status_bytes("VmHWM") - before
        return torch.accelerator.max_memory_allocated(options.device)

    baseline.answer(step, memory=memory)


if __name__ == "__main__":
    main()
