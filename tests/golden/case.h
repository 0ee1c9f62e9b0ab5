// Declares reference cases, and the runner of each family of cases.
#pragma once

#include <map>
#include <optional>

#include "golden.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::golden {

struct Case {
  std::string name, family;
  Json dims, options;
  std::map<std::string, at::Tensor> tensors;  // floats in the requested dtype, I32 converted to int64
  double limit_out = 0.0, limit_grad = 0.0, grad_floor = 0.0;

  std::int64_t dim(const std::string& name) const;  // throws UserError
  bool has(const std::string& tensor) const { return tensors.contains(tensor); }
  const at::Tensor& at(const std::string& tensor) const;  // throws UserError
};

// Reads the tensors in `file`. The JSON file of the same name describes them; without such a file, the metadata "case"
// does. Throws UserError naming the file if it is not a reference case.
Case read_case(const std::filesystem::path& file, const GoldenOptions& options);

// The result of a runner. Keys are the case's names: "out", "aux.entropy", "mid.probs", "in.x", "param.w_q".
struct CaseResult {
  std::map<std::string, at::Tensor> values;  // differentiable results
  std::map<std::string, at::Tensor> leaves;  // inputs and parameters that have gradients
  std::string prefix;                        // prefix of the names in the case, such as "chunk0."
};

// Adds a tensor of the case to the leaves of `result` and returns the tensor.
at::Tensor leaf(const Case& c, const std::string& name, CaseResult& result);

// Sets all parameters to the tensors "param.<name>" and adds them to the leaves. Throws UserError unless the case has
// exactly these parameters and shapes.
void load_parameters(const Case& c, nn::Parameters& parameters, CaseResult& result);

// Records the values that the case has as "mid.<name>". Pair values [H, T, S] are recorded only if the reference runs.
nn::Recorder recorder_of(const Case& c, Implementation implementation);
void add_recorded(const nn::Recorder& recorder, CaseResult& result);

// Compares `result` with everything that the case expects under result.prefix; updates the worst tensor of `outcome`.
void compare(const Case& c, const CaseResult& result, CaseOutcome& outcome);

using Runner = std::vector<CaseResult> (*)(const Case& c, const nn::Context& context);

// Returns null for an unknown family.
Runner find_runner(const std::string& family);

bool is_attention_family(const std::string& family);
// Convert the case's options to Headroom's. Throw UserError for unknown options.
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
