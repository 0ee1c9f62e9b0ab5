#include "headroom/core/process_group.h"

namespace headroom {
namespace {

class Alone : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name_of(int /*rank*/) const override { return "this process"; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
};

}  // namespace

ProcessGroup& alone() {
  static Alone only;
  return only;
}

}  // namespace headroom
