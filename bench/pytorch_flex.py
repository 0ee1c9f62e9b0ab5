"""The forward pass of flex_attention against torch.compile of PyTorch's, on one thread in float32: for each formula the
median CPU time of both, which run in turn, and the median of their ratios (PyTorch / Headroom; above 1 Headroom is faster).

PYTHONPATH=build/release/python python bench/pytorch_flex.py [--repeats N]
"""

import argparse
import statistics
import time

import torch
from torch.nn.attention import flex_attention as pytorch

from headroom_torch.functional import flex_attention

SIZES = [(8, 8, 256, 64), (4, 8, 1024, 64)]  # batch, heads, tokens, d_head


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


def seconds_of(run):
    start = time.process_time()
    run()
    return time.process_time() - start


def measure(name, size, score, mask, repeats):
    b, h, t, e = size
    q, k, v = (torch.randn(b, h, t, e) for _ in range(3))
    block_mask = pytorch.create_block_mask(mask, None, None, t, t, device="cpu")
    torch.compiler.reset()
    compiled = torch.compile(pytorch.flex_attention)
    sides = [lambda: compiled(q, k, v, score_mod=score, block_mask=block_mask),
             lambda: flex_attention(q, k, v, score_mod=score, mask_mod=mask)]
    with torch.no_grad():
        theirs, ours = (run() for run in sides)
        assert (ours - theirs).abs().max() < 1e-4, name
        for run in sides:
            run()
        pairs = [[seconds_of(run) for run in sides] for _ in range(repeats)]
    ratio = statistics.median(theirs / ours for theirs, ours in pairs)
    theirs, ours = (statistics.median(side) for side in zip(*pairs))
    print(f"B{b} H{h} T{t} e{e} {name:20} PyTorch {theirs * 1e3:8.2f} ms, Headroom {ours * 1e3:8.2f} ms, ratio {ratio:.2f}",
          flush=True)


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
