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
    {"layers", "whole attention layers, plain and with each other paper's part, against the reference"},
    {"expert_linear", "the grouped matmul against one dense matmul with the same MACs"},
    {"cross_entropy", "output layer and loss against the reference"},
    {"step", "a training step of dense models of four sizes against PyTorch's, eager and compiled"},
    {"switchhead", "a training step of SwitchHead and of MoA, 47M and 262M, against the dense model"},
    {"dcformer", "training and decoding with the layers of DCFormer++ 405M against Transformer++"},
    {"ranks", "training steps of two ranks against one, and against PyTorch's"},
    {"generation", "reading a prompt and generating tokens: whole models of any CONFIG"},
    {"evaluate", "time and memory of a batch's loss: whole models of any CONFIG"},
    {"serving", "eight requests at a time against one, against a plain loop and against transformers"},
    {"profile", "time of a training step by operator"}};

}  // namespace headroom::bench
