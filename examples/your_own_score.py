"""Implements a new attention score in plain tensor operations, with the engine's expert projections and head
composition.

The score is the cosine of query and key with a learned temperature (the line marked "the score"). Values and outputs come
from banks of experts, and heads are composed after the softmax by a static map.

    python examples/your_own_score.py
"""

import torch
from torch import nn

import headroom_torch.functional as hf


class CosineAttention(nn.Module):
    def __init__(self, d_model=32, n_heads=2, d_head=16, n_experts=4, top_k=2):
        super().__init__()
        self.n_heads, self.d_head, self.top_k = n_heads, d_head, top_k
        bank = lambda *shape: nn.Parameter(torch.randn(shape) * shape[-2] ** -0.5)  # noqa: E731
        self.w_q, self.w_k = bank(d_model, n_heads * d_head), bank(d_model, n_heads * d_head)
        self.w_v, self.w_o = bank(n_heads * n_experts, d_model, d_head), bank(n_heads * n_experts, d_head, d_model)
        self.select = bank(d_model, n_heads * n_experts)
        self.temperature = nn.Parameter(torch.tensor(10.0))
        self.mix = nn.Parameter(torch.randn(1, n_heads, n_heads) * 0.1)

    def experts(self, rows):
        """Returns the routed experts of each token and head, and their gates, both [N, H, K]."""
        scores = hf.linear(rows, self.select).unflatten(1, (self.n_heads, -1))
        gate, index = scores.topk(self.top_k)
        first = torch.arange(self.n_heads).view(1, -1, 1) * scores.shape[2]  # a head's first expert in the bank
        return index + first, gate.sigmoid()

    def forward(self, x):
        b, t, d = x.shape
        rows = x.reshape(b * t, d)
        index, gate = self.experts(rows)
        heads = lambda y: y.view(b, t, self.n_heads, self.d_head).transpose(1, 2)  # noqa: E731
        q, k = heads(hf.linear(rows, self.w_q)), heads(hf.linear(rows, self.w_k))
        v = heads(hf.expert_linear(rows, self.w_v, index, gate))
        scores = self.temperature * nn.functional.normalize(q, dim=-1) @ nn.functional.normalize(k, dim=-1).mT  # the score
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        weights = hf.head_map(scores.masked_fill(hidden, -torch.inf).softmax(-1), hf.HeadMap(fixed=self.mix))
        o = (weights @ v).transpose(1, 2).reshape(b * t, self.n_heads, self.d_head)
        return hf.expert_linear(o, self.w_o, index, gate, sum_heads=True).view(b, t, d)


class CosineByTheEngine(CosineAttention):
    """Computes the same score with the fused operator: a cosine is a dot product of unit vectors."""

    def forward(self, x):
        b, t, d = x.shape
        rows = x.reshape(b * t, d)
        index, gate = self.experts(rows)
        heads = lambda y: y.view(b, t, self.n_heads, self.d_head).transpose(1, 2)  # noqa: E731
        unit = lambda w: nn.functional.normalize(heads(hf.linear(rows, w)), dim=-1)  # noqa: E731
        v = heads(hf.expert_linear(rows, self.w_v, index, gate))
        o = hf.attention(self.temperature * unit(self.w_q), unit(self.w_k), v, post=hf.HeadMap(fixed=self.mix))
        o = o.transpose(1, 2).reshape(b * t, self.n_heads, self.d_head)
        return hf.expert_linear(o, self.w_o, index, gate, sum_heads=True).view(b, t, d)


if __name__ == "__main__":
    torch.manual_seed(1)
    plain, fused = CosineAttention(), CosineByTheEngine()
    fused.load_state_dict(plain.state_dict())
    x = torch.randn(2, 20, 32)
    results = []
    for layer in (plain, fused):
        y = layer(x)
        y.square().sum().backward()
        results.append([y.detach(), *(p.grad for p in layer.parameters())])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    print(f"custom score: result and {len(results[0]) - 1} gradients equal the fused operator's")
