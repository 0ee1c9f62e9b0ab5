// Counters for GET /metrics, in the text format of Prometheus.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/decode/engine.h"

namespace headroom::serve {

// A histogram of durations in seconds.
class Histogram {
 public:
  void add(double seconds);
  void write(std::string& page, std::string_view name, std::string_view help) const;

 private:
  static constexpr std::array<double, 12> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                                     0.5,   1.0,  2.5,   10.0, 60.0, 600.0};
  std::array<std::int64_t, kBounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

// Thread-safe.
class Metrics {
 public:
  void answered(const std::string& route, int status);
  void first_token(double seconds);  // seconds since the request arrived
  void completed(double seconds);
  void abandoned();
  void set_counts(const std::string& model, const decode::EngineCounts& counts);
  void set_connections(std::int64_t open);

  std::string page() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::int64_t> answers_;
  Histogram first_token_, completion_;
  std::int64_t abandoned_ = 0, connections_ = 0;
  std::map<std::string, decode::EngineCounts> counts_;
};

}  // namespace headroom::serve
