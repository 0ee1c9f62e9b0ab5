// What must hold of a plan before anything is trained. All of these throw UserError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plan.h"
#include "training/tasks/task.h"

namespace headroom::compare {

// Every choice of every model must be comparable with every other.
void check_choices(const Plan& plan);

// Folders of an earlier comparison must hold the same runs.
void check_folders(const Plan& plan);

// All that can be checked of runs before the first of them is trained: their device and memory, their data, which
// must give all of them the same tokenizer and the same validation data, and that what they are to continue can be.
void check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                const std::filesystem::path& cache);

}  // namespace headroom::compare
