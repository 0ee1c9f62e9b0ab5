#include "checksums.h"

#include <ATen/Parallel.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "headroom/core/process_group.h"

namespace headroom::store {
namespace {

// Pieces of a large tensor are summed side by side and their sums joined: the result is that of the whole.
uLong crc32_of(const at::Tensor& tensor) {
  constexpr std::int64_t kPiece = std::int64_t{1} << 22;
  const auto* bytes = static_cast<const Bytef*>(tensor.const_data_ptr());
  const auto size = static_cast<std::int64_t>(tensor.nbytes()), pieces = (size + kPiece - 1) / kPiece;
  std::vector<uLong> sums(static_cast<std::size_t>(pieces));
  const auto length_of = [&](std::int64_t piece) { return std::min(kPiece, size - piece * kPiece); };
  at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      sums[static_cast<std::size_t>(piece)] =
          crc32_z(0, bytes + piece * kPiece, static_cast<z_size_t>(length_of(piece)));
    }
  });
  uLong sum = crc32_z(0, nullptr, 0);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    sum = crc32_combine(sum, sums[static_cast<std::size_t>(piece)], static_cast<z_off_t>(length_of(piece)));
  }
  return sum;
}

std::string written(uLong sum) {
  return fmt::format("{:08x}", sum);
}

// Earlier versions joined the equal copies of a buffer that all ranks held as if they followed each other.
bool is_repeated(uLong sum, std::size_t size, const std::string& was) {
  constexpr int kMostRanks = 1024;
  uLong joined = sum;
  for (int copies = 2; copies <= kMostRanks; ++copies) {
    joined = crc32_combine(joined, sum, static_cast<z_off_t>(size));
    if (written(joined) == was) {
      return true;
    }
  }
  return false;
}

struct Sum {
  std::size_t begin = 0, size = 0;
  uLong crc = 0;
};

}  // namespace

std::string checksums_of(const std::vector<Held>& held) {
  Json sums = Json::array();
  for (const Held& one : held) {
    sums.push_back({one.name, one.begin, one.bytes.nbytes(), crc32_of(one.bytes)});
  }
  return to_json_line(sums);
}

std::string join_checksums(const std::vector<std::string>& parts, const std::map<std::string, std::size_t>& sizes) {
  std::map<std::string, std::vector<Sum>> all;
  for (const std::string& part : parts) {
    for (const Json& one : parse_json(part, "checksums")) {
      all[one.at(0).get<std::string>()].push_back(
          {one.at(1).get<std::size_t>(), one.at(2).get<std::size_t>(), one.at(3).get<uLong>()});
    }
  }
  Json sums = Json::object();
  for (const auto& [name, size] : sizes) {
    std::vector<Sum>& pieces = all[name];
    std::sort(pieces.begin(), pieces.end(), [](const Sum& a, const Sum& b) { return a.begin < b.begin; });
    uLong sum = crc32_z(0, nullptr, 0);
    std::size_t end = 0;
    bool once = !pieces.empty();
    for (const Sum& piece : pieces) {
      once = once && piece.begin == end;
      sum = crc32_combine(sum, piece.crc, static_cast<z_off_t>(piece.size));
      end += piece.size;
    }
    if (!once || end != size) {
      throw SharedError(fmt::format(
          "checkpoint: tensor \"{}\": every one of its {} bytes must be written by exactly one rank", name, size));
    }
    sums[name] = written(sum);
  }
  return to_json_line(sums);
}

void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::set<std::string>& buffers,
                      const std::string& stored, const std::string& origin) {
  const Json sums = parse_json(stored, origin + ": checksums");
  bool warned = false;
  for (const auto& [name, tensor] : tensors) {
    if (!sums.is_object() || !sums.contains(name) || !sums.at(name).is_string()) {
      user_error("{}: has no checksum of tensor \"{}\"", origin, name);
    }
    const uLong sum = crc32_of(tensor.contiguous());
    const std::string is = written(sum), was = sums.at(name).get<std::string>();
    if (is != was && buffers.contains(name) && is_repeated(sum, tensor.nbytes(), was)) {
      if (!warned) {
        log_warning(
            "{}: its soft-E priors are intact, but an earlier version wrote wrong checksums of them when it trained on "
            "several ranks; `--resume` writes checkpoints with correct ones",
            origin);
      }
      warned = true;
    } else if (is != was) {
      user_error("{}: tensor \"{}\" is damaged: its checksum is {}, it was written with {}", origin, name, is, was);
    }
  }
}

}  // namespace headroom::store
