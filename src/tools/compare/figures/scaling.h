// Scaling comparison: fits a power law to the sizes of each family of models and computes how much compute one family
// saves over another, as in DCMHA's Figures 3 and 4.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/statistics.h"

namespace headroom::compare {

struct ComparedRun;
struct NamedConfig;

// A few short sentences: which run is best, by how much, with what certainty, and at what cost.
using Conclusion = std::vector<std::string>;

// loss = coefficient * FLOPs ^ -exponent.
struct PowerLaw {
  double coefficient = 0.0;  // nats
  double exponent = 0.0;

  double loss(double flops) const;
  double flops(double loss) const;  // compute to reach this loss; requires exponent > 0
};

// The compute or the training time that the first family needs for a loss, divided by that of another family or model.
struct Saving {
  double loss = 0.0;                          // at which the two are compared, nats
  double ratio = 0.0;                         // geometric mean over the seeds; above 1: the first family needs more
  std::optional<double> low = {}, high = {};  // 95% interval by Student's t; not set with fewer than two seeds
  bool extrapolated = false;                  // the loss lies outside the range of the fitted models' losses
  bool includes_one() const { return low && *low <= 1.0 && 1.0 <= *high; }
};

// Ratios of compute or time are given only if an error of kErrors standard errors of a loss changes the compute or the
// time to reach it by at most the factor kMostUncertain.
inline constexpr double kErrors = 2.0, kMostUncertain = 2.0;

struct ScaledModel {
  std::string name;
  double flops = 0.0;                       // whole training, as cost::training_flops() counts
  std::vector<double> flops_of_seeds = {};  // if train.seconds ends training; empty: `flops` for all
  std::vector<double> losses = {};          // validation loss of each seed, nats
  double error = 0.0;                       // largest standard error of these losses; 0 if unknown
  bool beats_guessing = true;               // as the function
  double loss() const;                      // geometric mean over the seeds
  double flops_of(std::size_t seed) const { return flops_of_seeds.empty() ? flops : flops_of_seeds.at(seed); }
  std::vector<double> seconds = {};                 // training time of each seed; empty: unknown
  std::optional<Saving> saving = {}, speedup = {};  // of compute and of training time; not set for the first family
  std::size_t style = 0;                            // index of its run, whose colour it has in charts
  // By how much the loss is lower, in nats, than for the first family's model of the same rank in compute, with its
  // interval over the seeds (a single seed: low and high are the mean). Not set for the first family, nor for families
  // with another number of models.
  std::optional<Interval> improvement = {};
};

struct ScaledFamily {
  std::string name;
  std::vector<ScaledModel> models = {};  // those with finite losses better than guessing, ascending by compute
  std::string unfitted = {};             // sentence that explains why no line could be fitted; empty: `law` is set
  PowerLaw law = {};                     // least-squares fit of log models[].loss()
  double residual = 0.0;                 // largest relative deviation of a model's loss from the line
  // at the middle of the loss range that both families reach; not set for the first
  std::optional<Saving> saving = {}, speedup = {};
};

// In command-line order; the first family is the baseline. Empty if there are no families.
using Scaling = std::vector<ScaledFamily>;

// Fits log(loss) = log(coefficient) - exponent log(flops) by least squares. All values must be positive, and at least
// two `flops` must differ.
PowerLaw fit_power_law(const std::vector<double>& flops, const std::vector<double>& losses);

// Fits each family and compares it with the first; `families` need only names, models and losses. Ratios and intervals
// are computed over the seeds: seed s of all models gives one line per family and thus one log ratio; the mean and the
// Student t interval of these are reported. The interval therefore shows the variation between seeds. How well a line
// fits the sizes is `residual`. Speedups compare training times at the same losses: the first family's time for an
// amount of compute is read from a power law through its measured times.
Scaling fit_families(Scaling families);

// Returns the ratio of what the first family and another family need for the loss, given for each seed in `first` and
// `other`. Not set if these are empty (unknown).
std::optional<Saving> saving_of(double loss, bool extrapolated, const std::vector<double>& first,
                                const std::vector<double>& other);

// Whether the losses of all seeds are below the loss of a uniform guess by more than kErrors standard errors.
bool beats_guessing(const ComparedRun& run);

// Returns the run's losses and times; `flops` is the training compute of run.config, `style` the run's index. If the
// seeds differ in steps, so do their compute, and `flops` of the result is their geometric mean.
ScaledModel scaled_model(const ComparedRun& run, double flops, std::size_t style);

// Returns the families of a comparison's runs; empty if no run belongs to one.
Scaling scaling_of(const std::vector<ComparedRun>& runs);

// Throws UserError if no line can be fitted: fewer than two families, a family whose models all have the same training
// compute, or models whose compute is not counted.
void check_families(const std::vector<NamedConfig>& configs);

// Describes how much compute each family saves, with intervals, and how well the lines fit.
Conclusion conclude_scaling(const Scaling& scaling);

// Returns "1.87 [1.52, 2.30]", or "1.87" with a single seed.
std::string saving_text(const Saving& saving);

// Effective speedup: how many times as long the first model of a comparison trains for the same loss as another model,
// and on how many times the tokens. All times are shares of a run's training time.
struct EffectiveSpeedups {
  // Speedups of one run. Above 1: the first model needs more.
  struct Speedup {
    Saving tokens, time;
  };
  std::vector<std::optional<Speedup>> of_runs = {};  // one per run, or none; not set for the first model and if unknown
  std::string reason = {};                           // why no speedup can be given; empty if it can
};

// The learning curves give the steps of both models to the higher of their two last losses: all steps of the worse
// model, and the steps at which the better model's curve crosses that loss. The better model's learning rate has not
// decayed there, so it could have reached the loss sooner: ratios are too close to 1.
EffectiveSpeedups effective_speedups(const std::vector<ComparedRun>& runs);

// Returns sentences that give the speedups and how they were found; none if there are none.
Conclusion conclude_speedups(const std::vector<ComparedRun>& runs, const EffectiveSpeedups& speedups);

}  // namespace headroom::compare
