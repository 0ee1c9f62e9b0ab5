#include "system.h"

#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <thread>

#include "headroom/core/error.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

// Null unless tcmalloc is the process's malloc.
// NOLINTNEXTLINE(readability-identifier-naming): tcmalloc's name
extern "C" __attribute__((weak)) void MallocExtension_ReleaseFreeMemory();

namespace headroom {
namespace {

namespace fs = std::filesystem;

// Returns the value of a line such as "VmHWM:    1234 kB" in /proc/self/status, in bytes; 0 if there is no such line.
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

std::string home_set;

static_assert(std::atomic<int>::is_always_lock_free, "a signal handler sets it");
std::atomic<int> signal_caught{0};  // the first request to stop; 0: none

std::atomic<bool> ends_soon{false};

constexpr int kRequestsToStop[] = {SIGINT, SIGTERM, SIGHUP};
constexpr int kBySignal = 128;  // added to a signal's number in an exit status

extern "C" void remember_interrupt(int signal_number) {
  signal_caught = signal_number;
  for (const int number : kRequestsToStop) {
    std::signal(number, SIG_DFL);
  }
  constexpr unsigned kSeconds = 3;
  if (ends_soon) {
    ::alarm(kSeconds);
  }
}

extern "C" void end_unsaved(int) {
  constexpr std::string_view kText = "\nheadroom: interrupted in the first step; nothing has been saved\n";
  (void)!::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(kBySignal + signal_caught);
}

}  // namespace

void in_parallel(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed = n;
  std::exception_ptr error;
  const auto run = [&] {
    for (std::size_t i = next++; i < n; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        next = n;
        if (i < failed) {  // calls start in order, so the lowest failing index has started
          failed = i;
          error = std::current_exception();
        }
      }
    }
  };
  {
    std::vector<std::jthread> workers;
    for (std::size_t t = 1; t < std::min(threads, n); ++t) {
      workers.emplace_back(run);
    }
    run();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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
  ::mallopt(M_TRIM_THRESHOLD, -1);  // never trim
#endif
}

void reset_peak_memory() {
  if (MallocExtension_ReleaseFreeMemory != nullptr) {
    MallocExtension_ReleaseFreeMemory();
  }
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // on failure, the peak since the start remains
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
  return signal_caught != 0;
}

void end_soon_if_interrupted(bool ends) {
  std::signal(SIGALRM, end_unsaved);
  ends_soon = ends;
  ::alarm(0);
}

int interrupt_status() {
  return kBySignal + (interrupted() ? signal_caught.load() : SIGINT);
}

void set_home_folder(const std::string& folder) {
  home_set = folder;
}

std::string home_folder() {
  if (!home_set.empty() && std::getenv("HEADROOM_HOME") == nullptr) {
    return home_set;
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

std::string with_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return home != nullptr && (path == "~" || path.starts_with("~/")) ? home + path.substr(1) : path;
}

std::string cache_folder() {
  const auto set = [](const char* name) -> std::string {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : with_home(value);
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
