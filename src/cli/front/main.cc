#include "program.h"

int main(int argc, char** argv) {
  return headroom::cli::Program().run(argc, argv);
}
