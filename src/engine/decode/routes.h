// The experts that tokens took, as an observer of the layers' choices sees them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "headroom/decode/engine.h"
#include "headroom/nn/observer.h"

namespace headroom::decode {

class RouteRecorder : public nn::Observer {
 public:
  bool wants(std::string_view name) const override;
  at::Tensor observe(std::string_view name, at::Tensor value) override;
  // Of the last n tokens of the one row that was read.
  std::vector<std::vector<TokenRoute>> of_last(std::int64_t n) const;

 private:
  std::vector<std::pair<std::string, std::vector<at::Tensor>>> choices_;  // in the order of the layers, [tokens, H, K]
};

}  // namespace headroom::decode
