"""Forward and backward pass of a SwitchHead layer, as headroom_torch's module or in plain PyTorch. Answers yardstick.py's
lines.
"""

import argparse
import json
import sys

import torch
from torch import nn

import yardstick


class PlainSwitchHead(nn.Module):
    """Value and output projections from banks of experts, one expert at a time (SwitchHead Eq. 7-10)."""

    def __init__(self, size):
        super().__init__()
        self.top_k, self.d_head = size["top_k"], size["d_head"]
        d, h, x, e = size["d_model"], size["n_heads"], size["n_experts"], size["d_head"]
        weight = lambda *shape: nn.Parameter(torch.randn(shape) * shape[-2] ** -0.5)  # noqa: E731
        self.w_q, self.w_k = weight(h, d, e), weight(h, d, e)
        self.w_v, self.w_o = weight(h, x, d, e), weight(h, x, e, d)
        self.select_in, self.select_out = weight(h, d, x), weight(h, d, x)

    def gates(self, x, select):
        scores = torch.einsum("btd,hdx->bthx", x, select)
        weight, index = scores.topk(self.top_k)
        return torch.zeros_like(scores).scatter(-1, index, weight.sigmoid())

    def values(self, x, gates):
        b, t, h, n = gates.shape
        rows, flat = x.flatten(0, 1), gates.flatten(0, 1)
        out = torch.zeros(b * t, h, self.d_head)
        for head in range(h):
            for expert in range(n):
                taken = flat[:, head, expert].nonzero().squeeze(1)
                y = rows[taken] @ self.w_v[head, expert] * flat[taken, head, expert, None]
                out = out.index_put((taken, torch.tensor(head)), y, accumulate=True)
        return out.view(b, t, h, -1).transpose(1, 2)

    def outputs(self, o, gates):
        b, h, t, e = o.shape
        rows, flat = o.transpose(1, 2).reshape(b * t, h, e), gates.flatten(0, 1)
        out = torch.zeros(b * t, self.w_o.shape[-1])
        for head in range(h):
            for expert in range(flat.shape[2]):
                taken = flat[:, head, expert].nonzero().squeeze(1)
                y = rows[taken, head] @ self.w_o[head, expert] * flat[taken, head, expert, None]
                out = out.index_add(0, taken, y)
        return out.view(b, t, -1)

    def forward(self, x):
        q, k = (torch.einsum("btd,hde->bhte", x, w) for w in (self.w_q, self.w_k))
        v = self.values(x, self.gates(x, self.select_in))
        o = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outputs(o, self.gates(x, self.select_out))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--package", required=True, help="the folder that headroom_torch lies in")
    parser.add_argument("--layer", choices=["headroom", "plain"], required=True)
    parser.add_argument("--size", type=json.loads, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    size = options.size
    if options.layer == "headroom":
        sys.path.insert(0, options.package)
        import headroom_torch
        shape = {key: size[key] for key in ("d_model", "n_heads", "d_head", "n_experts", "top_k", "context_length")}
        layer = headroom_torch.Attention(projection="experts", experts=["v", "o"], **shape)
    else:
        layer = PlainSwitchHead(size)
    x = torch.randn(size["batch"], size["context_length"], size["d_model"], requires_grad=True)
    grad = torch.randn_like(x)
    leaves = [x, *layer.parameters()]

    yardstick.answer(lambda: torch.autograd.grad(layer(x), leaves, grad))


if __name__ == "__main__":
    main()
