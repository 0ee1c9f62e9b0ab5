// Trains a small SwitchHead language model to count, with a plain SGD loop.
#include <ATen/core/grad_mode.h>
#include <headroom/models/language_model.h>

#include <cstdio>

int main() {
  headroom::config::ModelOptions options;
  options.vocabulary_size = 16;
  options.n_layers = 2;
  options.d_model = 32;
  options.context_length = 24;
  options.attention.n_heads = 2;
  options.attention.d_head = 16;
  options.attention.projection = "experts";
  options.mlp.d_hidden = 64;
  headroom::models::LanguageModel model(options, /*seed=*/1);
  headroom::models::Memory memory;  // stays empty with memory_length = 0
  headroom::nn::Context context;
  context.training = true;

  const at::Tensor tokens = (at::arange(25).unsqueeze(0) + at::arange(8).unsqueeze(1)).remainder(16);
  double first = 0.0, last = 0.0;
  for (int step = 0; step < 60; ++step) {
    model.parameters().zero_grad();
    const at::Tensor loss = model.loss(tokens, memory, context).total();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (const headroom::nn::Parameter& parameter : model.parameters().all()) {
      parameter.tensor.sub_(parameter.tensor.grad(), 0.5);
    }
    (step == 0 ? first : last) = loss.item<double>();
  }
  std::printf("%lld parameters, loss %.2f, after 60 steps %.2f\n", static_cast<long long>(model.parameters().count()),
              first, last);
  return last < 0.5 * first ? 0 : 1;
}
