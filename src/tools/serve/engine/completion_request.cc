#include "completion_request.h"

#include <algorithm>
#include <limits>

#include "tools/serve/json_fields.h"

namespace headroom::serve {
namespace {

constexpr std::int64_t kMaxPrompts = 2048, kMaxAnswers = 128, kMaxLogprobs = 20;
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 256;
constexpr std::int64_t kMaxTokens = 1 << 24;

TokenIds token_ids(const SortedJson& list, const std::string& where) {
  if (list.empty()) {
    refuse_field(where, "must have at least one token");
  }
  TokenIds ids;
  ids.reserve(list.size());
  for (const SortedJson& id : list) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
      refuse_field(where, "must hold only token ids, got {}", describe(id));
    }
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

// A string, a list of token ids, or a list of either.
std::vector<Prompt> prompts_of(const SortedJson* value) {
  if (value == nullptr) {
    refuse_field("prompt", "is required");
  }
  if (value->is_string()) {
    return {value->get<std::string>()};
  }
  if (!value->is_array() || value->empty()) {
    refuse_field("prompt", "must be a string, a list of token ids, or a list of either, got {}", describe(*value));
  }
  if (value->front().is_number()) {
    return {token_ids(*value, "prompt")};
  }
  if (std::ssize(*value) > kMaxPrompts) {
    refuse_field("prompt", "must have at most {} prompts, got {}", kMaxPrompts, value->size());
  }
  if (!value->front().is_string() && !value->front().is_array()) {
    refuse_field("prompt[0]", "must be a string, a token id or a list of token ids, got {}", describe(value->front()));
  }
  std::vector<Prompt> prompts;
  const bool texts = value->front().is_string();
  for (const SortedJson& one : *value) {
    const std::string where = fmt::format("prompt[{}]", prompts.size());
    if (texts ? !one.is_string() : !one.is_array()) {
      refuse_field(where, "must be {} like the first, got {}", texts ? "a string" : "a list of token ids",
                   describe(one));
    }
    texts ? prompts.emplace_back(one.get<std::string>()) : prompts.emplace_back(token_ids(one, where));
  }
  return prompts;
}

std::vector<std::string> stops_of(const SortedJson* value) {
  if (value == nullptr) {
    return {};
  }
  const SortedJson list = value->is_array() ? *value : SortedJson::array({*value});
  if (list.size() > kMaxStops) {
    refuse_field("stop", "must have at most {} strings, got {}", kMaxStops, list.size());
  }
  std::vector<std::string> stops;
  for (const SortedJson& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > kMaxStopBytes) {
      refuse_field("stop", "must be a string of 1 to {} bytes, or a list of such strings, got {}", kMaxStopBytes,
                   describe(stop));
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

// Accepts any 64-bit integer, signed or unsigned.
std::optional<std::int64_t> seed_of(const SortedJson* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  if (!value->is_number_integer()) {
    refuse_field("seed", "must be an integer of 64 bits, got {}", describe(*value));
  }
  return value->is_number_unsigned() ? static_cast<std::int64_t>(value->get<std::uint64_t>())
                                     : value->get<std::int64_t>();
}

// Checks the fields of this API and its relatives for which only the value that changes nothing is supported.
void check_neutral(JsonFields& fields, const CompletionRequest& request) {
  const std::pair<const char*, SortedJson> neutral[] = {
      {"presence_penalty", 0},   {"frequency_penalty", 0},
      {"repetition_penalty", 1}, {"min_p", 0},
      {"min_tokens", 0},         {"suffix", ""},
      {"ignore_eos", false},     {"stop_token_ids", SortedJson::array()},
      {"best_of", request.n},    {"logit_bias", SortedJson::object()}};
  for (const auto& [name, only] : neutral) {
    if (const SortedJson* value = fields.take(name); value != nullptr && *value != only) {
      refuse(400, "unsupported_parameter", name, "{}: only {} is supported, got {}", name, only.dump(),
             describe(*value));
    }
  }
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body) {
  JsonFields fields(body);
  CompletionRequest request;
  request.model = fields.text("model").value_or("");
  request.prompts = prompts_of(fields.take("prompt"));
  request.max_tokens = fields.whole_number("max_tokens", 0, kMaxTokens).value_or(request.max_tokens);
  request.temperature = fields.number("temperature", 0.0, 2.0).value_or(request.temperature);
  request.top_p = fields.number("top_p", 0.0, 1.0).value_or(request.top_p);
  if (request.top_p == 0.0) {
    refuse_field("top_p", "must be above 0 and at most 1, got 0");
  }
  // -1 means all tokens, as 0 does.
  const auto top_k = fields.whole_number("top_k", -1, std::numeric_limits<std::int32_t>::max());
  request.top_k = std::max<std::int64_t>(0, top_k.value_or(request.top_k));
  request.seed = seed_of(fields.take("seed"));
  request.n = fields.whole_number("n", 1, kMaxAnswers).value_or(request.n);
  request.stop = stops_of(fields.take("stop"));
  request.echo = fields.flag("echo", false);
  request.logprobs = fields.whole_number("logprobs", 0, kMaxLogprobs).value_or(request.logprobs);
  request.stream = fields.flag("stream", false);
  request.routing = fields.flag("routing", false);
  if (const SortedJson* options = fields.take("stream_options"); options != nullptr) {
    if (!request.stream) {
      refuse_field("stream_options", "needs \"stream\": true");
    }
    JsonFields inner(*options, "stream_options.");
    request.include_usage = inner.flag("include_usage", false);
    inner.finish();
  }
  check_neutral(fields, request);
  fields.text("user");  // identifies an end user to OpenAI; nothing depends on it here
  fields.finish({"prompt_logprobs", "messages", "max_completion_tokens", "response_format", "tools", "store",
                 "metadata", "service_tier"});
  if (request.max_tokens == 0 && !request.echo) {
    refuse_field("max_tokens", "must be at least 1 without \"echo\": true, got 0");
  }
  return request;
}

}  // namespace headroom::serve
