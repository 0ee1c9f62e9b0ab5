// How each family of cases is run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "case.h"
#include "headroom/config/model_options.h"
#include "headroom/nn/attention.h"

namespace headroom::golden {

using Runner = std::vector<Result> (*)(const Case& c, const nn::Context& context);

// Null for a family without an implementation.
Runner find_runner(const std::string& family);

std::vector<Result> run_attention(const Case& c, const nn::Context& context);  // dense to linear
std::vector<Result> run_expert_ffn(const Case& c, const nn::Context& context);
std::vector<Result> run_block(const Case& c, const nn::Context& context);
std::vector<Result> run_language_model(const Case& c, const nn::Context& context);
std::vector<Result> run_classifier(const Case& c, const nn::Context& context);
std::vector<Result> run_adaptive_softmax(const Case& c, const nn::Context& context);

// Whether attention_options() knows the family.
bool is_attention_family(const std::string& family);
// The options as this library's. Throw UserError for one it does not know.
config::AttentionOptions attention_options(const Case& c, const std::string& family, const Json& options);
nn::AttentionPlace place_of(const Case& c, const Json& attention);
bool masks_keys(const Json& attention);  // where there is a mask, keys that it names are invisible
std::optional<at::Tensor> valid_keys(const Case& c, const Json& attention);  // [B, S], where it masks any
config::MlpOptions mlp_options(const Case& c, const Json& ffn);
void set_stack(const Case& c, const Json& options, config::ModelOptions& model);  // layers, norms, attention, MLP
std::int64_t window_of(const Json& options);
config::Activation activation_of(const Json& options, const char* key);
bool flag(const Json& options, const char* key);                        // false where it is absent
bool is_null(const Json& options, const char* key);                     // or absent
double number(const Json& options, const char* key, double otherwise);  // where it is absent or null
// Refuses any other value under the key, where it is there.
void require_among(const Json& options, const char* key, const std::vector<std::string>& names);

}  // namespace headroom::golden
