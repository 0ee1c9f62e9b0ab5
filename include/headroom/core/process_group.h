// The ranks of a run, as seen from one of them.
#pragma once

#include <string>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

// An error of one rank that all ranks throw; the message names the rank.
class SharedError : public Error {
 public:
  using Error::Error;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;                     // of this process, from 0
  virtual int size() const = 0;                     // number of ranks
  virtual std::string name_of(int rank) const = 0;  // "rank 2 (on machine7)"
  // All-gather: returns the argument of every rank, by rank, once all have called it. Throws Error naming a rank that
  // does not respond.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;

  bool leads() const { return rank() == 0; }  // the rank that writes files and logs
};

// The group of a process that is not one of several.
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
