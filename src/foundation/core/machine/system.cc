#include "system.h"

#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>

#include "headroom/core/error.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

// Only where tcmalloc is the process's malloc: hands what is free back to the system.
// NOLINTNEXTLINE(readability-identifier-naming): the name is the library's
extern "C" __attribute__((weak)) void MallocExtension_ReleaseFreeMemory();

namespace headroom {
namespace {

namespace fs = std::filesystem;

// A line such as "VmHWM:    1234 kB" of /proc/self/status in bytes, 0 where there is none.
std::int64_t status_bytes(std::string_view name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) {
      std::int64_t kilobytes = 0;
      std::istringstream(line.substr(name.size())) >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

std::string chosen_home;

static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");
std::atomic<bool> asked_to_stop{false};

constexpr int kRequestsToStop[] = {SIGINT, SIGTERM, SIGHUP};

extern "C" void remember_interrupt(int) {
  asked_to_stop = true;
  for (const int number : kRequestsToStop) {
    std::signal(number, SIG_DFL);
  }
}

}  // namespace

std::int64_t peak_memory_bytes() {
  if (const std::int64_t bytes = status_bytes("VmHWM:"); bytes > 0) {
    return bytes;
  }
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t resident_memory_bytes() {
  return status_bytes("VmRSS:");
}

void keep_freed_memory() {
#if defined(__GLIBC__)
  ::mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_TRIM_THRESHOLD, -1);  // never
#endif
}

void reset_peak_memory() {
  if (MallocExtension_ReleaseFreeMemory != nullptr) {
    MallocExtension_ReleaseFreeMemory();
  }
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // where the system refuses, the peak stays the one since the start
}

std::string allocator() {
  return MallocExtension_ReleaseFreeMemory != nullptr ? "tcmalloc" : "system";
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kRequestsToStop) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (number != SIGHUP || before.sa_handler != SIG_IGN) {
      ::sigaction(number, &action, nullptr);
    }
  }
}

bool interrupted() {
  return asked_to_stop;
}

void set_home_folder(const std::string& folder) {
  chosen_home = folder;
}

std::string home_folder() {
  if (!chosen_home.empty() && std::getenv("HEADROOM_HOME") == nullptr) {
    return chosen_home;
  }
  std::error_code error;
  if (const char* const home = std::getenv("HEADROOM_HOME"); home != nullptr && *home != '\0') {
    if (!fs::is_directory(fs::path(home) / "recipes", error)) {
      fail("HEADROOM_HOME: {}: has no folder recipes", home);
    }
    return home;
  }
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (fs::path folder = program.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    if (fs::is_directory(folder / "recipes", error)) {
      return folder.string();
    }
    if (folder == folder.root_path()) {
      break;
    }
  }
  fail("recipes: no such folder above {}: set HEADROOM_HOME to the folder that holds it", program.string());
}

std::string cache_folder() {
  const auto set = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  if (std::string cache = set("HEADROOM_CACHE"); !cache.empty()) {
    return cache;
  }
  if (const std::string cache = set("XDG_CACHE_HOME"); !cache.empty()) {
    return cache + "/headroom";
  }
  if (const std::string home = set("HOME"); !home.empty()) {
    return home + "/.cache/headroom";
  }
  if (const passwd* const user = ::getpwuid(::getuid()); user != nullptr && *user->pw_dir != '\0') {
    return std::string(user->pw_dir) + "/.cache/headroom";  // services run without HOME
  }
  fail("cache: no place for prepared data: set HEADROOM_CACHE to a folder");
}

}  // namespace headroom
