#include "training/parallel/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "headroom/core/error.h"

namespace headroom::parallel::launcher_test {

using Variables = std::map<std::string, std::string>;

// Returns what read_launch() finds if these environment variables are set.
std::optional<Launch> launch(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  const auto clear = [&] {
    for (const auto& [name, value] : variables) {
      ::unsetenv(name.c_str());
    }
  };
  try {
    const std::optional<Launch> found = read_launch();
    clear();
    return found;
  } catch (const UserError&) {
    clear();
    throw;
  }
}

TEST(Launcher, AProcessStartedAloneHasNone) {
  EXPECT_FALSE(launch({}));
  // A batch script has the variables of the whole job.
  EXPECT_FALSE(launch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "a[1-4]"}}));
}

TEST(Launcher, TorchrunComesBeforeTheLauncherThatStartedIt) {
  const auto found = launch({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "first"},
                             {"MASTER_PORT", "1234"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_NTASKS", "2"},
                             {"SLURM_STEP_ID", "0"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 5);
  EXPECT_EQ(found->size, 8);
  EXPECT_EQ(found->local_size, 4);
  EXPECT_EQ(found->restarts, 2);
  EXPECT_TRUE(found->agent_store);
  EXPECT_EQ(found->host, "first");
  EXPECT_EQ(found->port, 1234);
}

TEST(Launcher, TheStoreOfSlurmIsOnTheFirstNode) {
  const auto found = launch({{"SLURM_PROCID", "3"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_STEP_ID", "2"},
                             {"SLURM_JOB_ID", "20007"},
                             {"SLURM_JOB_NODELIST", "gpu[08-11]"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->size, 4);
  EXPECT_FALSE(found->agent_store);
  EXPECT_EQ(found->host, "gpu08");
  EXPECT_EQ(found->port, 20009) << "two steps of one job have different ports";
}

TEST(Launcher, RanksOfMpirunOnOneMachineNeedNoAddress) {
  Variables variables = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ(launch(variables)->host, "localhost");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THROW(launch(variables), UserError) << "the ranks are on two machines";
  EXPECT_EQ(launch({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}})->size, 3);
}

TEST(Launcher, RefusesVariablesThatContradictEachOther) {
  EXPECT_THROW(launch({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1"}}), UserError);
  EXPECT_THROW(launch({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}), UserError);
  EXPECT_THROW(launch({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "none"}}), UserError);
  EXPECT_THROW(launch({{"RANK", "0"}, {"MASTER_ADDR", "first"}}), UserError);
  EXPECT_THROW(launch({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "first"}}), UserError);
}

TEST(Launcher, ReadsTheFirstOfSlurmsNodes) {
  EXPECT_EQ(first_node("login"), "login");
  EXPECT_EQ(first_node("a,b[1-2]"), "a");
  EXPECT_EQ(first_node("node[03-07,12],login"), "node03");
  EXPECT_EQ(first_node("node[5,7]"), "node5");
  EXPECT_EQ(first_node("rack[2-3]n[04-09],x"), "rack2n04");
  EXPECT_EQ(first_node("broken[1"), "broken1");
}

}  // namespace headroom::parallel::launcher_test
