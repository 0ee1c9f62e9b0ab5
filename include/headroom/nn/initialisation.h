// How matrices are initialised: the rule of a whole model, `model.initialisation`.
#pragma once

#include <cstdint>
#include <optional>

#include "headroom/config/model_options.h"

namespace headroom::nn {

// What numbers are drawn from.
struct Start {
  enum class Law { normal, truncated_normal, uniform };  // truncated: at 2 deviations, then stretched to `scale`
  Law law = Law::normal;
  double scale = 1.0;  // standard deviation; uniform: between -scale and scale

  static Start normal(double std) { return {Law::normal, std}; }
  static Start truncated_normal(double std) { return {Law::truncated_normal, std}; }
  static Start uniform(double bound) { return {Law::uniform, bound}; }
};

// How many numbers a product with the matrix sums up, and how many it makes; all heads and experts that
// replace one matrix count together.
struct Fan {
  std::int64_t in = 1, out = 1;
  double gain = 1.0;         // glorot: multiplies the bound
  bool into_stream = false;  // pythia: what it makes is added to the residual stream
};

// Queries, keys and values are initialised as three parts of one matrix: Glorot's bound of [d, 3d] is that of [d, d] by
// 1/sqrt 2.
inline constexpr double kThirdOfAMatrix = 0.70710678118654752;

// Under `scaled` each part has its own initialisation; any other rule decides for all of them:
//
//            matrices                       biases            embeddings, learned positions   the head's bias
//   normal   N(0, std^2)                    0                 N(0, std^2)                     0
//   glorot   U(+-gain sqrt(6 / (in + out))) 0                 N(0, 1/d)                       0
//   torch    U(+-1/sqrt(in))                U(+-1/sqrt(in))   N(0, 1)                         U(+-1/sqrt(in))
//   pythia   N(0, std^2), into the residual 0                 N(0, std^2)                     0
//            stream N(0, stream_std^2)
//
// Pythia's two deviations are those of Nguyen and Salazar ("small") and of Wang and Komatsuzaki ("wang").
struct Initialisation {
  config::Initialisation rule = config::Initialisation::scaled;
  double std = 0.02, stream_std = 0.02;
  double embedding_std = 0.0;  // above 0: of embeddings and learned positions, whatever the rule

  Start matrix(const Start& scaled, const Fan& fan) const;
  Start embedding(const Start& scaled, std::int64_t d_model) const;
  // Without it: zeros.
  std::optional<Start> bias(const std::optional<Start>& scaled, std::int64_t fan_in) const;
};

}  // namespace headroom::nn
