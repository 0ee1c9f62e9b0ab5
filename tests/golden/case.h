// Reference cases, and the runner of each family of cases.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "golden.h"
#include "headroom/config/model_options.h"
#include "headroom/core/json.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::golden {

struct Case {
  std::string name, family;
  Json dims, options;
  std::map<std::string, at::Tensor> tensors;  // floats in the requested dtype, I32 as int64
  double limit_out = 0.0, limit_grad = 0.0, grad_floor = 0.0;

  std::int64_t dim(const std::string& name) const;  // throws UserError
  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  const at::Tensor& at(const std::string& tensor) const;  // throws UserError
};

// `file`: the tensors of the case. The JSON file of the same name describes them; without such a file, the metadata
// "case" does. Throws UserError naming the file if it is not a reference case.
Case read_case(const std::filesystem::path& file, const GoldenOptions& options);

// What a runner returns. Names are those of the case: "out", "aux.entropy", "mid.probs", "in.x", "param.w_q".
struct CaseResult {
  std::map<std::string, at::Tensor> values;  // results, differentiable
  std::map<std::string, at::Tensor> leaves;  // inputs and parameters that have gradients
  std::string prefix;                        // of the names in the case: "chunk0."
};

// Adds a tensor of the case to the leaves of `result` and returns it.
at::Tensor leaf(const Case& c, const std::string& name, CaseResult& result);

// Sets all parameters to the tensors "param.<name>" and adds them to the leaves. Throws UserError if the case's
// parameters are not exactly these, or shapes differ.
void load_parameters(const Case& c, nn::Parameters& parameters, CaseResult& result);

// Records the values that the case has as "mid.<name>". Pair values [H, T, S] only if the reference runs.
nn::Recorder recorder_of(const Case& c, Implementation implementation);
void add_recorded(const nn::Recorder& recorder, CaseResult& result);

// Compares `result` with everything that the case expects under result.prefix; updates the worst tensor of `outcome`.
void compare(const Case& c, const CaseResult& result, CaseOutcome& outcome);

using Runner = std::vector<CaseResult> (*)(const Case& c, const nn::Context& context);

// Null for an unknown family.
Runner find_runner(const std::string& family);

bool is_attention_family(const std::string& family);
// The case's options as options of this library. Throw UserError for unknown ones.
config::AttentionOptions attention_options(const Case& c, const std::string& family, const Json& options);
nn::AttentionPlace place_of(const Case& c, const Json& attention);
config::MlpOptions mlp_options(const Case& c, const Json& ffn);
void set_stack(const Case& c, const Json& options, config::ModelOptions& model);  // layers, norms, attention, MLP
config::Activation activation_of(const Json& options, const char* key);

bool flag(const Json& options, const char* key);     // false if absent
bool is_null(const Json& options, const char* key);  // true if absent
// Throws UserError if the key is present with another value.
void require_among(const Json& options, const char* key, const std::vector<std::string>& names);

}  // namespace headroom::golden
