// Scaling comparison: a power law through the sizes of each family of models, and how much compute one family saves
// over another, as in DCMHA's Figures 3 and 4.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace headroom::compare {

struct ComparedRun;
struct NamedConfig;

// A few short sentences: which run is best, by how much, how certain that is, and what it cost.
using Conclusion = std::vector<std::string>;

// loss = coefficient * FLOPs ^ -exponent.
struct PowerLaw {
  double coefficient = 0.0;  // nats
  double exponent = 0.0;

  double loss(double flops) const;
  double flops(double loss) const;  // to reach this loss; needs exponent > 0
};

// The compute that the first family needs for a loss, divided by the compute of another family or model.
struct Saving {
  double loss = 0.0;                          // at which the two are compared, nats
  double ratio = 0.0;                         // geometric mean over the seeds; above 1: the first family needs more
  std::optional<double> low = {}, high = {};  // 95% interval by Student's t; not set with fewer than two seeds
  bool extrapolated = false;                  // the loss lies outside the range of the models the line is fitted to
  bool excludes_one() const { return low && (*low > 1.0 || *high < 1.0); }
};

struct ScaledModel {
  std::string name;
  double flops = 0.0;               // of the whole training, as cost::training_flops() counts them
  std::vector<double> losses = {};  // validation loss of each seed, nats
  double loss() const;              // geometric mean over the seeds
  std::optional<Saving> saving = {};
};

struct ScaledFamily {
  std::string name;
  std::vector<ScaledModel> models = {};  // those with finite losses, ascending by compute
  std::string unfitted = {};             // a sentence on why no line could be fitted; empty: `law` is set
  PowerLaw law = {};                     // least squares of the logarithms of models[].loss()
  double residual = 0.0;                 // largest relative distance of a model's loss from the line
  std::optional<Saving> saving = {};     // at the middle of the losses that both families reach; not set for the first
};

// In the order in which the families were named; the first is the baseline. Empty: no families.
using Scaling = std::vector<ScaledFamily>;

// Least squares of log(loss) = log(coefficient) - exponent log(flops). All numbers must be positive, and at least two
// `flops` must differ.
PowerLaw fit_power_law(const std::vector<double>& flops, const std::vector<double>& losses);

// Fits each family and compares it with the first; `families` need only names, models and losses. Ratios and intervals
// are taken over the seeds: seed s of all models gives one line per family and so one log ratio; the mean and the
// Student t interval of these are reported. The interval thus shows the variation between seeds, not how well a line
// describes the sizes, which is `residual`.
Scaling fit_families(Scaling families);

// The families of a comparison's runs; empty if the runs belong to none.
Scaling scaling_of(const std::vector<ComparedRun>& runs);

// Throws UserError if no line can be fitted: fewer than two families, a family whose models all have the same training
// compute, or models whose compute is not counted.
void check_families(const std::vector<NamedConfig>& configs);

// How much compute each family saves, with intervals, and how well the lines fit.
Conclusion conclude_scaling(const Scaling& scaling);

// "1.87 [1.52, 2.30]", or "1.87" with a single seed.
std::string saving_text(const Saving& saving);

}  // namespace headroom::compare
