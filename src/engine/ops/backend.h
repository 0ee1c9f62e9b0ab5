// The fused implementations (backends) of an operator: an ordered list for each device. The first backend that does not
// refuse the inputs runs; if all refuse, the reference does. Backends register themselves:
//
//   Backends<Inputs>& my_backends() { static Backends<Inputs> all("my_operator"); return all; }
//   const Registration kMyOperatorOnCpu(my_backends(), {{"name", at::kCPU, 0, any_type}, refusal, run});
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "foundation/core/transformed.h"
#include "headroom/ops/choice.h"

namespace headroom::ops {

// Which dtypes a backend supports.
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

struct BackendTraits {
  std::string name;  // unique among an operator's backends for a device
  at::DeviceType device;
  int place;  // lower places are asked first, equal places in the order of their names
  TakesType takes;
  auto order() const { return std::tie(device, place, name); }
};

template <class Inputs, class Result = at::Tensor>
struct Backend {
  BackendTraits traits;
  std::string (*refusal)(const Inputs&);  // why it does not support inputs of a supported dtype; empty if it does
  Result (*run)(const Inputs&);
};

// The part of a list that does not depend on the operator's types.
class BackendList {
 public:
  explicit BackendList(std::string op);
  BackendList(const BackendList&) = delete;
  BackendList& operator=(const BackendList&) = delete;
  const std::string& op() const { return op_; }
  virtual std::vector<BackendTraits> traits() const = 0;
  // For tests: until the next call, every other backend refuses. Empty: no restriction.
  void restrict_to(std::string name) { only_ = std::move(name); }

 protected:
  ~BackendList();
  // Throws Error if the list has a backend of that name for the device.
  void check_new(const BackendTraits& added) const;
  bool asks(const BackendTraits& traits, at::Device device) const {
    return traits.device == device.type() && (only_.empty() || traits.name == only_);
  }

 private:
  std::string op_, only_;
};

// All lists in the process, sorted by operator name.
std::vector<BackendList*> backend_lists();

// Returns a message such as "float64 is not supported".
std::string refusal_of(at::ScalarType type);

template <class Inputs, class Result = at::Tensor>
class Backends final : public BackendList {
 public:
  using Entry = Backend<Inputs, Result>;
  explicit Backends(std::string op) : BackendList(std::move(op)) {}

  void add(Entry backend) {
    check_new(backend.traits);
    const auto before = [](const Entry& a, const Entry& b) { return a.traits.order() < b.traits.order(); };
    entries_.insert(std::ranges::upper_bound(entries_, backend, before), std::move(backend));
  }

  // Returns the backend to run, null for the reference. `by` determines device and dtype. Throws UserError with every
  // backend's reason if fused was requested and all refuse. Counts the choice (choice.h).
  const Entry* choose(Implementation wanted, const at::Tensor& by, const Inputs& in) const {
    const Found found = wanted == Implementation::reference ? Found{} : find(by, in);
    ops::choose(op(), wanted, found.refusal, found.backend != nullptr ? found.backend->traits.name : "");
    return found.backend;
  }
  // The same for a step inside another operator: neither counted nor an error if all refuse.
  const Entry* choose_internal(Implementation wanted, const at::Tensor& by, const Inputs& in) const {
    return wanted == Implementation::reference ? nullptr : find(by, in).backend;
  }

  std::vector<BackendTraits> traits() const override { return transformed(entries_, &Entry::traits); }

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
    return {nullptr, refusals.empty() ? "no backend for device " + by.device().str() : refusals};
  }

  std::vector<Entry> entries_;  // in order
};

// The refusal() of a backend that supports all inputs of its dtypes.
template <class Inputs>
std::string never_refuses(const Inputs& /*in*/) {
  return {};
}

// Adds a backend to its operator's list when it is constructed; at namespace scope in the backend's file.
struct Registration {
  template <class Inputs, class Result>
  Registration(Backends<Inputs, Result>& list, typename Backends<Inputs, Result>::Entry backend) {
    list.add(std::move(backend));
  }
};

}  // namespace headroom::ops
