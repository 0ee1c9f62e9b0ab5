#include "foundation/core/machine/system.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "scratch_folder.h"

namespace headroom::system_test {

namespace fs = std::filesystem;

// Sets an environment variable, or removes it if the value is nullptr, until the object is destroyed.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    had_ = before != nullptr;
    before_ = had_ ? before : "";
    set(value);
  }
  ~Environment() { set(had_ ? before_.c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) const { value == nullptr ? ::unsetenv(name_) : ::setenv(name_, value, 1); }
  const char* name_;
  std::string before_;
  bool had_;
};

TEST(Cores, FollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const int all = physical_cores();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(physical_cores(), 1);
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(physical_cores(), all);
}

TEST(Cores, AreSharedByTheProcessesOfTheMachine) {
  const int all = physical_cores();
  EXPECT_EQ(own_cores(), all);
  share_cores(2);
  EXPECT_EQ(own_cores(), std::max(1, all / 2));
  share_cores(2 * all);
  EXPECT_EQ(own_cores(), 1);
  share_cores(1);
  EXPECT_EQ(own_cores(), all);
}

TEST(Cpu, FeaturesAgreeWithTheKernels) {
  EXPECT_FALSE(cpu_name().empty());
  std::ifstream file("/proc/cpuinfo");
  std::string flags;
  while (std::getline(file, flags) && !flags.starts_with("flags")) {
  }
  if (!flags.starts_with("flags")) {
    GTEST_SKIP() << "the kernel lists no CPU flags here";
  }
  flags += ' ';
  for (const char* feature : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    EXPECT_EQ(cpu_has(feature), flags.find(std::string(" ") + feature + " ") != std::string::npos) << feature;
  }
  EXPECT_FALSE(cpu_has("abacus"));
}

TEST(Cpu, FeaturesFollowTheLimit) {
  const std::vector<std::string> all = cpu_features();
  const auto with = [](const char* limit) {
    const Environment set("HEADROOM_SIMD", limit);
    return cpu_features();
  };
  EXPECT_EQ(with("abacus"), all);
  EXPECT_EQ(with("avx2"), all.empty() ? all : std::vector<std::string>{"avx2"});
  EXPECT_EQ(with("baseline"), std::vector<std::string>());
}

TEST(Memory, PeakRemembersAndForgets) {
  constexpr std::size_t kSize = std::size_t{128} << 20;
  constexpr auto kMuch = static_cast<std::int64_t>(kSize / 2);
  const std::int64_t before = resident_memory_bytes();
  ASSERT_GT(before, 0);
  void* const memory = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kSize);
  EXPECT_GT(resident_memory_bytes(), before + kMuch);
  ::munmap(memory, kSize);
  EXPECT_LT(resident_memory_bytes(), before + kMuch);
  EXPECT_GT(peak_memory_bytes(), before + kMuch);
  if (::access("/proc/self/clear_refs", W_OK) != 0) {
    GTEST_SKIP() << "the system does not let the peak be reset";
  }
  reset_peak_memory();
  EXPECT_LT(peak_memory_bytes(), before + kMuch);
}

TEST(Interrupts, TheFirstRequestsAStopTheSecondEndsTheProgram) {
  const auto twice = [](int first, int second) {
    catch_interrupts();
    if (interrupted()) {
      std::_Exit(3);
    }
    std::raise(first);
    if (!interrupted()) {
      std::_Exit(4);
    }
    std::raise(second);
    std::_Exit(5);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), testing::KilledBySignal(SIGINT), "");
  EXPECT_EXIT(twice(SIGTERM, SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(twice(SIGHUP, SIGINT), testing::KilledBySignal(SIGINT), "");
  EXPECT_FALSE(interrupted());
}

// As under nohup, the process ignores SIGHUP.
TEST(Interrupts, AnIgnoredHangUpStaysIgnored) {
  const auto hung_up = [] {
    std::signal(SIGHUP, SIG_IGN);
    catch_interrupts();
    std::raise(SIGHUP);
    std::_Exit(interrupted() ? 3 : 0);
  };
  EXPECT_EXIT(hung_up(), testing::ExitedWithCode(0), "");
}

TEST(Memory, IsWhatThisProcessMayFill) {
  const std::int64_t before = memory_limit_bytes();
  EXPECT_GT(before, resident_memory_bytes());
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer already maps more than any limit, and under one it cannot allocate";
#endif
  const auto limited = [] {
    constexpr rlim_t kLimit = rlim_t{3} << 28;
    const struct rlimit limit { .rlim_cur = kLimit, .rlim_max = kLimit };
    ::setrlimit(RLIMIT_AS, &limit);
    struct rlimit set {};
    ::getrlimit(RLIMIT_AS, &set);
    const bool ignored = set.rlim_cur != kLimit;  // qemu-user ignores the limit
    std::_Exit(ignored || memory_limit_bytes() == static_cast<std::int64_t>(kLimit) ? 0 : 3);
  };
  EXPECT_EXIT(limited(), testing::ExitedWithCode(0), "");
}

using Home = ScratchFolder;

TEST_F(Home, IsFoundFromTheProgram) {
  const Environment none("HEADROOM_HOME", nullptr);
  const fs::path program = fs::read_symlink("/proc/self/exe");
  if (program.lexically_relative(HEADROOM_SOURCE_DIR).string().starts_with("..")) {
    GTEST_SKIP() << "the tests were built outside the repository";
  }
  EXPECT_EQ(home_folder(), HEADROOM_SOURCE_DIR);
}

TEST_F(Home, FollowsTheEnvironment) {
  const Environment home("HEADROOM_HOME", folder_.c_str());
  EXPECT_EQ(complaint_of([] { home_folder(); }),
            "error: HEADROOM_HOME: " + folder_.string() + ": has no folder recipes");
  fs::create_directory(folder_ / "recipes");
  EXPECT_EQ(home_folder(), folder_.string());
}

TEST_F(Home, CacheHasThreePlaces) {
  const Environment cache("HEADROOM_CACHE", "/a/cache"), xdg("XDG_CACHE_HOME", "/b"), home("HOME", "/c");
  EXPECT_EQ(cache_folder(), "/a/cache");
  const Environment tilde("HEADROOM_CACHE", "~/x");
  EXPECT_EQ(cache_folder(), "/c/x");
  const Environment no_cache("HEADROOM_CACHE", nullptr);
  EXPECT_EQ(cache_folder(), "/b/headroom");
  const Environment no_xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(cache_folder(), "/c/.cache/headroom");
  const Environment no_home("HOME", nullptr);
  EXPECT_TRUE(cache_folder().ends_with("/.cache/headroom"));  // from the user database, without HOME
}

TEST(InParallel, EachPartRunsOnce) {
  for (const std::size_t threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> done(40);
    in_parallel(done.size(), threads, [&](std::size_t i) { ++done[i]; });
    EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](const auto& n) { return n == 1; })) << threads;
    in_parallel(0, threads, [](std::size_t) { FAIL(); });
  }
}

TEST(InParallel, TheFirstErrorWithAnyThreads) {
  for (const std::size_t threads : {1, 2, 8}) {
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> begun = 0;
      try {
        in_parallel(1000, threads, [&](std::size_t i) {
          ++begun;
          if (i >= 17) {
            fail("{}", i);
          }
        });
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "17");
      }
      EXPECT_LT(begun, 100) << "the rest is not begun";
    }
  }
}

}  // namespace headroom::system_test
