#include "checkpoint_reader.h"

#include <ATen/Parallel.h>
#include <zlib.h>
#include <algorithm>
#include <cstring>
#include <utility>

#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/core/process_group.h"

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
  user_error("{}: tensor \"{}\" has type {}, which torch lacks", file.path().string(), name, name_of(type));
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
  void* data = const_cast<std::byte*>(stored.data.data());  // from_blob does not accept const pointers
  return at::from_blob(
      data, stored.shape, [file](void*) {}, at::TensorOptions(type));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

namespace {

// Computes blocks of a large tensor in parallel and combines them into the CRC of the whole.
uLong crc32_of(const at::Tensor& tensor) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 22;
  const auto* bytes = static_cast<const Bytef*>(tensor.const_data_ptr());
  const auto size = static_cast<std::int64_t>(tensor.nbytes()), blocks = ceil_div(size, kBlock);
  std::vector<uLong> sums(static_cast<std::size_t>(blocks));
  const auto length_of = [&](std::int64_t block) { return std::min(kBlock, size - block * kBlock); };
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      sums[static_cast<std::size_t>(block)] =
          crc32_z(0, bytes + block * kBlock, static_cast<z_size_t>(length_of(block)));
    }
  });
  uLong sum = crc32_z(0, nullptr, 0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    sum = crc32_combine(sum, sums[static_cast<std::size_t>(block)], static_cast<z_off_t>(length_of(block)));
  }
  return sum;
}

std::string hex(uLong sum) {
  return fmt::format("{:08x}", sum);
}

struct ShardChecksum {
  std::size_t begin = 0, size = 0;
  uLong crc = 0;
};

}  // namespace

std::string checksums_of(const std::vector<OwnedBytes>& owned) {
  return to_json_line(transformed(owned, [](const OwnedBytes& one) -> Json {
    return {one.name, one.begin, one.values.nbytes(), crc32_of(one.values)};
  }));
}

std::string join_checksums(const std::vector<std::string>& parts, const std::map<std::string, std::size_t>& sizes) {
  std::map<std::string, std::vector<ShardChecksum>> all;
  for (const std::string& part : parts) {
    for (const Json& one : parse_json(part, "checksums")) {
      all[one.at(0).get<std::string>()].push_back(
          {one.at(1).get<std::size_t>(), one.at(2).get<std::size_t>(), one.at(3).get<uLong>()});
    }
  }
  Json sums = Json::object();
  for (const auto& [name, size] : sizes) {
    std::vector<ShardChecksum>& shards = all[name];
    std::ranges::sort(shards, [](const ShardChecksum& a, const ShardChecksum& b) { return a.begin < b.begin; });
    uLong sum = crc32_z(0, nullptr, 0);
    std::size_t end = 0;
    bool once = !shards.empty();
    for (const ShardChecksum& shard : shards) {
      once = once && shard.begin == end;
      sum = crc32_combine(sum, shard.crc, static_cast<z_off_t>(shard.size));
      end += shard.size;
    }
    if (!once || end != size) {
      throw SharedError(fmt::format(
          "checkpoint: tensor \"{}\": every one of its {} bytes must be written by exactly one rank", name, size));
    }
    sums[name] = hex(sum);
  }
  return to_json_line(sums);
}

void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin) {
  const Json sums = parse_json(stored, origin + ": checksums");
  for (const auto& [name, tensor] : tensors) {
    if (!sums.is_object() || !sums.contains(name) || !sums.at(name).is_string()) {
      user_error("{}: tensor \"{}\" has no checksum", origin, name);
    }
    const std::string is = hex(crc32_of(tensor.contiguous())), was = sums.at(name).get<std::string>();
    if (is != was) {
      user_error("{}: tensor \"{}\" is damaged: its checksum is {}, but was {} when it was written", origin, name, is,
                 was);
    }
  }
}

}  // namespace headroom::store
