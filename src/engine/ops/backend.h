// The fused versions of an operator: for each device a list in a stated order, of which the first that does not refuse
// runs. A backend adds itself where it is compiled in, and says itself what it does not take.
//
// An operator has one list, made at its first use: `static Backends<Inputs> all("name");` in a function.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "headroom/ops/choice.h"

namespace headroom::ops {

// Which numbers a backend takes.
using TakesType = bool (*)(at::ScalarType);
inline bool any_type(at::ScalarType /*type*/) {
  return true;
}
inline bool all_but_float64(at::ScalarType type) {
  return type != at::kDouble;
}
inline bool float32_or_bfloat16(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16;
}

// What can be said of a backend whatever its operator takes.
struct BackendTraits {
  std::string name;  // unique among an operator's backends for a device
  at::DeviceType device;
  int place;  // backends of lower ones are asked first, those of the same one in the order of their names
  TakesType takes;
  auto order() const { return std::tie(device, place, name); }
};

template <class Inputs, class Result = at::Tensor>
struct Backend {
  BackendTraits traits;
  std::string (*refusal)(const Inputs&);  // why it does not take inputs of these numbers; empty when it does
  Result (*run)(const Inputs&);
};

// An operator's list as the record of all operators has it.
class BackendList {
 public:
  explicit BackendList(std::string op);
  BackendList(const BackendList&) = delete;
  BackendList& operator=(const BackendList&) = delete;
  const std::string& op() const { return op_; }
  virtual std::vector<BackendTraits> traits() const = 0;
  // All but the one of that name refuse from now on, for tests of each by itself; none: as before.
  void restrict_to(std::string name) { only_ = std::move(name); }

 protected:
  ~BackendList();
  // Throws Error if one of that name is in the list.
  void check_new(const BackendTraits& added) const;
  bool asks(const BackendTraits& traits, at::Device device) const {
    return traits.device == device.type() && (only_.empty() || traits.name == only_);
  }

 private:
  std::string op_, only_;
};

// Of all operators in the process, by name.
std::vector<BackendList*> backend_lists();

// "float64 has the reference only"
std::string refusal_of(at::ScalarType type);

template <class Inputs, class Result = at::Tensor>
class Backends final : public BackendList {
 public:
  using Entry = Backend<Inputs, Result>;
  explicit Backends(std::string op) : BackendList(std::move(op)) {}

  // For the initialiser of a constant, to which the result is of no use.
  bool add(Entry backend) {
    check_new(backend.traits);
    const auto before = [](const Entry& a, const Entry& b) { return a.traits.order() < b.traits.order(); };
    entries_.insert(std::upper_bound(entries_.begin(), entries_.end(), backend, before), std::move(backend));
    return true;
  }

  // The backend to run; null for the reference. `by` decides: its device and its type of numbers. Throws UserError
  // with every backend's reason where fused was asked for and all refuse. The choice is recorded (choice.h).
  const Entry* choose(Implementation wanted, const at::Tensor& by, const Inputs& in) const {
    const Found found = wanted == Implementation::reference ? Found{} : find(by, in);
    ops::choose(op(), wanted, found.refusal, found.backend != nullptr ? found.backend->traits.name : "");
    return found.backend;
  }
  // The same for a step inside another operator, whose choice alone is recorded: null where all refuse.
  const Entry* choose_inside(Implementation wanted, const at::Tensor& by, const Inputs& in) const {
    return wanted == Implementation::reference ? nullptr : find(by, in).backend;
  }

  std::vector<BackendTraits> traits() const override {
    std::vector<BackendTraits> all;
    for (const Entry& entry : entries_) {
      all.push_back(entry.traits);
    }
    return all;
  }

 private:
  struct Found {
    const Entry* backend = nullptr;
    std::string refusal = {};
  };
  Found find(const at::Tensor& by, const Inputs& in) const {
    std::string refusals;
    for (const Entry& entry : entries_) {
      if (!asks(entry.traits, by.device())) {
        continue;
      }
      const bool takes = entry.traits.takes(by.scalar_type());
      const std::string refusal = takes ? entry.refusal(in) : refusal_of(by.scalar_type());
      if (refusal.empty()) {
        return {&entry};
      }
      refusals += (refusals.empty() ? "" : "; ") + entry.traits.name + ": " + refusal;
    }
    return {nullptr,
            refusals.empty() ? "tensors of device " + by.device().str() + " have the reference only" : refusals};
  }

  std::vector<Entry> entries_;  // in order
};

// The refusal of a backend that takes all inputs of its numbers.
template <class Inputs>
std::string never(const Inputs& /*in*/) {
  return {};
}

}  // namespace headroom::ops
