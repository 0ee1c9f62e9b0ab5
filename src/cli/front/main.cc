#include <cstdio>
#include <cstdlib>

#include "program.h"

int main(int argc, char** argv) {
  const int status = headroom::cli::Program().run(argc, argv);
  // torch takes its tables of operators apart when a process ends in the usual way, which takes as long as loading it.
  std::fflush(nullptr);
  std::_Exit(status);
}
