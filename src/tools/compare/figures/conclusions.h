// Sentences that compare runs, correct for any figures.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "result.h"
#include "statistics.h"

namespace headroom::compare {

// Names the run with the best headline figure, its difference from the first run (from the runner-up if the first is
// best) and the difference in cost. With several seeds, a difference counts only if its 95% interval excludes zero.
Conclusion conclude(const std::vector<ComparedRun>& runs);

// Like conclude(), for a sweep's runs, best first.
Conclusion conclude_sweep(const std::vector<ComparedRun>& runs);

// Like conclude(), for the demo's three runs: SwitchHead against both dense models.
Conclusion conclude_demo(const std::vector<ComparedRun>& runs);

// Returns sentences on what else differs between the runs: data, budget, training except for the keys in `expected`,
// sizes, machines; and on small validation data and best values at the edge of those tried.
std::vector<std::string> notes_on(const CompareResult& result, const std::set<std::string>& expected);

// Sets the speedups of a comparison without families, and adds the sentences on them, or on why there are none.
void add_speedups(CompareResult& result);

// Returns the paired difference of the headline figure over the seeds; nullopt if either run has fewer than two.
std::optional<Interval> headline_difference(const ComparedRun& run, const ComparedRun& other);

// Compares the headline figures: "2.8% lower than dense_h8 (7.58)", "3.1% higher than ...", "the same as ...". With
// several seeds: "2.8% lower than dense_h8 (7.58; paired difference -0.21 [-0.30, -0.12])", or "not significantly
// different from ..." if the interval includes zero. `called` replaces the other's name.
std::string headline_comparison(const ComparedRun& run, const ComparedRun& other, std::string_view called = {});

// Returns the final sentences of a conclusion about several runs: the number of seeds and what it means. Empty for one
// run.
std::string seeds_caveat(const std::vector<ComparedRun>& runs, std::string_view what = "model");

// Returns "switchhead takes 0.38 times the attention MACs and 1.20 times the training time of dense; no difference in
// attention memory, peak memory and parameters."
std::string cost_comparison(const ComparedRun& run, const ComparedRun& other);

}  // namespace headroom::compare
