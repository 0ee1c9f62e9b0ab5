// The machine: cores, CPU features, memory, and signals that ask a run to stop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom {

int physical_cores();  // of those this process may use (affinity, cgroup), at least 1
// This process's share of them, at least 1: from now on `processes` of this machine work on the same at once, itself
// included. It has them all until then.
void share_cores(int processes);
int own_cores();
std::string cpu_name();
// Those of "avx2", "avx512f", "avx512_bf16", "amx_bf16" that the CPU and the system offer.
std::vector<std::string> cpu_features();
bool cpu_has(const std::string& feature);

std::int64_t peak_memory_bytes();  // highest resident set since the start or the last reset
std::int64_t resident_memory_bytes();
// From now on memory that is freed stays with the process: tensors of one step lie where those of the last one lay,
// instead of in fresh pages that the system must clear first.
void keep_freed_memory();
void reset_peak_memory();  // hands free memory back to the system first
std::string allocator();   // whose malloc this process has: "tcmalloc" or "system"

// Memory that a process may fill before the system must end it: the machine's or, where it is less, what the control
// groups and limits of this process grant (`ulimit -v`), swap space included. 0: not known.
std::int64_t memory_limit_bytes();

// Ctrl-C, SIGTERM and SIGHUP (unless it is ignored, as under nohup) set a flag from now on; a second one ends the
// process as usual.
void catch_interrupts();
bool interrupted();

// The folder that holds `recipes/`: $HEADROOM_HOME, or found from where the program lies. Throws Error.
std::string home_folder();
// What it is where HEADROOM_HOME does not say: programs that are not the command know where they have the recipes.
void set_home_folder(const std::string& folder);
// Where prepared data is kept: $HEADROOM_CACHE, else $XDG_CACHE_HOME/headroom, else ~/.cache/headroom. Throws
// Error where the user has no home.
std::string cache_folder();

}  // namespace headroom
