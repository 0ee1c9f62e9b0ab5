// The measurements behind convert::choose_heads_by_layer(): loss and costs of each layer with fewer heads.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "activations.h"
#include "headroom/store/open_model.h"
#include "heads.h"
#include "layer_conversion.h"

namespace headroom::convert {

// A layer that alone is converted to these heads.
struct HeadsRow {
  Heads heads;
  double loss = 0.0;                         // nats that the layer adds on held-out tokens, at least 0
  std::map<std::string, at::Tensor> fitted;  // the layer's parameters after a short fit; empty with shared keys
  std::vector<double> costs;                 // see HeadsTable::cost_names()
  bool gives_keys = false;                   // the next layer may use this layer's keys and values
};
using RowOfLayer = std::vector<std::size_t>;  // the row of each layer

class HeadsTable {
 public:
  // Measures all rows, or reads them from the cache. `request` must outlive the object.
  explicit HeadsTable(const HeadsRequest& request);

  // Rows by layer. The first row is the source's layer; a layer that is not dense has no other row.
  const std::vector<std::vector<HeadsRow>>& rows() const { return rows_; }
  const HeadsRow& row(const RowOfLayer& choice, std::size_t layer) const { return rows_[layer][choice[layer]]; }
  // Returns the budget's keys without "loss"; "macs" if there are none.
  const std::vector<std::string>& cost_names() const { return cost_names_; }
  // Returns the costs of the source: of all layers and, for step_time, of the rest of a step.
  const std::vector<double>& totals() const { return totals_; }
  const std::vector<double>& fixed() const { return fixed_; }  // costs outside of the layers

  // Returns the request for the conversion to a choice. No file is written.
  ConvertRequest request_for(const RowOfLayer& choice) const;
  config::Config config_of(const ConvertRequest& request) const;
  // Copies the fitted attention of a choice's layers to `target`. Layers that share keys are fitted as a group, and the
  // result is cached.
  void start(const RowOfLayer& choice, const models::Model& target) const;
  // Returns the loss that a choice adds after the short fits.
  double added(const RowOfLayer& choice) const;
  const std::filesystem::path& cache() const { return folder_; }  // for this source, data and fit

 private:
  const config::Config& source() const { return opened_.config(); }
  ConvertRequest request_for(const std::vector<Heads>& heads) const;
  std::unique_ptr<models::Model> model_of(const ConvertRequest& request) const;
  void measure();
  // Returns nullopt if no config allows these heads.
  std::optional<HeadsRow> measured(LayerConversion& conversions, const Heads& heads, std::int64_t layer) const;
  void add_costs();
  double cost(const std::string& name, const config::ModelOptions& layer, double step_seconds) const;

  const HeadsRequest& request_;
  store::OpenedModel opened_;
  ConvertRequest convert_;  // has the steps of the short fit
  Batches batches_;
  double loss_before_ = 0.0;
  std::filesystem::path folder_;
  std::vector<std::vector<HeadsRow>> rows_;
  std::vector<std::string> cost_names_;
  std::vector<double> totals_, fixed_;
};

}  // namespace headroom::convert
