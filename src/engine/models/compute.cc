#include "headroom/models/compute.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "foundation/core/machine/system.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::models {
namespace {

std::string listed(const std::vector<at::Device>& all) {
  std::string text;
  for (const at::Device& device : all) {
    text += (text.empty() ? "" : ", ") + device.str();
  }
  return text;
}

// Returns the initialised allocator that counts the device's memory; null for the CPU.
c10::DeviceAllocator* counting_allocator(at::Device device) {
  if (device.is_cpu()) {
    return nullptr;
  }
  at::globalContext().lazyInitDevice(device.type());
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

}  // namespace

std::vector<at::Device> devices() {
  std::vector<at::Device> all = {at::kCPU};
  if (at::hasCUDA()) {
    for (int i = 0; i < at::detail::getCUDAHooks().deviceCount(); ++i) {
      all.emplace_back(at::kCUDA, static_cast<at::DeviceIndex>(i));
    }
  }
  return all;
}

at::Device resolve(const std::string& device) {
  if (!config::is_device(device)) {
    user_error("device {}: must be auto, cpu, cuda or cuda:<n>", device);
  }
  const std::vector<at::Device> all = devices();
  if (device == "auto") {
    return all.size() > 1 ? all[1] : all[0];
  }
  const std::string name = device == "cuda" ? "cuda:0" : device;
  const auto found = std::ranges::find_if(all, [&](const at::Device& d) { return d.str() == name; });
  if (found != all.end()) {
    return *found;
  }
  if (!at::globalContext().hasCUDART()) {
    user_error("device {}: this torch is built without CUDA; install a CUDA build of torch, or use device cpu", device);
  }
  user_error("device {}: not available, torch finds {}", device, listed(all));
}

config::Precision resolve(config::Precision precision, at::Device device) {
  if (precision != config::Precision::automatic) {
    return precision;
  }
  const bool gains = !device.is_cpu() || cpu_has("amx_bf16") || cpu_has("avx512_bf16");
  return gains ? config::Precision::bf16 : config::Precision::fp32;
}

void synchronize(at::Device device) {
  if (!device.is_cpu()) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
}

std::int64_t peak_memory_bytes(at::Device device) {
  if (c10::DeviceAllocator* allocator = counting_allocator(device)) {
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return allocator->getDeviceStats(device.index()).allocated_bytes.at(kAll).peak;
  }
  return headroom::peak_memory_bytes();
}

void reset_peak_memory(at::Device device) {
  headroom::reset_peak_memory();
  if (c10::DeviceAllocator* allocator = counting_allocator(device)) {
    allocator->resetPeakStats(device.index());
  }
}

void set_threads(std::int64_t threads) {
  at::set_num_threads(threads > 0 ? static_cast<int>(threads) : own_cores());
}

nn::Context make_context(const config::TrainOptions& options, at::Device device) {
  nn::Context context{.implementation = options.implementation};
  if (resolve(options.precision, device) == config::Precision::bf16) {
    context.compute_dtype = at::kBFloat16;
  }
  return context;
}

}  // namespace headroom::models
