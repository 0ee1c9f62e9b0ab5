#include "launcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::parallel {
namespace {

constexpr int kMostRanks = 65536;
constexpr int kPort = 29500, kSlurmPorts = 20000;  // PyTorch's default; Slurm's jobs use 20000 to 39999

// Environment variables of a launcher. Empty: the launcher does not set this variable.
struct Launcher {
  const char *rank, *size, *local_size, *restarts;
};
constexpr std::array<Launcher, 4> kLaunchers = {{
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ""},
    {"SLURM_PROCID", "SLURM_NTASKS", "", "SLURM_RESTART_COUNT"},
}};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

// Returns nullopt if the variable is not set.
std::optional<int> integer_variable(const char* name, int low, int high) {
  if (!is_set(name)) {
    return std::nullopt;
  }
  const std::string given = variable(name);
  const auto value = as_number<int>(given);
  if (!value || *value < low || *value > high) {
    user_error("{}: must be an integer from {} to {}, got \"{}\"", name, low, high, given);
  }
  return value;
}

std::string slurm_nodes() {
  const std::string step = variable("SLURM_STEP_NODELIST");
  return step.empty() ? variable("SLURM_JOB_NODELIST") : step;
}

// Whether Slurm's variables describe a job whose batch script runs this process directly, without srun.
bool in_batch_script(const Launcher& launcher) {
  return std::string_view(launcher.rank) == "SLURM_PROCID" && !is_set("SLURM_STEP_ID") && !is_set("MASTER_ADDR");
}

const Launcher* find_launcher() {
  for (const Launcher& one : kLaunchers) {
    if (is_set(one.rank) && is_set(one.size)) {
      return in_batch_script(one) ? nullptr : &one;
    }
  }
  if (is_set("MASTER_ADDR") && is_set("RANK") != is_set("WORLD_SIZE")) {
    const bool rank = is_set("RANK");
    user_error("{} is set, but {} is not; a run on several ranks needs both, and one on this machine alone neither",
               rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
  }
  return nullptr;
}

std::string store_host(const Launch& launch) {
  if (is_set("MASTER_ADDR")) {
    return variable("MASTER_ADDR");
  }
  if (const std::string nodes = slurm_nodes(); !nodes.empty()) {
    return first_node(nodes);
  }
  if (launch.local_size.value_or(launch.size) != launch.size) {
    user_error("MASTER_ADDR is not set: the {} ranks are on several machines, so it must name the machine of rank 0",
               launch.size);
  }
  return "localhost";
}

int store_port() {
  if (const std::optional<int> given = integer_variable("MASTER_PORT", 1, 65535)) {
    return *given;
  }
  const auto job = as_number<int>(variable("SLURM_JOB_ID"));
  return job ? kSlurmPorts + (*job + as_number<int>(variable("SLURM_STEP_ID")).value_or(0)) % kSlurmPorts : kPort;
}

}  // namespace

std::string first_node(const std::string& list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') {
    return list.substr(0, open);
  }
  const std::size_t close = std::min(list.find(']', open), list.size() - 1);
  return list.substr(0, open) + list.substr(open + 1, list.find_first_of("-,]", open + 1) - open - 1) +
         first_node(list.substr(close + 1));
}

std::optional<Launch> read_launch() {
  const Launcher* const launcher = find_launcher();
  if (launcher == nullptr) {
    return std::nullopt;
  }
  Launch launch;
  launch.variables = fmt::format("{}={} and {}={}", launcher->size, variable(launcher->size), launcher->rank,
                                 variable(launcher->rank));
  launch.size = *integer_variable(launcher->size, 1, kMostRanks);
  launch.rank = *integer_variable(launcher->rank, 0, launch.size - 1);
  launch.local_size = integer_variable(launcher->local_size, 1, launch.size);
  launch.restarts = integer_variable(launcher->restarts, 0, 1 << 30).value_or(0);
  launch.agent_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (launch.size > 1) {
    launch.host = store_host(launch);
    launch.port = store_port();
  }
  return launch;
}

}  // namespace headroom::parallel
