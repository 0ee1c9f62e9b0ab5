// Tests groups of one rank, and groups of ranks in forked processes.
#include "training/parallel/gloo_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace headroom::parallel::gloo_group_test {

constexpr int kPassed = 0, kFailed = 1, kThrew = 2;

// Runs `passes` on each rank of a group in a separate process. Returns the exit statuses by rank.
std::vector<int> run_ranks(int size, const std::function<bool(GlooGroup&)>& passes) {
  const Rendezvous rendezvous;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    int status = kThrew;
    try {
      for (const auto& [name, value] : rendezvous.variables(rank, size)) {
        ::setenv(name.c_str(), value.c_str(), 1);
      }
      init_process_group();
      status = passes(default_group()) ? kPassed : kFailed;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    ::_exit(status);
  }
  std::vector<int> statuses;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return statuses;
}

// Returns whether `wait` throws a PeerError that names this rank.
bool fails_because_of(int rank, const std::function<void()>& wait) {
  try {
    wait();
  } catch (const PeerError& error) {
    return std::string(error.what()).starts_with("rank " + std::to_string(rank) + " (on ");
  }
  return false;
}

TEST(GlooGroup, IsAloneWithoutTorchrun) {
  GlooGroup group;
  EXPECT_EQ(group.size(), 1);
  EXPECT_TRUE(group.leads());
  EXPECT_EQ(group.gather("mine"), std::vector<std::string>{"mine"});
  EXPECT_TRUE(group.announce("printed by this rank", /*final=*/true));
}

TEST(GlooGroup, GathersInTheOrderOfRanks) {
  const auto statuses = run_ranks(3, [](GlooGroup& group) {
    const std::string texts[] = {"a", "", std::string(100'000, 'c')};
    const std::vector<std::string> all = group.gather(texts[group.rank()]);
    return all == std::vector<std::string>(std::begin(texts), std::end(texts)) && group.traffic().sent == 0;
  });
  EXPECT_EQ(statuses, std::vector<int>(3, kPassed));
}

TEST(GlooGroup, KeepsTheOrderOfATag) {
  const auto statuses = run_ranks(2, [](GlooGroup& group) {
    if (group.leads()) {
      Transfer first = group.send(at::full({3}, 1.0F), 1, 7), second = group.send(at::full({3}, 2.0F), 1, 7);
      first.wait();
      second.wait();
      return group.traffic().sent == 24;
    }
    const at::Tensor first = at::zeros({3}), second = at::zeros({3});
    Transfer to_first = group.receive(first, 0, 7), to_second = group.receive(second, 0, 7);
    to_second.wait();
    to_first.wait();
    return first.eq(1.0).all().item<bool>() && second.eq(2.0).all().item<bool>() && group.traffic().received == 24;
  });
  EXPECT_EQ(statuses, std::vector<int>(2, kPassed));
}

TEST(GlooGroup, OneRankPrintsAnAnnouncement) {
  const auto statuses = run_ranks(3, [](GlooGroup& group) {
    const std::vector<std::string> prints = group.gather(group.announce("failed", /*final=*/false) ? "1" : "");
    return (prints[0] + prints[1] + prints[2]) == "1";
  });
  EXPECT_EQ(statuses, std::vector<int>(3, kPassed));
}

TEST(GlooGroup, NamesARankThatExceedsTheTimeout) {
  const auto statuses = run_ranks(2, [](GlooGroup& group) {
    if (!group.leads()) {
      std::this_thread::sleep_for(std::chrono::seconds(5));
      return true;
    }
    group.set_timeout(std::chrono::seconds(1));
    const at::Tensor never = at::zeros({1});
    return fails_because_of(1, [&] { group.receive(never, 1, 7).wait(); });
  });
  EXPECT_EQ(statuses, std::vector<int>(2, kPassed));
}

}  // namespace headroom::parallel::gloo_group_test
