// Lines through the sizes of families of models, and how far apart they are.
#pragma once

#include <string>
#include <vector>

#include "scaling_result.h"
#include "tools/compare/compare.h"

namespace headroom::compare {

// Least squares of log(loss) = log(coefficient) - exponent log(flops); at least two different `flops`, all numbers
// above 0.
PowerLaw fit_power_law(const std::vector<double>& flops, const std::vector<double>& losses);

// Fits each family and compares it with the first. `families` come with names, models and losses alone. A ratio and its
// interval are those of the seeds: with seed s of all models lines are fitted, which give a logarithm of the ratio at
// the loss, and these have a mean and an interval by Student's t. So it tells what another seed may change, not how
// well a line describes the sizes, which is `residual`.
Scaling fit_families(Scaling families);

// Of a comparison's runs; nothing where they belong to no families.
Scaling scaling_of(const std::vector<ComparedRun>& runs);

// Throws UserError for families that no line can be fitted to: fewer than two of them, a family whose models are
// trained with the same compute, models whose compute is not counted.
void check_families(const std::vector<NamedConfig>& configs);

// How much compute each family saves, how sure that is, and how well the lines fit.
Conclusion conclude_scaling(const Scaling& scaling);

// "1.87 [1.52, 2.30]", of one seed "1.87".
std::string saving_text(const Saving& saving);

}  // namespace headroom::compare
