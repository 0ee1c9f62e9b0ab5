#include "metrics.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

#include "foundation/core/machine/system.h"

namespace headroom::serve {
namespace {

void head(std::string& page, std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(page), "# HELP headroom_{0} {2}\n# TYPE headroom_{0} {1}\n", name, type, help);
}

// Escapes the value of a label.
std::string label(std::string_view text) {
  std::string spelled;
  for (const char c : text) {
    spelled += c == '\n' ? "\\n" : c == '\\' || c == '"' ? std::string{'\\', c} : std::string(1, c);
  }
  return spelled;
}

// A metric that is reported per model.
struct ModelMetric {
  const char* name;
  const char* type;
  const char* help;
  std::int64_t decode::EngineCounts::*value;
};

constexpr ModelMetric kModelMetrics[] = {
    {"requests_waiting", "gauge", "Sequences waiting for a place in the batch.", &decode::EngineCounts::waiting},
    {"requests_running", "gauge", "Sequences in the batch.", &decode::EngineCounts::running},
    {"steps_total", "counter", "Forward passes.", &decode::EngineCounts::steps},
    {"sequences_finished_total", "counter", "Sequences finished.", &decode::EngineCounts::finished},
    {"prompt_tokens_total", "counter", "Prompt tokens.", &decode::EngineCounts::prompt_tokens},
    {"generated_tokens_total", "counter", "Generated tokens.", &decode::EngineCounts::generated_tokens},
    {"prefix_cache_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
     &decode::EngineCounts::prefix_tokens},
    {"prefix_cache_requests_total", "counter", "Sequences with a prefix in the prefix cache.",
     &decode::EngineCounts::prefix_requests},
    {"cache_numbers", "gauge", "Values allocated in the KV caches of running sequences.",
     &decode::EngineCounts::cache_elements},
    {"prefix_cache_held_tokens", "gauge", "Tokens in the prefix cache.", &decode::EngineCounts::prefix_held},
};

}  // namespace

void Histogram::add(double seconds) {
  std::size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) {
    ++bucket;
  }
  ++counts_[bucket];
  sum_ += seconds;
}

void Histogram::write(std::string& page, std::string_view name, std::string_view help) const {
  head(page, name, "histogram", help);
  const auto out = std::back_inserter(page);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    total += counts_[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(out, "headroom_{}_bucket{{le=\"{}\"}} {}\n", name, bound, total);
  }
  fmt::format_to(out, "headroom_{0}_sum {1}\nheadroom_{0}_count {2}\n", name, sum_, total);
}

void Metrics::answered(const std::string& route, int status) {
  const std::lock_guard lock(mutex_);
  ++answers_[{route, status}];
}

void Metrics::first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_.add(seconds);
}

void Metrics::completed(double seconds) {
  const std::lock_guard lock(mutex_);
  completion_.add(seconds);
}

void Metrics::abandoned() {
  const std::lock_guard lock(mutex_);
  ++abandoned_;
}

void Metrics::set_counts(const std::string& model, const decode::EngineCounts& counts) {
  const std::lock_guard lock(mutex_);
  counts_[model] = counts;
}

void Metrics::set_connections(std::int64_t open) {
  const std::lock_guard lock(mutex_);
  connections_ = open;
}

std::string Metrics::page() const {
  const std::lock_guard lock(mutex_);
  std::string page;
  const auto out = std::back_inserter(page);
  head(page, "http_requests_total", "counter", "HTTP answers by route and status.");
  for (const auto& [of, count] : answers_) {
    fmt::format_to(out, "headroom_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", label(of.first), of.second,
                   count);
  }
  for (const ModelMetric& metric : kModelMetrics) {
    head(page, metric.name, metric.type, metric.help);
    for (const auto& [model, counts] : counts_) {
      fmt::format_to(out, "headroom_{}{{model=\"{}\"}} {}\n", metric.name, label(model), counts.*metric.value);
    }
  }
  first_token_.write(page, "time_to_first_token_seconds", "From the arrival of a request to its first token.");
  completion_.write(page, "completion_seconds", "From the arrival of a request to the end of its last answer.");
  head(page, "requests_abandoned_total", "counter", "Completions abandoned by their client.");
  fmt::format_to(out, "headroom_requests_abandoned_total {}\n", abandoned_);
  head(page, "connections_open", "gauge", "Open connections.");
  fmt::format_to(out, "headroom_connections_open {}\n", connections_);
  head(page, "resident_memory_bytes", "gauge", "Resident memory of the process.");
  fmt::format_to(out, "headroom_resident_memory_bytes {}\n", resident_memory_bytes());
  return page;
}

}  // namespace headroom::serve
