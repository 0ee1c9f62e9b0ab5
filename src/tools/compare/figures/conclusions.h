// Sentences that compare runs, correct for any figures.
#pragma once

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

// Compares the headline figures: "0.21 below dense_h8 (7.58)", "0.23 above ...", "the same as ...". With several seeds:
// "0.21 [0.12, 0.30] below dense_h8 (7.58)", or "not significantly different from ..." if the interval of the paired
// difference includes zero. `called` replaces the other's name.
std::string headline_comparison(const ComparedRun& run, const ComparedRun& other, std::string_view called = {});

// Returns "learning rate 0.001 (not tuned), 12.3 tokens per parameter and 3.1 epochs"; without epochs if the data was
// not read more than once.
std::string conditions_of(const std::vector<ComparedRun>& runs);

// Returns a sentence with what a conclusion about the runs rests on: conditions_of() and the number of seeds.
std::string basis_of(const std::vector<ComparedRun>& runs);

// Returns sentences on runs whose times other work on the machine has distorted: unequal shares of the cores, and
// speeds unlike those of their first steps.
std::vector<std::string> load_notes(const std::vector<ComparedRun>& runs);

// Returns "switchhead takes 0.38 times the attention MACs and 1.20 times the training time of dense; no difference in
// parameters and peak memory."
std::string cost_comparison(const ComparedRun& run, const ComparedRun& other);

}  // namespace headroom::compare
