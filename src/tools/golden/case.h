// One reference case, read and ready to be run by a family's runner.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "golden.h"
#include "headroom/core/json.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::golden {

struct Case {
  std::string name, family;
  Json dims, options;
  std::map<std::string, at::Tensor> tensors;  // floats in the dtype asked for, I32 as int64
  double limit_out = 0.0, limit_grad = 0.0, grad_floor = 0.0;

  std::int64_t dim(const std::string& name) const;  // throws UserError
  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  const at::Tensor& at(const std::string& tensor) const;  // throws UserError
};

Case read_case(const std::filesystem::path& json, const Options& options);

// What a runner hands back. Names are the case's: "out", "aux.entropy", "mid.probs", "in.x", "param.w_q".
struct Result {
  std::map<std::string, at::Tensor> values;  // results, differentiable
  std::map<std::string, at::Tensor> leaves;  // what to differentiate for
  std::string prefix;                        // "chunk0." in front of the case's names
};

// A tensor of the case as a leaf that wants a gradient, noted in `result`.
at::Tensor leaf(const Case& c, const std::string& name, Result& result);

// Fills every parameter from "param.<name>" and notes it as a leaf. Throws UserError when the case lacks one, has one
// too many, or shapes differ.
void load_parameters(const Case& c, nn::Parameters& parameters, Result& result);

// Records what the case expects as "mid.<name>"; of the values of every pair nothing where the fused operators run.
nn::Recorder recorder_of(const Case& c, Implementation implementation);
void add_recorded(const nn::Recorder& recorder, Result& result);

// Compares everything the case expects under result.prefix with what came out, and keeps the worst in `outcome`.
void compare(const Case& c, const Result& result, Outcome& outcome);

}  // namespace headroom::golden
