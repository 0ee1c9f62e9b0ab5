// One process: autograd adds the gradients up.
#include "exchange.h"
#include "foundation/core/machine/system.h"
#include "headroom/ops/optimizers.h"

namespace headroom::train {
namespace {

// Kept on the device until all are under way: to read a number is to wait for it.
class LossSum {
 public:
  void add(const Report& report) {
    add(cross_entropy_, report.cross_entropy);
    if (report.regulariser.defined()) {
      add(regulariser_, report.regulariser);
    }
  }
  void read(Gathered& out) const {
    if (!regulariser_.defined()) {
      out.loss = cross_entropy_.item<double>();
      return;
    }
    const at::Tensor both = at::stack({cross_entropy_, regulariser_}).cpu();
    out.loss = both[0].item<double>();
    out.regulariser = both[1].item<double>();
  }

 private:
  static void add(at::Tensor& sum, const at::Tensor& part) { sum = sum.defined() ? sum + part : part; }
  at::Tensor cross_entropy_, regulariser_;  // float64
};

class LocalExchange : public Exchange {
 public:
  LocalExchange(models::Model& model, const config::TrainOptions& options)
      : model_(model), accumulate_(options.accumulate), owned_(Share().pieces(model.parameters())) {}

  void verify(const models::Memory& /*memory*/, const Compute& /*compute*/) override {}  // nobody else computes
  std::vector<Part> parts() const override { return {{.first = 0, .end = accumulate_}}; }
  void begin(const Part& /*part*/) override {}
  void last_backward() override {}
  void end(const Part& /*part*/) override {}

  Gathered gather(std::vector<Report> mine) override {
    Gathered all;
    LossSum sum;
    for (Report& report : mine) {
      sum.add(report);
      for (const auto& [name, update] : report.updates) {
        nn::report(all.updates, name, update);
      }
    }
    sum.read(all);
    all.gradient_norm = ops::global_norm(gradients());
    all.stop = interrupted();
    return all;
  }

  const std::vector<Piece>& owned() const override { return owned_; }

  std::vector<at::Tensor> gradients() override {
    std::vector<at::Tensor> all;
    for (const nn::Parameter& parameter : model_.parameters().all()) {
      at::Tensor& gradient = parameter.tensor.mutable_grad();
      if (!gradient.defined()) {  // no token came by (an expert bank never chosen)
        gradient = at::zeros_like(parameter.tensor.detach());
      }
      all.push_back(gradient);
    }
    return all;
  }

  void publish(bool /*moved*/) override { model_.parameters().zero_grad(); }

 private:
  models::Model& model_;
  std::int64_t accumulate_;
  std::vector<Piece> owned_;
};

}  // namespace

std::unique_ptr<Exchange> local_exchange(models::Model& model, const config::TrainOptions& options) {
  return std::make_unique<LocalExchange>(model, options);
}

}  // namespace headroom::train
