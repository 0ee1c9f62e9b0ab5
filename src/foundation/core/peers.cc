#include "headroom/core/peers.h"

namespace headroom {
namespace {

class Alone : public Peers {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string name_of(int /*rank*/) const override { return "this process"; }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
};

}  // namespace

Peers& alone() {
  static Alone only;
  return only;
}

}  // namespace headroom
