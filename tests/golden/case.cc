#include "case.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstring>

#include "headroom/core/files.h"
#include "headroom/core/safetensors.h"

namespace headroom::golden {
namespace {

at::Tensor to_tensor(const StoredTensor& stored, const std::filesystem::path& file, const std::string& name,
                     const GoldenOptions& options) {
  if (stored.dtype != DType::f32 && stored.dtype != DType::i32) {
    user_error("{}: {}: dtype must be F32 or I32, got {}", file.string(), name, name_of(stored.dtype));
  }
  const bool whole = stored.dtype == DType::i32;
  at::Tensor t = at::empty(stored.shape, whole ? at::kInt : at::kFloat);
  if (!stored.data.empty()) {
    std::memcpy(t.mutable_data_ptr(), stored.data.data(), stored.data.size());
  }
  return t.to(options.device, whole ? at::kLong : options.dtype);
}

double largest(const at::Tensor& t) {
  return t.numel() == 0 ? 0.0 : t.abs().max().item<double>();
}

// Records the tensor if its ratio of error to limit is the largest so far.
void keep_worst(CaseOutcome& outcome, const std::string& name, double error, double limit) {
  const double ratio = std::isfinite(error) ? error / limit : std::numeric_limits<double>::infinity();
  if (outcome.worst_tensor.empty() || ratio > outcome.error / outcome.limit) {
    outcome.worst_tensor = name;
    outcome.error = error;
    outcome.limit = limit;
  }
}

void compare_tensor(const std::string& name, const at::Tensor& got, const at::Tensor& expected, double scale,
                    double limit, CaseOutcome& outcome) {
  if (got.sizes() != expected.sizes()) {
    user_error("{}: the shape differs: expected {} elements, got {}", name, expected.numel(), got.numel());
  }
  const at::Tensor difference = got.detach().to(at::kDouble) - expected.to(at::kDouble);
  const double error = largest(difference);
  if (!at::isFloatingType(expected.scalar_type())) {
    keep_worst(outcome, name, error, 0.5);  // integers must be equal
    return;
  }
  keep_worst(outcome, name, scale > 0.0 ? error / scale : error, limit);
}

using Named = std::map<std::string, at::Tensor>;

// Returns the case's tensors whose names begin with `group`; the keys are the remainders of the names.
Named expected_under(const Case& c, const std::string& group) {
  Named found;
  for (auto it = c.tensors.lower_bound(group); it != c.tensors.end() && it->first.starts_with(group); ++it) {
    found.emplace(it->first.substr(group.size()), it->second);
  }
  return found;
}

// Appends rows of zeros for the rows of the parameter that the layer does not use.
at::Tensor with_rows(const at::Tensor& gradient, const at::Tensor& expected) {
  const std::int64_t missing = gradient.dim() == 2 && expected.dim() == 2 ? expected.size(0) - gradient.size(0) : 0;
  return missing > 0 ? at::constant_pad_nd(gradient, {0, 0, 0, missing}) : gradient;
}

void compare_gradients(const Case& c, const CaseResult& result, const at::Tensor& objective, const std::string& group,
                       CaseOutcome& outcome) {
  const Named expected = expected_under(c, group);
  if (expected.empty()) {
    return;
  }
  std::vector<at::Tensor> wanted;
  double g = 0.0;
  for (const auto& [name, value] : expected) {
    const auto found = result.leaves.find(name);
    if (found == result.leaves.end()) {
      user_error("{}{}: no input or parameter of this name", group, name);
    }
    wanted.push_back(found->second);
    g = std::max(g, largest(value));
  }
  const auto grads = torch::autograd::grad({objective}, wanted, {}, /*retain_graph=*/true, /*create_graph=*/false,
                                           /*allow_unused=*/true);
  std::size_t i = 0;
  for (const auto& [name, value] : expected) {
    const at::Tensor own = grads[i].defined() ? grads[i] : at::zeros_like(wanted[i]);
    const at::Tensor got = with_rows(own, value).reshape(value.sizes());
    const double scale = std::max(largest(value), c.grad_floor * g);
    compare_tensor(group + name, got, value, scale, c.limit_grad, outcome);
    ++i;
  }
}

double weight_of(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object.at(key).is_number() ? object.at(key).get<double>() : 0.0;
}

// Returns objective.out * sum(out * grad_out) + objective.loss * out.loss + objective.aux * aux.total.
at::Tensor objective_of(const Case& c, const CaseResult& result) {
  const Json objective = c.options.value("objective", Json());
  at::Tensor total;
  const auto add = [&](double weight, const at::Tensor& term) {
    if (weight != 0.0) {
      total = total.defined() ? total + weight * term : weight * term;
    }
  };
  if (weight_of(objective, "out") != 0.0) {
    add(weight_of(objective, "out"), (result.values.at("out") * c.at(result.prefix + "grad_out")).sum());
  }
  if (weight_of(objective, "loss") != 0.0) {
    add(weight_of(objective, "loss"), result.values.at("out.loss").sum());
  }
  if (weight_of(objective, "aux") != 0.0) {
    add(weight_of(objective, "aux"), result.values.at("aux.total").sum());
  }
  return total;
}

}  // namespace

std::int64_t Case::dim(const std::string& key) const {
  if (!dims.contains(key) || !dims.at(key).is_number_integer()) {
    user_error("{}: dims.{} must be an integer", name, key);
  }
  return dims.at(key).get<std::int64_t>();
}

const at::Tensor& Case::at(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  if (found == tensors.end()) {
    user_error("{}: tensor {} is missing", name, tensor);
  }
  return found->second;
}

Case read_case(const std::filesystem::path& file, const GoldenOptions& options) {
  const SafetensorsFile stored(file);
  std::filesystem::path description = file;
  if (!std::filesystem::exists(description.replace_extension(".json"))) {
    description = file;
  }
  const Json meaning =
      parse_json(description == file ? stored.metadata_at("case") : read_text_file(description), description.string());
  Case c;
  try {
    if (meaning.at("format") != 1) {
      user_error("{}: format must be 1, got {}", description.string(), meaning.at("format").dump());
    }
    c.name = meaning.at("case").get<std::string>();
    c.family = meaning.at("family").get<std::string>();
    c.dims = meaning.at("dims");
    c.options = meaning.at("options");
    const Json& tolerance = meaning.at("tolerance");
    c.limit_out = tolerance.at("out").get<double>();
    c.limit_grad = tolerance.value("grad", c.limit_out);
    c.grad_floor = tolerance.value("grad_floor", 0.0);
    if (options.dtype == at::kDouble) {
      c.limit_out = c.limit_grad = 3e-7;
    }
  } catch (const Json::exception& problem) {
    user_error(
        "{}: is not a reference case, {}; one has the keys format, case, family, dims, options and tolerance with out",
        description.string(), problem.what());
  }
  for (const auto& [name, tensor] : stored.tensors()) {
    c.tensors.emplace(name, to_tensor(tensor, file, name, options));
  }
  return c;
}

at::Tensor leaf(const Case& c, const std::string& name, CaseResult& result) {
  at::Tensor t = c.at(name).detach().clone();
  t.requires_grad_(true);
  result.leaves[name] = t;
  return t;
}

namespace {

// Loads a parameter that joins sparse and dense heads, which are two parameters of the case. The parameter becomes a
// function of these two leaves.
void load_two_parts(const Case& c, const nn::Parameter& parameter, CaseResult& result) {
  const at::AutoGradMode differentiable(true);
  const std::string name = parameter.name;
  const at::Tensor sparse = leaf(c, "param." + name, result), dense = leaf(c, "param.dense." + name, result);
  at::Tensor to = parameter.tensor;
  to.requires_grad_(false);
  to.copy_(at::cat({sparse, dense}, name == "w_o" ? 0 : 1));
}

}  // namespace

void load_parameters(const Case& c, nn::Parameters& parameters, CaseResult& result) {
  const at::NoGradGuard no_grad;
  std::size_t used = 0;
  for (const nn::Parameter& parameter : parameters.all()) {
    if (c.has("param.dense." + parameter.name)) {
      load_two_parts(c, parameter, result);
      used += 2;
      continue;
    }
    const at::Tensor& value = c.at("param." + parameter.name);
    if (value.squeeze().sizes() != parameter.tensor.squeeze().sizes()) {  // axes of size 1 may be missing
      user_error("{}: param.{}: the shape differs from the layer's", c.name, parameter.name);
    }
    parameter.tensor.copy_(value.view(parameter.tensor.sizes()));
    result.leaves["param." + parameter.name] = parameter.tensor;
    ++used;
  }
  for (const nn::Parameter& parameter : parameters.stored()) {
    if (!parameter.tensor.requires_grad() && c.has("state." + parameter.name + "_before")) {
      const at::Tensor& before = c.at("state." + parameter.name + "_before");
      parameter.tensor.copy_(before.view(parameter.tensor.sizes()));
    }
  }
  if (const std::size_t given = expected_under(c, "param.").size(); given != used) {
    user_error("{}: has {} parameters, the layer has {}", c.name, given, used);
  }
}

namespace {

// Cases have these names for head outputs [B, T, H, w]; the layers call them "o" [B, H, T, w].
bool is_head_output(std::string_view name) {
  return name == "gated" || name == "value_sum";
}

// Returns the layers' name for a case's intermediate value.
std::string own_value(const std::string& name) {
  return is_head_output(name) ? "o" : name == "count" ? "select.count" : name == "index" ? "chosen" : name;
}

}  // namespace

nn::Recorder recorder_of(const Case& c, Implementation implementation) {
  std::vector<std::string> names;
  for (const auto& [name, value] : expected_under(c, "mid.")) {
    const bool is_pair_value = std::find(nn::kPairValues.begin(), nn::kPairValues.end(), name) != nn::kPairValues.end();
    if (!is_pair_value || implementation == Implementation::reference) {
      names.push_back(own_value(name));
    }
  }
  return nn::Recorder(std::move(names));
}

void add_recorded(const nn::Recorder& recorder, CaseResult& result) {
  for (const auto& [name, value] : recorder.values) {
    if (name == "difference") {  // also head outputs
      result.values["mid.difference"] = value.transpose(1, 2);
    } else if (name == "o") {
      result.values["mid.gated"] = result.values["mid.value_sum"] = value.transpose(1, 2);
    } else if (name == "gate") {
      result.values["mid.gate"] = value.transpose(1, 2);  // [B, T, H, 1]
    } else {
      result.values["mid." + name] = value;
      if (name == "select.count") {
        result.values["mid.count"] = value;
      } else if (name == "chosen") {
        result.values["mid.index"] = value;
      }
    }
  }
}

void compare(const Case& c, const CaseResult& result, CaseOutcome& outcome) {
  for (const std::string group : {"out", "aux.", "mid.", "state."}) {
    for (const auto& [rest, expected] : expected_under(c, result.prefix + group)) {
      const std::string name = group + rest;
      const auto found = result.values.find(name);
      if (found != result.values.end()) {
        const at::Tensor got =
            found->second.numel() == expected.numel() ? found->second.reshape(expected.sizes()) : found->second;
        const double scale = at::isFloatingType(expected.scalar_type()) ? largest(expected) : 1.0;
        compare_tensor(result.prefix + name, got, expected, scale, c.limit_out, outcome);
      } else if (group != "mid." && !name.ends_with("_before")) {
        user_error("{}: {}{} was not computed", c.name, result.prefix, name);
      }
    }
  }
  if (const at::Tensor objective = objective_of(c, result); objective.defined()) {
    compare_gradients(c, result, objective, result.prefix + "grad.", outcome);
  }
  for (const auto& [name, value] : result.values) {
    if (name.starts_with("aux.") && name != "aux.total") {
      compare_gradients(c, result, value.sum(), result.prefix + "grad_aux." + name.substr(4) + ".", outcome);
    }
  }
}

}  // namespace headroom::golden
