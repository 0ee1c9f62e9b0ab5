#include "program.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <string_view>

namespace headroom::compare {

extern const char* const kBuildCommit;  // made by cmake/commit.cmake with every build; empty outside a repository

std::string program() {
  const std::string_view commit = kBuildCommit;
  return fmt::format("headroom {}{}{}", HEADROOM_VERSION, commit.empty() ? "" : ", commit ", commit);
}

std::string now() {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
}

}  // namespace headroom::compare
