"""Replaces the attention of a plain PyTorch GPT with SwitchHead; only the lines marked with + change.

    python examples/nanogpt_swap.py            # trains both for 200 steps on this file's text
"""

import argparse
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

import headroom_torch  # +

D, LAYERS, HEADS, T = 96, 2, 4, 64


class PlainAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, 2))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def switchhead():  # +
    return headroom_torch.Attention(  # +
        d_model=D, n_layers=LAYERS, n_heads=1, d_head=48, context_length=T,  # + a quarter as many attention matrices
        projection="experts", experts=["v", "o"], n_experts=4, top_k=2, position="none")  # +


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.norm_1, self.attention, self.norm_2 = nn.LayerNorm(D), attention(), nn.LayerNorm(D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.token, self.place = nn.Embedding(256, D), nn.Embedding(T, D)
        self.blocks = nn.Sequential(*(Block(attention) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, 256)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def train(name, attention, steps):
    torch.manual_seed(1)
    text = torch.tensor(list(pathlib.Path(__file__).read_bytes()))
    model = GPT(attention)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        begin = torch.randint(len(text) - T - 1, (8,))
        batch = torch.stack([text[i:i + T + 1] for i in begin])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{name:12} {sum(p.numel() for p in model.parameters()):8} parameters, loss {loss:.2f} after {steps} steps")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    train("plain", PlainAttention, steps)
    train("SwitchHead", switchhead, steps)  # +
