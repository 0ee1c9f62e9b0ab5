// Implements the emulated device's operators. One boxed kernel runs the same operator on the host, on the same memory
// at its host address. Only allocation and three operators at the end have separate kernels.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <cstring>
#include <set>
#include <unordered_map>

#include "emulated_cuda.h"

namespace headroom::emulated_cuda::operators {

// The shape of these operators' results depends on input values, so the host must wait for the device.
const std::set<std::string> kWaiting = {"aten::_local_scalar_dense",
                                        "aten::equal",
                                        "aten::nonzero",
                                        "aten::masked_select",
                                        "aten::bincount",
                                        "aten::_unique2",
                                        "aten::unique_dim",
                                        "aten::unique_consecutive",
                                        "aten::multinomial",
                                        "aten::histc",
                                        "aten::repeat_interleave",
                                        "aten::is_nonzero"};

// With AMX, the host's bf16 matmul reads the memory between rows, which holds NaN; a GPU's matmul does not. Its inputs
// are therefore made contiguous.
const std::set<std::string> kProducts = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Maps one call's arguments to the host, and its results back to the device.
class HostCall {
 public:
  explicit HostCall(const c10::OperatorHandle& op)
      : name_(op.schema().name()), copies_(name_ == "aten::copy_" || name_ == "aten::_copy_from") {}

  c10::IValue argument(const c10::IValue& value, bool written) {
    if (value.isTensor()) {
      const at::Tensor host = on_host(value.toTensor(), written);
      return !written && kProducts.contains(name_) && host.scalar_type() == at::kBFloat16 ? host.contiguous() : host;
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& t : value.toTensorVector()) {
        all.push_back(on_host(t, written));
      }
      return all;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const std::optional<at::Tensor>& t : value.toOptionalTensorVector()) {
        mask_ = mask_ || (t && t->defined() && (t->scalar_type() == at::kBool || t->scalar_type() == at::kByte));
        all.push_back(t ? std::optional(on_host(*t, written)) : std::nullopt);
      }
      return all;
    }
    if (value.isDevice()) {
      return c10::Device(c10::DeviceType::CPU);
    }
    TORCH_CHECK(!value.isGenerator() || !value.toGenerator().defined(), "emulated CUDA: ", name_,
                ": a generator of the host's for a tensor of the device");
    return value;
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) {
      return on_device(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& t : value.toTensorVector()) {
        all.push_back(on_device(t));
      }
      return all;
    }
    return value;
  }

  // Applies the call's changes of shape and storage to the device tensors.
  void settle() {
    for (const auto& [device, host] : pairs_) {
      if (const at::Storage& now = host.storage(); now.data() != emulated_cuda::on_host(device.storage().data())) {
        device.storage().set_data_ptr_noswap(moved(now));
        device.storage().unsafeGetStorageImpl()->set_nbytes(now.nbytes());
      }
      if (device.sizes() != host.sizes() || device.strides() != host.strides()) {
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
  }

  void count(const c10::OperatorHandle& op, bool non_blocking) const {
    const std::vector<c10::Argument>& results = op.schema().returns();
    const bool view = !results.empty() && results[0].alias_info() != nullptr && !writes(results[0]);
    if (view || name_ == "aten::resize_") {
      return;
    }
    count_operator(name_);
    const bool to_host = copies_ && host_written_, to_device = copies_ && host_read_;
    if (to_host || (to_device && !non_blocking)) {
      count_wait(to_host ? "a copy to the host" : "a copy to the device");
    } else if (kWaiting.contains(name_) || (mask_ && name_ == "aten::_index_put_impl_")) {
      count_wait(name_);
    }
  }

  bool copies() const { return copies_; }

 private:
  at::Tensor on_host(const at::Tensor& t, bool written) {
    if (!t.defined()) {
      return t;
    }
    if (!t.is_cuda()) {
      TORCH_CHECK(copies_ || (t.dim() == 0 && !written), "emulated CUDA: ", name_, ": tensors of cuda:0 and of ",
                  t.device(), " in one call");
      (written ? host_written_ : host_read_) = true;
      passed_.push_back(t);
      return t;
    }
    for (const auto& [device, host] : pairs_) {
      if (device.is_same(t)) {
        return host;
      }
    }
    at::Tensor host = shaped(at::detail::make_tensor<c10::TensorImpl>(
                                 storage_on_host(t), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype()),
                             t);
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) {
      host.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    pairs_.emplace_back(t, host);
    return host;
  }

  // Each device storage has one host storage, so that operators can detect overlap.
  at::Storage storage_on_host(const at::Tensor& t) {
    const at::Storage& device = t.storage();
    const auto found = hosts_.find(device.unsafeGetStorageImpl());
    if (found != hosts_.end()) {
      return found->second;
    }
    void* address = emulated_cuda::on_host(device.data());
    at::Storage host(at::Storage::use_byte_size_t(), device.nbytes(), at::DataPtr(address, at::kCPU),
                     at::GetAllocator(at::kCPU), /*resizable=*/true);
    hosts_.emplace(device.unsafeGetStorageImpl(), host);
    devices_.emplace(host.unsafeGetStorageImpl(), t);
    return host;
  }

  at::Tensor on_device(const at::Tensor& t) const {
    if (!t.defined()) {
      return t;
    }
    for (const at::Tensor& same : passed_) {
      if (same.is_same(t)) {
        return t;
      }
    }
    for (const auto& [device, host] : pairs_) {
      if (host.is_same(t)) {
        return device;
      }
    }
    const auto view_of = devices_.find(t.storage().unsafeGetStorageImpl());
    if (view_of != devices_.end()) {
      const at::Tensor& base = view_of->second;
      return shaped(at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, at::Storage(base.storage()),
                                                             base.key_set(), t.dtype()),
                    t);
    }
    at::Storage storage(at::Storage::use_byte_size_t(), t.storage().nbytes(), moved(t.storage()), allocator(),
                        /*resizable=*/true);
    return shaped(at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), t.dtype()),
                  t);
  }

  static at::DataPtr moved(const at::Storage& host) {
    at::DataPtr memory = allocator()->allocate(host.nbytes());
    if (host.nbytes() > 0) {
      std::memcpy(emulated_cuda::on_host(memory.get()), host.data(), host.nbytes());
    }
    return memory;
  }

  static at::Tensor shaped(at::Tensor t, const at::Tensor& like) {
    t.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
    return t;
  }

  std::string name_;
  bool copies_, mask_ = false, host_written_ = false, host_read_ = false;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;       // device tensor and host tensor
  std::vector<at::Tensor> passed_;                             // arguments that are host tensors
  std::unordered_map<c10::StorageImpl*, at::Storage> hosts_;   // key: device storage
  std::unordered_map<c10::StorageImpl*, at::Tensor> devices_;  // key: host storage
};

void on_host_instead(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto& arguments = op.schema().arguments();
  HostCall call(op);
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    value = call.argument(value, writes(arguments[i]));
  }
  call.count(op, call.copies() && stack->back().isBool() && stack->back().toBool());
  op.callBoxed(stack);
  for (std::size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    (*stack)[i] = call.result((*stack)[i]);
  }
  call.settle();
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> /*device*/, std::optional<bool> /*pin_memory*/,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                         std::optional<bool> /*pin_memory*/) {
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(dtype));
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_host_instead>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  // These operators have CUDA kernels, but the fallbacks in a CPU build do not support this device.
  for (const char* name : {"copy_", "_foreach_norm.Scalar", "native_layer_norm"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_host_instead>());
  }
}

}  // namespace headroom::emulated_cuda::operators
