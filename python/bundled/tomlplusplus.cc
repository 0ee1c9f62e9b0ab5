// Compiles the TOML parser into the wheel, whose users may lack its library.
#define TOML_HEADER_ONLY 0
#define TOML_IMPLEMENTATION
#include <toml++/toml.h>
