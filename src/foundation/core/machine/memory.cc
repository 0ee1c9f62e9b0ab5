// How much memory there is for this process.
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include "system.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::int64_t sum(std::int64_t a, std::int64_t b) {
  return a > kUnlimited - b ? kUnlimited : a + b;
}

struct Machine {
  std::int64_t memory = kUnlimited, swap = 0;
};

// MemTotal and SwapTotal of /proc/meminfo, in bytes.
Machine machine() {
  std::ifstream file("/proc/meminfo");
  Machine found;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == "MemTotal:") {
      found.memory = kilobytes * 1024;
    } else if (name == "SwapTotal:") {
      found.swap = kilobytes * 1024;
    }
  }
  return found;
}

// A file that holds a number of bytes, or "max".
std::int64_t limit_in(const fs::path& path, std::int64_t absent) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) {
    return absent;
  }
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() ? bytes : kUnlimited;
}

// The folders of the control groups that this process is in, by controller ("": version 2).
std::map<std::string, std::string> groups() {
  std::map<std::string, std::string> all;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // number:controllers:folder
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    std::istringstream controllers(line.substr(first + 1, second - first - 1));
    const std::string folder = line.substr(second + 1);
    if (first + 1 == second) {
      all[""] = folder;
    }
    for (std::string name; std::getline(controllers, name, ',');) {
      all[name] = folder;
    }
  }
  return all;
}

// The least that the group in `folder` below `root`, or one around it, grants.
template <class Limit>
std::int64_t least(const fs::path& root, const std::string& folder, Limit&& limit) {
  std::int64_t granted = limit(root);  // a container sees its own group there
  fs::path group = root;
  for (const fs::path& part : fs::path(folder).relative_path()) {
    group /= part;
    granted = std::min(granted, limit(group));
  }
  return granted;
}

// `swap`: what the machine has.
std::int64_t of_groups(std::int64_t swap) {
  const fs::path root = "/sys/fs/cgroup";
  const auto of_version_2 = [swap](const fs::path& group) {
    return sum(limit_in(group / "memory.max", kUnlimited), std::min(swap, limit_in(group / "memory.swap.max", swap)));
  };
  const auto of_version_1 = [swap](const fs::path& group) {
    return std::min(sum(limit_in(group / "memory.limit_in_bytes", kUnlimited), swap),
                    limit_in(group / "memory.memsw.limit_in_bytes", kUnlimited));
  };
  std::int64_t granted = kUnlimited;
  for (const auto& [controller, folder] : groups()) {
    if (controller.empty()) {
      granted = std::min(granted, least(root, folder, of_version_2));
    } else if (controller == "memory") {
      granted = std::min(granted, least(root / "memory", folder, of_version_1));
    }
  }
  return granted;
}

std::int64_t of_limits() {
  struct rlimit limit {};
  const bool known = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited)) : kUnlimited;
}

}  // namespace

std::int64_t memory_limit_bytes() {
  const Machine here = machine();
  const std::int64_t bytes = std::min({sum(here.memory, here.swap), of_groups(here.swap), of_limits()});
  return bytes == kUnlimited ? 0 : bytes;
}

}  // namespace headroom
