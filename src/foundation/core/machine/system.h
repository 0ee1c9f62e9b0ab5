// The machine and the process: cores, CPU features, threads, memory, signals, folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace headroom {

// Physical cores that this process may use (affinity and control groups count), at least 1.
int physical_cores();
// Sets the number of processes on this machine that do the same work at once, this one included; initially 1.
void share_cores(int processes);
// physical_cores() divided by the number of processes that share them, at least 1.
int own_cores();
std::string cpu_name();
// The subset of "avx2", "avx512f", "avx512_bf16", "amx_bf16" that both CPU and operating system support.
std::vector<std::string> cpu_features();
bool cpu_has(const std::string& feature);

// Calls work(0), ..., work(n - 1), each once, on up to `threads` threads including the caller's. After an exception no
// further call starts, and the exception of the lowest failed index is thrown, whatever the number of threads.
void in_parallel(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& work);

std::int64_t peak_memory_bytes();  // maximum resident set since the start or the last reset
std::int64_t resident_memory_bytes();
// From now on freed memory stays with the process: the tensors of a step reuse the pages of the previous step instead
// of fresh ones, which the system would have to clear first.
void keep_freed_memory();
void reset_peak_memory();  // returns free memory to the system first
std::string allocator();   // the malloc in use: "tcmalloc" or "system"

// Memory that this process may use before the system kills it, in bytes and including swap: the minimum of the
// machine's memory, its control groups' limits and `ulimit -v`. 0: unknown.
std::int64_t memory_limit_bytes();

// From now on Ctrl-C, SIGTERM and SIGHUP (unless ignored, as under nohup) set a flag; a second signal ends the process.
void catch_interrupts();
bool interrupted();

// The folder that holds `recipes/`: $HEADROOM_HOME, or the nearest one above the program. Throws Error if there is
// none.
std::string home_folder();
// Sets home_folder() unless HEADROOM_HOME is set: for programs other than the command, which ship recipes elsewhere.
void set_home_folder(const std::string& folder);
// The folder for prepared data: $HEADROOM_CACHE, else $XDG_CACHE_HOME/headroom, else ~/.cache/headroom. Throws Error if
// the user has no home.
std::string cache_folder();

}  // namespace headroom
