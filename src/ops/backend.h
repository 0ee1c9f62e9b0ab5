// The fused versions of an operator, one for a kind of device. A backend adds itself where it is compiled in, and says
// itself what it does not take.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "headroom/ops/choice.h"

namespace headroom::ops {

template <class Inputs, class Result = at::Tensor>
struct Backend {
  std::string (*refusal)(const Inputs&);  // why it does not take them; empty when it does
  Result (*run)(const Inputs&);
};

template <class Inputs, class Result>
std::map<at::DeviceType, Backend<Inputs, Result>>& backends() {
  static std::map<at::DeviceType, Backend<Inputs, Result>> all;
  return all;
}

// For the initialiser of a constant, which is of no use otherwise.
template <class Inputs, class Result>
bool add_backend(at::DeviceType device, const Backend<Inputs, Result>& backend) {
  return backends<Inputs, Result>().emplace(device, backend).second;
}

// What to run, by choose(); null for the reference. Throws MisuseError with the reason where fused was asked for and
// does not apply.
template <class Inputs, class Result = at::Tensor>
const Backend<Inputs, Result>* choose_backend(std::string_view op, Implementation wanted, at::Device device,
                                              const Inputs& in) {
  const auto& all = backends<Inputs, Result>();
  const auto found = all.find(device.type());
  std::string refusal;
  if (found == all.end()) {
    refusal = "tensors of device " + device.str() + " have the reference only";
  } else if (wanted != Implementation::reference) {
    refusal = found->second.refusal(in);
  }
  return choose(op, wanted, refusal) == Implementation::fused ? &found->second : nullptr;
}

}  // namespace headroom::ops
