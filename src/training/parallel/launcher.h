// The ranks of the run, read from the environment of the launcher: torchrun, srun, mpirun, or a user's script.
#pragma once

#include <optional>
#include <string>

namespace headroom::parallel {

struct Launch {
  int rank = 0, size = 1;
  std::optional<int> local_size;  // ranks on this machine, if the launcher provides it
  std::string variables;          // "WORLD_SIZE=2 and RANK=1"
  int restarts = 0;               // how often the launcher has restarted the run
  bool agent_store = false;       // torchrun serves the store; otherwise rank 0 does
  std::string host;               // host of the store
  int port = 0;
};

// Reads the first of these pairs that is set: RANK and WORLD_SIZE (torchrun, Kubernetes, a script), Open MPI's
// OMPI_COMM_WORLD_RANK and _SIZE, PMI_RANK and PMI_SIZE, SLURM_PROCID and SLURM_NTASKS. The store is at MASTER_ADDR and
// MASTER_PORT. Without MASTER_ADDR, it is on the first of Slurm's nodes, or on this machine if all ranks are here.
// Without MASTER_PORT, the port is derived from the Slurm job, or is PyTorch's 29500. In a batch script outside srun,
// Slurm's variables describe the whole job; without MASTER_ADDR, such a process runs alone. Returns nullopt for a
// process that was started alone. Throws UserError for invalid or contradictory variables.
std::optional<Launch> read_launch();

// Returns the first name in a Slurm node list: "node03" for "node[03-07,12],login".
std::string first_node(const std::string& list);

}  // namespace headroom::parallel
