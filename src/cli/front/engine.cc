// The way from the program to the engine: a library that is loaded when first needed.
#include <dlfcn.h>

#include "headroom/core/error.h"
#include "program.h"

namespace headroom::cli {

int Program::run_engine(const EngineRequest& request) {
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
