// The config of a conversion's result, and the checks on source and target.
#pragma once

#include <string>
#include <vector>

#include "convert.h"
#include "headroom/config/config.h"

namespace headroom::convert {

// Throws UserError naming the source for a model that cannot be converted.
void check_source(const ConvertRequest& request, const config::ModelOptions& model);

// Whether the dense or gated MLP of `from` becomes the experts of `to`.
bool splits_mlp(const config::MlpOptions& from, const config::MlpOptions& to);

// Returns the source's config with the target's attention, and its MLP if splits_mlp(). Settings of positions, biases
// and norms stay as they are, because the weights that are kept rely on them: `notes` receives a sentence for each that
// the target has otherwise. Throws UserError naming the key for a target that the source cannot become.
config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes);

}  // namespace headroom::convert
