// How much compute a family of models saves: several sizes of each of several families, and a power law through each,
// as in DCMHA's Figures 3 and 4.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace headroom::compare {

// Loss against compute: loss = coefficient * FLOPs ^ -exponent, a straight line where both axes are logarithmic.
struct PowerLaw {
  double coefficient = 0.0;  // nats
  double exponent = 0.0;

  double loss(double flops) const;
  double flops(double loss) const;  // to reach it; only where exponent > 0
};

// How many times the compute of a family, or of one of its models, the first family needs for the same loss.
struct Saving {
  double loss = 0.0;                          // nats, at which the two are compared
  double ratio = 0.0;                         // above 1: the first family needs more; the geometric mean over the seeds
  std::optional<double> low = {}, high = {};  // its 95% interval by Student's t; nothing with fewer than two seeds
  bool extrapolated = false;                  // the loss is beyond what the first family's models, or either's, reach
  bool excludes_one() const { return low && (*low > 1.0 || *high < 1.0); }
};

// One size: the validation losses of its seeds after so much training.
struct ScaledModel {
  std::string name;
  double flops = 0.0;               // of all training steps, as cost::training_flops() counts
  std::vector<double> losses = {};  // nats, a seed each
  double loss() const;              // geometric mean over the seeds
  std::optional<Saving> saving = {};
};

struct ScaledFamily {
  std::string name;
  std::vector<ScaledModel> models = {};  // those with a finite loss, by compute
  std::string unfitted = {};             // not empty: a sentence on why there is no line, and `law` is empty
  PowerLaw law = {};                     // least squares of the logarithms of models[].loss()
  double residual = 0.0;                 // the largest distance of a model from the line, as a share of its loss
  std::optional<Saving> saving = {};     // in the middle of the losses that both families reach; not of the first
};

// In the order in which they were named; the others are compared with the first. Empty: no families.
using Scaling = std::vector<ScaledFamily>;

}  // namespace headroom::compare
