// The processes that work on one thing together, as each of them sees the others.
#pragma once

#include <string>
#include <vector>

#include "headroom/core/error.h"

namespace headroom {

// What happened to one process and all of them throw; the message names the one.
class SharedError : public Error {
 public:
  using Error::Error;
};

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  virtual int rank() const = 0;                     // of this process, from 0
  virtual int size() const = 0;                     // of all
  virtual std::string name_of(int rank) const = 0;  // "rank 2 (on machine7)"
  // What every process hands in, in the order of ranks, once all have called it. Throws Error naming the process that
  // does not answer.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;

  bool leads() const { return rank() == 0; }  // the one that writes files and speaks
};

// A process by itself.
ProcessGroup& alone();

}  // namespace headroom
