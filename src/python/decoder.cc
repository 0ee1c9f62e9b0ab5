// The decoder of a language model as a class of torch.classes.
#include <c10/core/InferenceMode.h>
#include <torch/custom_class.h>

#include "context.h"
#include "headroom/core/error.h"
#include "headroom/models/language_model.h"

namespace headroom::python {
namespace {

class Decoder : public torch::CustomClassHolder {
 public:
  // Shares `parameters` with the Python model.
  Decoder(const std::string& layer, std::vector<at::Tensor> parameters, std::int64_t rows)
      : layer_(layer_of(layer)), model_(layer_.model, nn::ParameterSource(std::move(parameters))), rows_(rows) {
    if (rows < 0) {
      fail("decoding: rows must be at least 0, got {}", rows);
    }
    restart();
  }

  // Returns the logits [B, V] after the last of each row's `tokens` [B, n]; skips tokens that are not `valid` [B, n]. A
  // row without valid tokens gets zeros.
  at::Tensor read(const at::Tensor& tokens, const std::optional<at::Tensor>& valid) {
    check(tokens, valid);
    const std::vector<std::vector<std::int64_t>> texts = texts_of(tokens, valid);
    std::vector<models::DecodeRow> rows;
    std::vector<std::int64_t> places;
    for (std::size_t row = 0; row < texts.size(); ++row) {
      if (!texts[row].empty()) {
        rows.push_back({&states_[row], texts[row]});
        places.push_back(static_cast<std::int64_t>(row));
      }
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const nn::Context context = context_of(layer_, model_.device(), /*training=*/false, "automatic");
    const at::Tensor some = rows.empty() ? at::Tensor() : model_.decode(rows, context);
    const c10::InferenceMode usable_in_training(false);
    if (!rows.empty() && rows.size() == texts.size()) {
      return some.clone();
    }
    const at::TensorOptions like = rows.empty() ? model_.parameters().all().front().tensor.options() : some.options();
    at::Tensor logits = at::zeros({tokens.size(0), model_.options().vocabulary_size}, like.requires_grad(false));
    return rows.empty() ? logits : logits.index_copy(0, at::tensor(places, at::kLong).to(logits.device()), some);
  }

  void restart() { states_.assign(static_cast<std::size_t>(rows_), model_.start_decoding()); }

  // Replaces row i by a copy of row rows[i].
  void reorder(const std::vector<std::int64_t>& rows) {
    for (const std::int64_t row : rows) {
      if (row < 0 || row >= std::ssize(states_)) {
        fail("decoding: rows must be in [0, {}), got {}", states_.size(), row);
      }
    }
    states_ = models::gather_states(std::move(states_), rows);
    rows_ = std::ssize(rows);
  }

 private:
  void check(const at::Tensor& tokens, const std::optional<at::Tensor>& valid) const {
    if (tokens.dim() != 2 || tokens.size(0) != rows_ || tokens.size(1) < 1 || tokens.scalar_type() != at::kLong) {
      fail("decoding: tokens must be int64 [{}, 1 or more], got {} {}", rows_, c10::toString(tokens.scalar_type()),
           c10::str(tokens.sizes()));
    }
    if (valid && (valid->sizes() != tokens.sizes() || valid->scalar_type() != at::kBool)) {
      fail("decoding: valid must be bool and shaped as the tokens, {}, got {} {}", c10::str(tokens.sizes()),
           c10::toString(valid->scalar_type()), c10::str(valid->sizes()));
    }
  }

  static std::vector<std::vector<std::int64_t>> texts_of(const at::Tensor& tokens,
                                                         const std::optional<at::Tensor>& valid) {
    std::vector<std::vector<std::int64_t>> texts;
    for (std::int64_t row = 0; row < tokens.size(0); ++row) {
      const at::Tensor text = (valid ? tokens[row].masked_select((*valid)[row]) : tokens[row]).cpu().contiguous();
      texts.emplace_back(text.const_data_ptr<std::int64_t>(), text.const_data_ptr<std::int64_t>() + text.size(0));
    }
    return texts;
  }

  const Layer& layer_;
  models::LanguageModel model_;
  std::int64_t rows_;
  std::vector<models::DecodeState> states_;
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.class_<Decoder>("Decoder")
      .def(torch::init([](const std::string& layer, std::vector<at::Tensor> parameters, std::int64_t rows) {
        return with_value_errors([&] { return c10::make_intrusive<Decoder>(layer, std::move(parameters), rows); });
      }))
      .def("read",
           [](const c10::intrusive_ptr<Decoder>& self, const at::Tensor& tokens,
              const std::optional<at::Tensor>& valid) {
             return with_value_errors([&] { return self->read(tokens, valid); });
           })
      .def("reorder", [](const c10::intrusive_ptr<Decoder>& self,
                         const std::vector<std::int64_t>& rows) { with_value_errors([&] { self->reorder(rows); }); })
      .def("restart", [](const c10::intrusive_ptr<Decoder>& self) { self->restart(); });
}

}  // namespace headroom::python
