// The TOML reader, compiled in: a machine that installs the wheel need not have its library.
#define TOML_HEADER_ONLY 0
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
