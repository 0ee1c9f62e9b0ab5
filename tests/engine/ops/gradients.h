// Compares two implementations of an operator: values and all gradients, within a bound from the caller.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace headroom::testing {

// Returns the largest difference divided by the largest element of `expected`, or undivided if that element is 0.
inline double relative_error(const at::Tensor& got, const at::Tensor& expected) {
  if (expected.numel() == 0) {
    return 0.0;
  }
  const at::Tensor wide = expected.to(at::kDouble);
  const double scale = wide.abs().max().item<double>();
  const double error = (got.to(at::kDouble) - wide).abs().max().item<double>();
  return scale > 0.0 ? error / scale : error;
}

// Holds the operator's result, and its gradients for `leaves` under a fixed weighting of the result.
struct Evaluated {
  at::Tensor value;
  std::vector<at::Tensor> gradients;
};

inline Evaluated evaluate(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& op,
                          const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach());
    leaves.back().requires_grad_(true);
  }
  Evaluated result;
  result.value = op(leaves);
  const at::Tensor weight =
      at::cos(at::arange(result.value.numel(), at::kDouble)).view(result.value.sizes()).to(result.value.device());
  const at::Tensor objective = (result.value.to(at::kDouble) * weight).sum();
  result.gradients = torch::autograd::grad({objective}, leaves, {}, false, false, /*allow_unused=*/true);
  result.value = result.value.detach();
  return result;
}

inline void expect_close(const Evaluated& got, const Evaluated& expected, double bound, const std::string& what) {
  EXPECT_LE(relative_error(got.value, expected.value), bound) << what << ": value";
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    ASSERT_EQ(got.gradients[i].defined(), expected.gradients[i].defined()) << what << ": gradient " << i;
    if (expected.gradients[i].defined()) {
      EXPECT_LE(relative_error(got.gradients[i], expected.gradients[i]), bound) << what << ": gradient " << i;
    }
  }
}

inline std::vector<at::Tensor> in_double(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> wide;
  for (const at::Tensor& t : tensors) {
    wide.push_back(t.to(at::kDouble));
  }
  return wide;
}

// Runs `check` with 1, 2 and 3 threads, then restores the number of threads.
inline void with_threads(const std::function<void(int threads)>& check) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    check(threads);
  }
  at::set_num_threads(before);
}

// Expects bit-identical results and gradients for any number of threads.
inline void expect_threads_change_nothing(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& op,
                                          const std::vector<at::Tensor>& inputs, const std::string& what) {
  Evaluated one;
  with_threads([&](int threads) {
    const Evaluated got = evaluate(op, inputs);
    if (threads == 1) {
      one = got;
    }
    expect_close(got, one, 0.0, what + ", threads " + std::to_string(threads));
  });
}

}  // namespace headroom::testing
