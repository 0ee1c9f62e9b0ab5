#include <cstdio>
#include <cstdlib>

namespace headroom::cli {
int run(int argc, char** argv);  // defined in program.cc; including program.h would take seconds to compile
}  // namespace headroom::cli

int main(int argc, char** argv) {
  const int status = headroom::cli::run(argc, argv);
  // Skip static destructors: tearing down torch's operator registry is as slow as loading it.
  std::fflush(nullptr);
  std::_Exit(status);
}
