#include "stored_tensor.h"

#include <cstring>
#include <utility>

#include "headroom/core/error.h"

namespace headroom::store {
namespace {

constexpr std::pair<DType, at::ScalarType> kTypes[] = {
    {DType::f64, at::kDouble}, {DType::f32, at::kFloat},   {DType::f16, at::kHalf},  {DType::bf16, at::kBFloat16},
    {DType::i64, at::kLong},   {DType::i32, at::kInt},     {DType::i16, at::kShort}, {DType::i8, at::kChar},
    {DType::u8, at::kByte},    {DType::boolean, at::kBool}};

at::ScalarType scalar_type(DType type, const SafetensorsFile& file, const std::string& name) {
  for (const auto& [stored, scalar] : kTypes) {
    if (stored == type) {
      return scalar;
    }
  }
  user_error("{}: tensor \"{}\" has type {}, which no checkpoint holds", file.path().string(), name, name_of(type));
}

}  // namespace

DType stored_type(at::ScalarType type, const std::string& name) {
  for (const auto& [stored, scalar] : kTypes) {
    if (scalar == type) {
      return stored;
    }
  }
  fail("checkpoint: tensor \"{}\" has type {}, which cannot be stored", name, c10::toString(type));
}

at::Tensor view_of(const std::shared_ptr<const SafetensorsFile>& file, const std::string& name,
                   const StoredTensor& stored) {
  const at::ScalarType type = scalar_type(stored.dtype, *file, name);
  if (reinterpret_cast<std::uintptr_t>(stored.data.data()) % size_of(stored.dtype) != 0 || stored.data.empty()) {
    const at::Tensor copy = at::empty(stored.shape, at::TensorOptions(type));
    if (!stored.data.empty()) {
      std::memcpy(copy.data_ptr(), stored.data.data(), stored.data.size());
    }
    return copy;
  }
  void* data = const_cast<std::byte*>(stored.data.data());  // from_blob knows no read-only memory
  return at::from_blob(
      data, stored.shape, [file](void*) {}, at::TensorOptions(type));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace headroom::store
