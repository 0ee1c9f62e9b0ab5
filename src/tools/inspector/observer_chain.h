// Two observers of one pass: what the first makes of a value is what the second sees.
#pragma once

#include <string_view>
#include <utility>

#include "headroom/nn/observer.h"

namespace headroom::inspect {

class ObserverChain : public nn::Observer {
 public:
  // `first` may be null.
  ObserverChain(nn::Observer* first, nn::Observer& second) : first_(first), second_(second) {}
  bool wants(std::string_view name) const override {
    return (first_ != nullptr && first_->wants(name)) || second_.wants(name);
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    if (first_ != nullptr && first_->wants(name)) {
      value = first_->observe(name, std::move(value));
    }
    return second_.wants(name) ? second_.observe(name, std::move(value)) : value;
  }

 private:
  nn::Observer* first_;
  nn::Observer& second_;
};

}  // namespace headroom::inspect
