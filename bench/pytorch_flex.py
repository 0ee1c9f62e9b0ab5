"""Times flex_attention on one thread in float32, for each formula: the forward pass against torch.compile of PyTorch's
version, and forward and backward, which PyTorch's version refuses on the CPU, against plain tensor operations. Prints the
median CPU time of both sides, which run in turn, and the median of their ratios (above 1: Headroom is faster).

    PYTHONPATH=build/release/python python bench/pytorch_flex.py [--repeats N]
"""

import argparse
import math
import statistics
import time

import torch
from torch.nn.attention import flex_attention as pytorch

from headroom_torch.functional import flex_attention

SIZES = [(8, 8, 256, 64), (4, 8, 1024, 64), (1, 4, 4096, 64)]  # batch, heads, tokens, d_head


def formulas(heads, tokens):
    """Returns a score function and a mask function for each name; None: the plain score."""
    slope, table = torch.rand(heads), torch.randn(heads, 128)
    document = torch.arange(tokens) // 200

    def causal(b, h, i, j):
        return j <= i

    return {"plain": (None, causal),
            "soft cap": (lambda s, b, h, i, j: 20 * torch.tanh(s / 20), causal),
            "ALiBi": (lambda s, b, h, i, j: s - slope[h] * (i - j), causal),
            "table of distances": (lambda s, b, h, i, j: s + table[h, (i - j).clamp(0, 127)], causal),
            "mask of documents": (None, lambda b, h, i, j: (j <= i) & (document[i] == document[j])),
            "window of 256": (None, lambda b, h, i, j: (j <= i) & (i - j < 256))}


def plain(q, k, v, score, mask):
    """Computes the same in plain tensor operations, which store all pairs of queries and keys."""
    b, h, i, j = (torch.arange(n).view([-1 if axis == at else 1 for at in range(4)])
                  for axis, n in enumerate((*q.shape[:3], k.shape[2])))
    s = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    s = s if score is None else score(s, b, h, i, j)
    return s.masked_fill(~mask(b, h, i, j), -math.inf).softmax(3) @ v


def seconds_of(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def compare(name, theirs, ours, repeats):
    """Runs both sides in turn and prints their times."""
    for warm_up in (theirs, ours):
        warm_up()
    pairs = [(seconds_of(theirs), seconds_of(ours)) for _ in range(repeats)]
    ratio = statistics.median(a / b for a, b in pairs)
    theirs, ours = (statistics.median(side) * 1e3 for side in zip(*pairs))
    print(f"{name:56} {theirs:8.2f} ms, Headroom {ours:8.2f} ms, ratio {ratio:.2f}", flush=True)


def measure(name, size, score, mask, repeats):
    b, h, t, e = size
    name = f"B{b} H{h} T{t} e{e} {name:18}"
    q, k, v = (torch.randn(b, h, t, e) for _ in range(3))
    block_mask = pytorch.create_block_mask(mask, None, None, t, t, device="cpu")
    torch.compiler.reset()
    compiled = torch.compile(pytorch.flex_attention)

    def forward(q=q, k=k, v=v):
        return flex_attention(q, k, v, score_mod=score, mask_mod=mask)

    with torch.no_grad():
        assert (forward() - compiled(q, k, v, score_mod=score, block_mask=block_mask)).abs().max() < 1e-4, name
        compare(f"{name} forward, PyTorch", lambda: compiled(q, k, v, score_mod=score, block_mask=block_mask), forward,
                repeats)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    gradient = torch.randn(b, h, t, e)
    compare(f"{name} with gradients, plain", lambda: torch.autograd.grad(plain(q, k, v, score, mask), leaves, gradient),
            lambda: torch.autograd.grad(forward(), leaves, gradient), max(repeats // 4, 3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=21)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for size in SIZES:
        for name, (score, mask) in formulas(size[1], size[2]).items():
            measure(name, size, score, mask, options.repeats)


if __name__ == "__main__":
    main()
