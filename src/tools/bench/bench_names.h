// The names of the benchmarks, for programs that do not link torch.
#pragma once

namespace headroom::bench {

struct BenchName {
  const char* name;
  const char* about;
};

inline constexpr BenchName kBenchNames[] = {
    {"machine", "rates of matrix multiplications and of reading memory"},
    {"attention", "softmax attention, forward and backward, against the reference and PyTorch's kernel"},
    {"composition", "attention with composed heads against the reference and plain attention"},
    {"mixture", "two Gaussian keys and half the heads against the reference and plain attention"},
    {"linear_attention", "causal linear attention against the reference, softmax attention and the gated delta rule"},
    {"layers",
     "whole attention layers with each other paper's part, at the sizes of `attention`, against the reference"},
    {"neighbours",
     "the same layers against a plain one, gated delta layers against linear ones, latent against grouped ones"},
    {"expert_linear", "the grouped matmul against one dense matmul with the same MACs"},
    {"cross_entropy", "output layer and loss against the reference"},
    {"adamw", "the optimizer's step against the reference"},
    {"step", "a training step of a dense model against PyTorch's, eager and compiled"},
    {"steps", "the same of models of other sizes: the demo's, nanoGPT's for CPUs, GPT-2 124M"},
    {"switchhead", "a training step of SwitchHead 47M and of MoA against the dense model"},
    {"switchhead_262m", "the same of 262M"},
    {"dcformer", "training and decoding with the layers of DCFormer++ 405M against Transformer++"},
    {"distributed", "training steps of two ranks against one, and against PyTorch's"},
    {"decoding", "one token at a time against the memory bandwidth"},
    {"generation", "reading a prompt and generating tokens: whole models of any CONFIG"},
    {"evaluate", "time and memory of a batch's loss: whole models of any CONFIG"},
    {"serve", "eight requests at a time against one, against a plain loop and against transformers"},
    {"python", "a SwitchHead layer from C++, from Python, and in plain PyTorch code"},
    {"scaling", "one attention layer for more tokens, heads and experts (--plots draws charts)"},
    {"profile", "time of a training step by operator"},
    {"products", "matrix multiplications of a training step by oneDNN, torch and tiles"}};

}  // namespace headroom::bench
