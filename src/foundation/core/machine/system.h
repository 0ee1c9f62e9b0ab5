// The machine and the process: cores, CPU features, threads, memory, signals, folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// Returns the number of physical cores that this process may use under its affinity and control groups, at least 1.
int physical_cores();
// Sets the number of processes on this machine that share its cores, including this process. Default: 1.
void share_cores(int processes);
// Returns physical_cores() divided by the number of processes that share them, at least 1.
int own_cores();
std::string cpu_name();
std::string_view cpu_vendor();  // "AMD", "Intel" or "another"
// Returns the subset of "avx2", "avx512f", "avx512_bf16", "amx_bf16" that both the CPU and the operating system
// support and that simd_limit() allows.
std::vector<std::string> cpu_features();
bool cpu_has(const std::string& feature);
// HEADROOM_SIMD: "avx2" emulates a CPU without AVX-512 and "baseline" one without AVX, for tests and measurements.
// Empty: no limit.
std::string_view simd_limit();

// Calls work(0), ..., work(n - 1), each once, on up to `threads` threads including the caller's. After an exception no
// further call starts. Throws the exception of the lowest failed index, regardless of the number of threads.
void in_parallel(std::size_t n, std::size_t threads, const std::function<void(std::size_t)>& work);

double cpu_seconds();              // of all threads of this process, user and system time
std::int64_t peak_memory_bytes();  // maximum resident set since the start or the last reset
std::int64_t resident_memory_bytes();
// Makes the process retain freed memory from now on. The tensors of a step then reuse the pages of the previous step
// instead of fresh pages, which the system would have to clear first.
void keep_freed_memory();
void reset_peak_memory();  // also returns free memory to the system
std::string allocator();   // name of the malloc in use: "tcmalloc" or "system"

// Returns the memory in bytes, including swap, that this process may use before the system kills it: the minimum of the
// machine's memory, the limits of its control groups and `ulimit -v`. 0: unknown.
std::int64_t memory_limit_bytes();

// Makes Ctrl-C, SIGTERM and SIGHUP (unless ignored, as under nohup) set a flag; a second signal ends the process.
void catch_interrupts();
bool interrupted();
// With true, the next signal of catch_interrupts() ends the process within seconds even if interrupted() is not called:
// for long work with nothing to save.
void end_soon_if_interrupted(bool ends);
// Returns the exit status of a process that a signal ended: 128 plus the number of the first signal caught. Without
// one it is 130, the status for Ctrl-C.
int interrupt_status();

// Returns the folder that contains `recipes/`: $HEADROOM_HOME, or the nearest such folder above the program. Throws
// Error if there is none.
std::string home_folder();
// Sets home_folder() unless HEADROOM_HOME is set. For programs other than the command, which ship recipes elsewhere.
void set_home_folder(const std::string& folder);
// Returns a path with $HOME in place of "~" at its beginning, as shells expand it.
std::string with_home(const std::string& path);
// Returns the folder for prepared data: $HEADROOM_CACHE, else $XDG_CACHE_HOME/headroom, else ~/.cache/headroom. Throws
// Error if the user has no home directory.
std::string cache_folder();

}  // namespace headroom
