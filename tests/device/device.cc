// What torch asks of a device besides computing: that it is there, how many there are, its streams (there is one).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "memory.h"

namespace headroom::pretended_cuda {
namespace {

const c10::Device kDevice(c10::DeviceType::CUDA, 0);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return kDevice; }
  c10::Device getDevice() const override { return kDevice; }
  c10::Stream getStream(c10::Device /*device*/) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device /*device*/) const override { return stream(); }
  c10::Stream getNewStream(c10::Device /*device*/, int /*priority*/) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream /*other*/) const noexcept override { return stream(); }
  void record(void** /*event*/, const c10::Stream& /*on*/, const c10::DeviceIndex /*device*/,
              const c10::EventFlag /*flag*/) const override {}
  void block(void* /*event*/, const c10::Stream& /*on*/) const override {}
  bool queryEvent(void* /*event*/) const override { return true; }
  void synchronizeEvent(void* /*event*/) const override { count_wait("an event"); }
  void synchronizeStream(const c10::Stream& /*on*/) const override { count_wait("a stream"); }
  void synchronizeDevice(const c10::DeviceIndex /*device*/) const override { count_wait("the device"); }

 private:
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

[[maybe_unused]] const bool kHasMemory = (c10::SetAllocator(c10::DeviceType::CUDA, allocator()), true);

}  // namespace
}  // namespace headroom::pretended_cuda

namespace at {

struct PretendedHooks final : CUDAHooksInterface {
  explicit PretendedHooks(CUDAHooksArgs /*none*/) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex /*device*/) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex /*device*/) const override {}
  DeviceIndex exchangeDevice(DeviceIndex /*device*/) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex /*device*/) const override { return 0; }
  // Numbers are drawn by the host's generators, of which this is one more.
  const Generator& getDefaultGenerator(DeviceIndex /*device*/) const override {
    static const auto* one = new Generator(make_generator<CPUGeneratorImpl>());
    return *one;
  }
  Allocator* getCUDADeviceAllocator() const override { return headroom::pretended_cuda::allocator(); }
  std::string showConfig() const override { return "a pretended device: computed on the host"; }
  void deviceSynchronize(DeviceIndex /*device*/) const override { headroom::pretended_cuda::count_wait("the device"); }
};

C10_REGISTER_CLASS(CUDAHooksRegistry, CUDAHooks, PretendedHooks)

}  // namespace at
