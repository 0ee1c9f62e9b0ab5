#include "safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "foundation/core/json_parser.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"

namespace headroom {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian and used where they lie");

namespace {

struct Spelling {
  DType dtype;
  std::string_view name;
  std::size_t size;
};
constexpr Spelling kSpellings[] = {
    {DType::f64, "F64", 8},         {DType::f32, "F32", 4},         {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},       {DType::i64, "I64", 8},         {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},         {DType::i8, "I8", 1},           {DType::u8, "U8", 1},
    {DType::u16, "U16", 2},         {DType::u32, "U32", 4},         {DType::u64, "U64", 8},
    {DType::f8_e4m3, "F8_E4M3", 1}, {DType::f8_e5m2, "F8_E5M2", 1}, {DType::c64, "C64", 8},
    {DType::boolean, "BOOL", 1}};

const Spelling& spelling_of(DType dtype) {
  return *std::find_if(std::begin(kSpellings), std::end(kSpellings),
                       [dtype](const Spelling& s) { return s.dtype == dtype; });
}

}  // namespace

std::size_t size_of(DType dtype) {
  return spelling_of(dtype).size;
}

std::string_view name_of(DType dtype) {
  return spelling_of(dtype).name;
}

namespace detail {

std::optional<DType> dtype_named(std::string_view name) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.name == name) {
      return spelling.dtype;
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> byte_size(DType dtype, const std::vector<std::int64_t>& shape) {
  // Signed: what fits here also fits StoredTensor::numel().
  std::int64_t numel = 1, bytes = 0;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(numel, extent, &numel)) {
      return std::nullopt;
    }
  }
  if (__builtin_mul_overflow(numel, static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string header_text(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata,
                        std::size_t room, const std::string& path) {
  std::string json;
  try {
    // Written entry by entry: looking up each new key in one large ordered object would take quadratic time.
    if (!metadata.empty()) {
      json = Json(kMetadataKey).dump() + ":" + Json(metadata).dump();
    }
    for (const Entry& entry : entries) {
      const Json described = {
          {"dtype", name_of(entry.dtype)}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
      json += (json.empty() ? "" : ",") + Json(entry.name).dump() + ":" + described.dump();
    }
  } catch (const Json::exception&) {
    fail("{}: cannot be written: a name or metadata is not valid UTF-8", path);
  }
  json = "{" + json + "}";
  if (room == 0) {
    room = (kHeaderStart + json.size() + 63) / 64 * 64;
  }
  if (kHeaderStart + json.size() > room || json.size() > kHeaderLimit) {
    fail("{}: cannot be written: the header takes {} bytes, there is room for {}", path, json.size(),
         std::min(room - kHeaderStart, kHeaderLimit));
  }
  const std::uint64_t length = room - kHeaderStart;
  std::string text(room, ' ');
  std::memcpy(text.data(), &length, sizeof length);
  std::memcpy(text.data() + kHeaderStart, json.data(), json.size());
  return text;
}

void require_consistent(const std::string& path, const std::string& name, DType dtype,
                        const std::vector<std::int64_t>& shape, std::size_t bytes) {
  const std::optional<std::uint64_t> expected = byte_size(dtype, shape);
  if (!expected || *expected != bytes) {
    fail("{}: tensor \"{}\" cannot be written: its shape and dtype do not take its {} bytes", path, printable(name),
         bytes);
  }
}

}  // namespace detail
}  // namespace headroom
