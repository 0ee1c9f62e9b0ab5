// c10d's side of a GlooGroup.
#pragma once

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>

#include "gloo_group.h"

namespace headroom::parallel {

// From here on tags are of what does not count as traffic.
inline constexpr std::uint32_t kUncounted = std::uint32_t{1} << 30;
inline constexpr auto kPatience = std::chrono::hours(12);

class Connection {
 public:
  c10::intrusive_ptr<c10d::Store> unprefixed;  // of all starts by the same torchrun
  c10::intrusive_ptr<c10d::Store> store;       // of this start
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::atomic<std::chrono::milliseconds> timeout{std::chrono::milliseconds(0)};
  std::mutex calls;  // one thread at a time hands work to Gloo, and counts
  GlooGroup::Traffic traffic;
};

}  // namespace headroom::parallel
