// A language model that reads token by token, as a class of torch.classes.
#include <c10/core/InferenceMode.h>
#include <torch/custom_class.h>

#include "headroom/core/error.h"
#include "headroom/models/language_model.h"
#include "python/context.h"
#include "python/refusal.h"

namespace headroom::python {
namespace {

class Decoder : public torch::CustomClassHolder {
 public:
  // `parameters`: a model's, which it goes on reading where they lie.
  Decoder(const std::string& layer, std::vector<at::Tensor> parameters, std::int64_t rows)
      : layer_(layer_of(layer)), model_(layer_.model, nn::Beginning(std::move(parameters))), rows_(rows) {
    restart();
  }

  // The logits [B, V] after the last of `tokens` [B, n].
  at::Tensor read(const at::Tensor& tokens) {
    if (tokens.dim() != 2 || tokens.size(0) != rows_ || tokens.size(1) < 1 || tokens.scalar_type() != at::kLong) {
      fail("decoding: tokens must be int64 [{}, 1 or more], got {} {}", rows_, c10::toString(tokens.scalar_type()),
           c10::str(tokens.sizes()));
    }
    const nn::Context context = context_of(layer_, model_.device(), /*training=*/false, "automatic");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor logits = model_.decode(tokens.to(model_.device()), **state_, context);
    const c10::InferenceMode usable_in_training(false);
    return logits.clone();
  }

  void restart() { state_.emplace(model_.start_decoding(rows_)); }

 private:
  using State = std::unique_ptr<models::DecodeState, void (*)(models::DecodeState*)>;
  const Layer& layer_;
  models::LanguageModel model_;
  std::int64_t rows_;
  std::optional<State> state_;
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.class_<Decoder>("Decoder")
      .def(torch::init([](const std::string& layer, std::vector<at::Tensor> parameters, std::int64_t rows) {
        return with_value_errors([&] { return c10::make_intrusive<Decoder>(layer, std::move(parameters), rows); });
      }))
      .def("read", [](const c10::intrusive_ptr<Decoder>& self,
                      const at::Tensor& tokens) { return with_value_errors([&] { return self->read(tokens); }); })
      .def("restart", [](const c10::intrusive_ptr<Decoder>& self) { self->restart(); });
}

}  // namespace headroom::python
