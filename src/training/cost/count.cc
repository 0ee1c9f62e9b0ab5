#include "count.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "headroom/core/error.h"
#include "headroom/models/classifier.h"
#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/models/masked_language_model.h"

namespace headroom::cost {
namespace {

// Calls `make`. torch's errors about sizes that it cannot represent become user errors.
template <class Make>
auto with_sizes_checked(const Make& make) {
  try {
    return make();
  } catch (const c10::Error& error) {
    if (std::string_view(error.what_without_backtrace()).find("overflow") == std::string_view::npos) {
      throw;
    }
    user_error("cost: the model is too large: a count exceeds 63 bits");
  }
}

// Returns the number of pairs of a query and a key that a causal mask hides. A query sees its own and earlier
// positions, at most `window` in total.
Exact hidden_pairs(std::int64_t t, std::int64_t s, std::int64_t window) {
  const std::int64_t w = window > 0 ? std::min(window, s) : s;
  const std::int64_t growing = std::max<std::int64_t>(0, w - (s - t));  // queries whose window is not full or just full
  const std::int64_t triangle = (Exact(growing) * (growing + 1)).value() / 2;
  const Exact visible = Exact(growing) * (s - t) + triangle + Exact(t - growing) * w;
  return Exact(t) * s + -visible.value();
}

// Counts the matrix multiplications of this thread, and assigns them to layers by the values that layers show.
class Counter : public nn::Observer {
 public:
  Counter() : handle_(at::addThreadLocalCallback(callback())) { current_ = this; }
  ~Counter() override {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  bool wants(std::string_view name) const override {
    return name.ends_with("embedding") || nn::matches("layer*.out", name) || nn::matches("*.layer*.out", name) ||
           name.ends_with(".ffn.x") || name.ends_with(".ffn.out");
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    if (name.ends_with("embedding")) {
      macs_.head += std::exchange(pending_, LayerMacs()).attention;
    } else if (name.ends_with(".ffn.out")) {
      layer_.mlp += std::exchange(pending_, LayerMacs()).attention;
    } else {
      add_attention();
      if (!name.ends_with(".ffn.x")) {
        macs_.layers.push_back(std::exchange(layer_, LayerMacs()));
      }
    }
    return value;
  }
  ForwardMacs result() {
    macs_.head += pending_.attention;
    return std::move(macs_);
  }

 private:
  // The scope "headroom::attend" of the reference operator has the inputs T, S, causal and window.
  static at::RecordFunctionCallback callback() {
    return at::RecordFunctionCallback(
               [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
                 current_->begin(call);
                 return nullptr;
               },
               [](const at::RecordFunction& call, at::ObserverContext*) {
                 current_->attends_ = current_->attends_ && call.scope() != at::RecordScope::USER_SCOPE;
               })
        .needsInputs(true)
        .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE});
  }

  // Counts a multiplication m x k times k x n, batched or not.
  void begin(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    const auto inputs = call.inputs();
    if (name == "headroom::attend") {
      const std::int64_t t = inputs[0].toInt(), s = inputs[1].toInt();
      attends_ = true;
      all_ = Exact(t) * s;
      hidden_ = inputs[2].toBool() ? hidden_pairs(t, s, inputs[3].toInt()) : 0;
    }
    const bool adds = name == "aten::addmm" || name == "aten::baddbmm";
    if (adds || name == "aten::mm" || name == "aten::bmm") {
      const at::Tensor &a = inputs[adds ? 1 : 0].toTensor(), &b = inputs[adds ? 2 : 1].toTensor();
      const Exact macs = Exact(a.numel()) * b.size(-1);
      pending_.attention += macs;
      if (attends_ && all_.value() > 0) {
        pending_.pairs += macs;
        pending_.hidden += Exact(macs.value() / all_.value()) * hidden_;
      }
    }
  }
  void add_attention() {
    const LayerMacs part = std::exchange(pending_, LayerMacs());
    layer_.attention += part.attention;
    layer_.pairs += part.pairs;
    layer_.hidden += part.hidden;
  }

  static thread_local Counter* current_;
  at::CallbackHandle handle_;
  ForwardMacs macs_;
  LayerMacs layer_, pending_;  // of the current layer; since the last value shown
  bool attends_ = false;
  Exact all_ = 0, hidden_ = 0;  // pairs of the current attention
};

thread_local Counter* Counter::current_ = nullptr;

at::Tensor meta_tokens(std::int64_t rows, std::int64_t length) {
  return at::empty({rows, length}, at::TensorOptions(at::kLong).device(at::kMeta));
}

void run(const models::Model& model, std::int64_t rows, const nn::Context& context) {
  const config::ModelOptions& o = model.options();
  const at::TensorOptions values = at::TensorOptions(at::kFloat).device(at::kMeta);
  const at::Tensor tokens = o.kind == config::ModelKind::vision ? at::Tensor() : meta_tokens(rows, o.context_length);
  switch (o.kind) {
    case config::ModelKind::language_model: {
      models::Memory memory;
      const models::MemoryShape shape = model.memory_shape();
      for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
        memory.layers.push_back(at::empty({rows, shape.length, shape.width}, values));
      }
      dynamic_cast<const models::LanguageModel&>(model).logits(tokens, memory, context);
      return;
    }
    case config::ModelKind::masked_language_model:
      dynamic_cast<const models::MaskedLanguageModel&>(model).logits(tokens, {}, context);
      return;
    case config::ModelKind::encoder_decoder:
      dynamic_cast<const models::EncoderDecoder&>(model).logits(
          {.source = tokens, .valid_source = {}, .target = tokens, .valid_target = {}}, context);
      return;
    case config::ModelKind::classifier:
      dynamic_cast<const models::Classifier&>(model).logits(tokens, o.paired ? tokens : at::Tensor(), context);
      return;
    case config::ModelKind::vision:
      dynamic_cast<const models::VisionTransformer&>(model).logits(
          at::empty({rows, o.image_channels, o.image_size, o.image_size}, values), context);
      return;
  }
}

}  // namespace

LayerMacs ForwardMacs::sum() const {
  LayerMacs all;
  for (const LayerMacs& layer : layers) {
    all.attention += layer.attention;
    all.mlp += layer.mlp;
    all.pairs += layer.pairs;
    all.hidden += layer.hidden;
  }
  return all;
}

std::unique_ptr<models::Model> on_meta_device(const config::ModelOptions& options) {
  return with_sizes_checked(
      [&] { return models::make_model(options, 1, at::TensorOptions(at::kFloat).device(at::kMeta)); });
}

ForwardMacs forward_macs(const models::Model& model, std::int64_t rows, bool training) {
  return with_sizes_checked([&] {
    const at::NoGradGuard no_grad;
    Counter counter;
    run(model, rows,
        {.training = training,
         .from_generator = true,
         .implementation = config::Implementation::reference,
         .observer = &counter});
    return counter.result();
  });
}

Exact cached_elements(const models::Model& model) {
  return with_sizes_checked([&]() -> Exact {
    const at::NoGradGuard no_grad;
    const nn::Context context{.implementation = config::Implementation::reference, .batched = true};
    const at::Tensor token = at::zeros({1, 1}, at::kLong);
    if (const auto* generates = dynamic_cast<const models::LanguageModel*>(&model)) {
      std::vector<models::DecodeState> states = {generates->start_decoding()};
      generates->decode(models::decode_rows(token, states), context);
      return states[0].cache_elements();
    }
    if (const auto* translates = dynamic_cast<const models::EncoderDecoder*>(&model)) {
      const at::Tensor source = meta_tokens(1, model.options().context_length);
      std::vector<models::DecodeState> states = translates->start_decoding(source, {}, context);
      translates->decode(models::decode_rows(token, states), context);
      return states[0].cache_elements();
    }
    return 0;
  });
}

namespace {

at::Tensor index_select(const at::Tensor& t, std::int64_t dim, const at::Tensor& index) {
  std::vector<std::int64_t> sizes = t.sizes().vec();
  sizes.at(static_cast<std::size_t>(at::maybe_wrap_dim(dim, t.dim()))) = index.numel();
  return t.new_empty(sizes);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_layer_norm(const at::Tensor& x, c10::SymIntArrayRef shape,
                                                                 const std::optional<at::Tensor>&,
                                                                 const std::optional<at::Tensor>&, double) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  std::fill(sizes.end() - std::ssize(shape), sizes.end(), 1);
  return {at::empty_like(x), x.new_empty(sizes), x.new_empty(sizes)};
}

std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& x) {
  return {at::empty_like(x), x.new_empty({0})};
}

// Handles elementwise operators, with or without a last argument for the result.
void elementwise(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  // The first argument has the device, since the last may be a number; the last has the type, since where() begins with
  // a condition.
  const at::Tensor last = arguments.back().toTensor();
  const at::Tensor out =
      op.schema().is_mutable() ? last : arguments.front().toTensor().new_empty(0, last.scalar_type());
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < arguments.size() - (op.schema().is_mutable() ? 1 : 0); ++i) {
    if (arguments[i].isTensor()) {
      sizes = at::infer_size(sizes, arguments[i].toTensor().sizes());
    }
  }
  out.resize_(sizes);
  torch::jit::drop(*stack, arguments.size());
  torch::jit::push(*stack, out);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("index_select", index_select);
  library.impl("native_layer_norm", native_layer_norm);
  library.impl("log_sigmoid_forward", log_sigmoid_forward);
  for (const char* name :
       {"abs.out", "floor_divide", "logical_and.out", "logical_not.out", "logical_or.out", "relu", "where.self"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&elementwise>());
  }
}

}  // namespace headroom::cost
