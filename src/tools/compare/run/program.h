// Which program is at work, and when.
#pragma once

#include <string>

namespace headroom::compare {

std::string program();  // "headroom 0.1.0, commit 59f40b3", the commit where the build knows it
std::string now();      // "2026-03-01 10:12 UTC"

}  // namespace headroom::compare
