// How each family of cases is run.
#pragma once

#include <vector>

#include "case.h"
#include "headroom/config/model_options.h"

namespace headroom::eval::golden {

using Runner = std::vector<Result> (*)(const Case& c, const nn::Context& context);

// Null for a family without an implementation.
Runner find_runner(const std::string& family);

std::vector<Result> run_attention(const Case& c, const nn::Context& context);  // dense, switchhead
std::vector<Result> run_expert_ffn(const Case& c, const nn::Context& context);
std::vector<Result> run_language_model(const Case& c, const nn::Context& context);

// The options of an attention layer as this library's. Throws MisuseError for one it does not know.
config::AttentionOptions attention_options(const Case& c, const std::string& family, const Json& options);
config::MlpOptions mlp_options(const Case& c, const Json& ffn);
std::int64_t window_of(const Json& options);

}  // namespace headroom::eval::golden
