// Heads' results as they are.
#include "headroom/nn/output_gate.h"

namespace headroom::nn {
namespace {

const Factory<MakeOutputGate> kNoOutputGate("none",
                                            [](const config::AttentionOptions&, const LayerInit&,
                                               const Builder&) -> std::unique_ptr<OutputGate> { return nullptr; });

}  // namespace
}  // namespace headroom::nn
