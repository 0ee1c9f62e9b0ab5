// The cores, CPU features and memory that this process may use.
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "headroom/core/error.h"
#include "system.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace headroom {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::atomic<int> processes_that_share = 1;

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the logical CPUs on which the scheduler may run this process.
std::vector<int> allowed_cpus() {
  for (int size = 1024; size <= (1 << 20); size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size);
    const std::size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set);
    std::vector<int> cpus;
    const bool done = sched_getaffinity(0, bytes, set) == 0;  // fails while the set is too small
    for (int cpu = 0; done && cpu < size; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) {
        cpus.push_back(cpu);
      }
    }
    CPU_FREE(set);
    if (done) {
      return cpus;
    }
  }
  return {};
}

// Calls visit(folder, version) for each control group of this process with the given controller ("cpu", "memory"), and
// for its ancestors. In a container, the paths are the host's and may not exist; the root of the mount is then the
// container's group.
template <class Visit>
void visit_groups(const std::string& controller, Visit visit) {
  std::ifstream groups("/proc/self/cgroup");  // "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1)
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) {
      continue;
    }
    const std::filesystem::path root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    std::filesystem::path below = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;; below = below.parent_path()) {
      visit(root / below, controllers.empty() ? 2 : 1);
      if (below.empty()) {
        break;
      }
    }
  }
}

// Returns the CPU time per second that a control group may use; infinity if unlimited.
double quota_of(const std::filesystem::path& group) {
  std::istringstream v2(first_line(group / "cpu.max"));
  double quota = 0, period = 0;
  if (v2 >> quota >> period && period > 0) {  // "max" is not parsed: no limit
    return quota / period;
  }
  std::istringstream v1(first_line(group / "cpu.cfs_quota_us") + " " + first_line(group / "cpu.cfs_period_us"));
  if (v1 >> quota >> period && quota > 0 && period > 0) {  // -1: no limit
    return quota / period;
  }
  return INFINITY;
}

double cpu_quota() {
  double quota = INFINITY;
  visit_groups("cpu", [&](const std::filesystem::path& group, int) { quota = std::min(quota, quota_of(group)); });
  return quota;
}

std::int64_t sum(std::int64_t a, std::int64_t b) {
  return a > kUnlimited - b ? kUnlimited : a + b;
}

// Returns MemTotal or SwapTotal from /proc/meminfo, in bytes.
std::int64_t meminfo_bytes(const std::string& wanted, std::int64_t absent) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    std::int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == wanted) {
      return kilobytes * 1024;
    }
  }
  return absent;
}

// Reads a file that contains a number of bytes or "max".
std::int64_t limit_in(const std::filesystem::path& path, std::int64_t absent) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) {
    return absent;
  }
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return error == std::errc() ? bytes : kUnlimited;
}

// Returns the bytes of memory and swap that the control groups permit. `swap`: the machine's swap.
std::int64_t group_memory_limit(std::int64_t swap) {
  std::int64_t granted = kUnlimited;
  visit_groups("memory", [&](const std::filesystem::path& group, int version) {
    granted =
        std::min(granted, version == 2 ? sum(limit_in(group / "memory.max", kUnlimited),
                                             std::min(swap, limit_in(group / "memory.swap.max", swap)))
                                       : std::min(sum(limit_in(group / "memory.limit_in_bytes", kUnlimited), swap),
                                                  limit_in(group / "memory.memsw.limit_in_bytes", kUnlimited)));
  });
  return granted;
}

std::int64_t address_space_limit() {
  struct rlimit limit {};
  const bool known = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? static_cast<std::int64_t>(std::min<rlim_t>(limit.rlim_cur, kUnlimited)) : kUnlimited;
}

}  // namespace

int physical_cores() {
  std::set<std::string> cores;  // a core is identified by the list of its hardware threads
  for (const int cpu : allowed_cpus()) {
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    std::string threads = first_line(topology + "core_cpus_list");
    if (threads.empty()) {
      threads = first_line(topology + "thread_siblings_list");  // before Linux 5.3
    }
    cores.insert(threads.empty() ? fmt::format("{}", cpu) : threads);
  }
  const double limit = std::min(static_cast<double>(cores.size()), std::floor(cpu_quota()));
  return std::max(1, static_cast<int>(limit));
}

void share_cores(int processes) {
  processes_that_share = processes;
}

int own_cores() {
  return std::max(1, physical_cores() / processes_that_share);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  struct utsname system {};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::string_view cpu_vendor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") ? "AMD" : __builtin_cpu_is("intel") ? "Intel" : "another";
#else
  return "another";
#endif
}

std::string_view simd_limit() {
  const char* const value = std::getenv("HEADROOM_SIMD");
  const std::string_view limit = value == nullptr ? "" : value;
  return limit == "avx2" || limit == "baseline" ? limit : "";
}

#if defined(__x86_64__)

std::vector<std::string> cpu_features() {
  __builtin_cpu_init();
  std::vector<std::string> features;
  // These checks include OS support for saving the wide registers.
  if (__builtin_cpu_supports("avx2") && simd_limit() != "baseline") {
    features.emplace_back("avx2");
  }
  if (!simd_limit().empty()) {
    return features;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f");
  if (avx512) {
    features.emplace_back("avx512f");
  }
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0) {
    features.emplace_back("avx512_bf16");
  }
  // AMX requires bf16 and tile support, and an OS that saves both parts of the tile state (XCR0 bits 17 and 18).
  const bool xsave = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 27 & 1) != 0;
  if (xsave && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0) {
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low >> 17 & 3) == 3) {
      features.emplace_back("amx_bf16");
    }
  }
  return features;
}

#else

std::vector<std::string> cpu_features() {
  return {};
}

#endif

bool cpu_has(const std::string& feature) {
  static const std::vector<std::string> kFeatures = cpu_features();
  return std::ranges::find(kFeatures, feature) != kFeatures.end();
}

std::int64_t memory_limit_bytes() {
  const std::int64_t memory = meminfo_bytes("MemTotal:", kUnlimited), swap = meminfo_bytes("SwapTotal:", 0);
  const std::int64_t bytes = std::min({sum(memory, swap), group_memory_limit(swap), address_space_limit()});
  return bytes == kUnlimited ? 0 : bytes;
}

}  // namespace headroom
