// The memory of the pretended device, and what was counted there.
#pragma once

#include <c10/core/Allocator.h>

#include <string>

namespace headroom::pretended_cuda {

c10::Allocator* allocator();

void count_operator(const std::string& name);
void count_wait(const std::string& reason);

}  // namespace headroom::pretended_cuda
