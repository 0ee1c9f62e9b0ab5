// The group of a run's ranks, as seen from one rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

// An error that occurred on one rank and that all ranks throw. The message names the rank.
class SharedError : public Error {
 public:
  using Error::Error;
};

// A process that runs alone: rank 0 of 1. The subclass parallel::GlooGroup connects several processes.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  int rank() const { return rank_; }         // rank of this process, from 0
  int size() const { return size_; }         // number of ranks
  bool leads() const { return rank_ == 0; }  // rank 0 writes files and logs
  std::string name_of(int rank) const {      // "rank 2 (on machine7)"
    const auto place = static_cast<std::size_t>(rank);
    return place < hosts_.size() ? fmt::format("rank {} (on {})", rank, hosts_[place]) : fmt::format("rank {}", rank);
  }
  // All-gather: blocks until every rank has called it and returns the arguments of all ranks, in order of rank. Throws
  // Error naming a rank that does not respond.
  virtual std::vector<std::string> gather(const std::string& mine) { return {mine}; }

 protected:
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;  // by rank; empty if unknown
};

// Returns the group of a process that runs alone.
inline ProcessGroup& alone() {
  static ProcessGroup only;
  return only;
}

}  // namespace headroom
