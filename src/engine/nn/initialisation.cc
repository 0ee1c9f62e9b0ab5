#include "headroom/nn/initialisation.h"

#include <cmath>

namespace headroom::nn {
namespace {

double one_over_root(std::int64_t n) {
  return 1.0 / std::sqrt(static_cast<double>(n));
}

}  // namespace

Start Initialisation::matrix(const Start& scaled, const Fan& fan) const {
  switch (rule) {
    case config::Initialisation::normal:
      return Start::normal(std);
    case config::Initialisation::glorot:
      return Start::uniform(fan.gain * std::sqrt(6.0 / static_cast<double>(fan.in + fan.out)));
    case config::Initialisation::torch:
      return Start::uniform(one_over_root(fan.in));
    case config::Initialisation::pythia:
      return Start::normal(fan.into_stream ? stream_std : std);
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

Start Initialisation::embedding(const Start& scaled, std::int64_t d_model) const {
  if (embedding_std > 0.0) {
    return Start::normal(embedding_std);
  }
  switch (rule) {
    case config::Initialisation::normal:
    case config::Initialisation::pythia:
      return Start::normal(std);
    case config::Initialisation::glorot:
      return Start::normal(one_over_root(d_model));
    case config::Initialisation::torch:
      return Start::normal(1.0);
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

std::optional<Start> Initialisation::bias(const std::optional<Start>& scaled, std::int64_t fan_in) const {
  switch (rule) {
    case config::Initialisation::normal:
    case config::Initialisation::glorot:
    case config::Initialisation::pythia:
      return std::nullopt;
    case config::Initialisation::torch:
      return Start::uniform(one_over_root(fan_in));
    case config::Initialisation::scaled:
      break;
  }
  return scaled;
}

}  // namespace headroom::nn
