#include "headroom/nn/projection.h"

#include "headroom/core/error.h"

namespace headroom::nn {

std::unique_ptr<Projection> make_projection(const config::AttentionOptions& options, const ProjectionInit& init,
                                            const Builder& build) {
  switch (options.projection) {
    case config::Projection::dense:
    case config::Projection::experts:
      return make_head_projections(options, init, build);
    case config::Projection::gated_heads:
      return make_gated_heads(options, init, build);
    case config::Projection::routed_heads:
      return make_routed_heads(options, init, build);
  }
  fail("model.attention.projection: unknown");
}

}  // namespace headroom::nn
