// The way from the program to the engine: a library that is loaded when first needed.
#include <dlfcn.h>

#include <cstdlib>

#include "headroom/core/error.h"
#include "program.h"

namespace headroom::cli {

namespace {

// Threads that wait for each other's work spin for a few dozen microseconds, which bridges what lies between two
// parallel loops, and then sleep. libgomp's own choice, milliseconds, takes the cores from other programs
// and, with fewer cores free than threads, from the very thread that is waited for. It reads this when it is loaded.
void bound_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("GOMP_SPINCOUNT", "2000", 0);
  }
}

// oneDNN keeps the code it made for each shape of a product, 1,024 of them, a hundred kilobytes and more each. Where
// batches differ in length there are always more shapes; what comes back soon are those of the layers of one step.
void bound_kept_products() {
  if (std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == nullptr) {
    setenv("DNNL_PRIMITIVE_CACHE_CAPACITY", "128", 0);
  }
}

}  // namespace

int Program::run_engine(const EngineRequest& request) {
  bound_spinning();
  bound_kept_products();
  // Found by the program's run-time path. It stays loaded: torch does not survive being unloaded.
  void* library = dlopen("libheadroom_engine.so", RTLD_NOW);
  if (library == nullptr) {
    fail("engine: cannot be loaded: {}", dlerror());
  }
  void* symbol = dlsym(library, kEngineEntry);
  if (symbol == nullptr) {
    fail("engine: libheadroom_engine.so is not of this version: {}", dlerror());
  }
  return reinterpret_cast<EngineEntry>(symbol)(request);
}

}  // namespace headroom::cli
