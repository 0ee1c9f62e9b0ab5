// The ranks of a run, as seen from one of them.
#pragma once

#include <string>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

// An error that occurred on one rank and that all ranks throw. The message names the rank.
class SharedError : public Error {
 public:
  using Error::Error;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;                     // rank of this process, from 0
  virtual int size() const = 0;                     // number of ranks
  virtual std::string name_of(int rank) const = 0;  // "rank 2 (on machine7)"
  // All-gather: blocks until every rank has called it and returns the arguments of all ranks, in order of rank. Throws
  // Error naming a rank that does not respond.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;

  bool leads() const { return rank() == 0; }  // rank 0 writes files and logs
};

// Returns the group of a process that runs alone: rank 0 of 1.
inline ProcessGroup& alone() {
  class Alone : public ProcessGroup {
   public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    std::string name_of(int /*rank*/) const override { return "this process"; }
    std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  };
  static Alone only;
  return only;
}

}  // namespace headroom
