#include <cstdio>
#include <cstdlib>

#include "program.h"

int main(int argc, char** argv) {
  const int status = headroom::cli::Program().run(argc, argv);
  // Skip static destructors: tearing down torch's operator registry is as slow as loading it.
  std::fflush(nullptr);
  std::_Exit(status);
}
