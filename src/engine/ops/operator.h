// Operators of torch's dispatcher (`torch.ops.headroom.*`) over argument structs (argument_struct.h): schema, kernels,
// derivative and calls are derived from the structs.
//
// An operator `Op` with a derivative has
//   kName               name of the forward operator; the backward operator is kName + "_backward"
//   Arguments, Results  of the forward operator; only the first result is differentiable
//   Backward            arguments of the backward operator: `grad`, and what the forward pass saves
//   save(arguments, results) -> Backward, without `grad`
// The backward operator returns an `Arguments` with the gradients of its tensors, undefined where there is none. If
// Backward has a member `wanted`, it is set to which gradients are needed. If Op has gradients(Backward), that function
// computes the gradients from other operators, and there is no backward operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "argument_struct.h"
#include "headroom/core/error.h"

namespace headroom::ops {

template <class Struct, auto kFunction>
using ResultOf = decltype(kFunction(std::declval<Struct>()));

template <class Struct, auto kFunction>
void boxed(const c10::OperatorHandle& /*op*/, Stack* stack) {
  if constexpr (std::is_void_v<ResultOf<Struct, kFunction>>) {
    kFunction(take_arguments<Struct>(*stack));
  } else {
    push_results(*stack, kFunction(take_arguments<Struct>(*stack)));
  }
}

// Wraps a function of an argument struct as a dispatcher kernel.
template <class Struct, auto kFunction>
torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&boxed<Struct, kFunction>>();
}

inline c10::OperatorHandle find_operator(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("headroom::" + name).c_str(), "");
}

template <class Results, class Struct>
Results call_boxed(const c10::OperatorHandle& op, Struct arguments) {
  Stack stack;
  push_arguments(stack, std::move(arguments));
  op.callBoxed(stack);
  return take_results<Results>(std::move(stack));
}

template <class Op>
std::string backward_name() {
  return std::string(Op::kName) + "_backward";
}

// Calls through the dispatcher.
template <class Op>
typename Op::Results call(typename Op::Arguments arguments) {
  static const c10::OperatorHandle kOperator = find_operator(Op::kName);
  return call_boxed<typename Op::Results>(kOperator, std::move(arguments));
}
template <class Op>
typename Op::Arguments call_backward(typename Op::Backward back) {
  static const c10::OperatorHandle kOperator = find_operator(backward_name<Op>());
  return call_boxed<typename Op::Arguments>(kOperator, std::move(back));
}

// Save a struct in the context of an autograd node, and restore it.
struct Save : visitors::All<Save> {
  torch::autograd::AutogradContext& context;
  std::vector<at::Tensor> tensors;
  explicit Save(torch::autograd::AutogradContext& to) : context(to) {}
  template <class T>
  void member(const char* name, const T& value) {
    if constexpr (visitors::kTensors<T>) {
      context.saved_data[name] = static_cast<std::int64_t>(value.size());
      tensors.insert(tensors.end(), value.begin(), value.end());
    } else if constexpr (visitors::kOptional<T>) {
      tensors.push_back(value.value_or(at::Tensor()));
    } else if constexpr (visitors::kTensor<T>) {
      tensors.push_back(value);
    } else {
      context.saved_data[name] = value;
    }
  }
};
struct Restore : visitors::All<Restore> {
  torch::autograd::AutogradContext& context;
  std::vector<at::Tensor> tensors;
  std::size_t next = 0;
  explicit Restore(torch::autograd::AutogradContext& from) : context(from), tensors(from.get_saved_variables()) {}
  template <class T>
  void member(const char* name, T& value) {
    if constexpr (visitors::kTensors<T>) {
      const auto n = static_cast<std::size_t>(context.saved_data[name].toInt());
      value.assign(tensors.begin() + next, tensors.begin() + next + n);
      next += n;
    } else if constexpr (visitors::kOptional<T>) {
      value = optional(tensors[next++]);
    } else if constexpr (visitors::kTensor<T>) {
      value = tensors[next++];
    } else {
      value = context.saved_data[name].to<T>();
    }
  }
};

// Makes gradients depend on their inputs through a derivative that throws. Without it, a second backward pass would
// silently treat the gradients as constants.
class SecondDerivative : public torch::autograd::Function<SecondDerivative> {
 public:
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;

  // Returns `gradients`, which the backward operator `name` computed from `grad`, as functions of `grad` and of the
  // inputs of the autograd node that called it.
  static List of(const std::string& name, const at::Tensor& grad, List gradients) {
    List origins = {grad}, defined;
    if (const auto node = torch::autograd::get_current_node()) {
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (edge.is_valid()) {
          origins.push_back(at::empty({0}, grad.options()));
          torch::autograd::impl::set_gradient_edge(origins.back(), edge);
        }
      }
    }
    const auto is_defined = [](const at::Tensor& t) { return t.defined(); };
    std::ranges::copy_if(gradients, std::back_inserter(defined), is_defined);
    const List connected = apply(at::TensorList(origins), defined, name);
    auto next = connected.begin();
    for (at::Tensor& gradient : gradients) {
      gradient = gradient.defined() ? *next++ : gradient;
    }
    return gradients;
  }

  static List forward(Context* context, at::TensorList /*origins*/, const List& gradients, const std::string& name) {
    context->saved_data["name"] = name;
    return gradients;
  }
  static List backward(Context* context, const List& /*grads*/) {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "derivative for headroom::", context->saved_data["name"].toStringRef(),
                                " is not implemented; use implementation=\"reference\"");
  }
};

template <class Op>
class Derivative : public torch::autograd::Function<Derivative<Op>> {
 public:
  using Context = torch::autograd::AutogradContext;
  using List = torch::autograd::variable_list;

  // Autograd sees only the tensor list, which holds the defined tensors of `arguments` that have a derivative.
  static List forward(Context* context, at::TensorList /*given*/, const typename Op::Arguments& arguments) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const typename Op::Results results = call<Op>(arguments);
    Save save(*context);
    Op::save(arguments, results).visit(save);
    context->save_for_backward(std::move(save.tensors));
    std::vector<bool> given;
    for (const at::Tensor& slot : slots(arguments)) {
      given.push_back(slot.defined());
    }
    context->saved_data["given"] = given;
    const List all = slots(results);
    context->mark_non_differentiable({all.begin() + 1, all.end()});
    return all;
  }

  static List backward(Context* context, const List& grads) {
    typename Op::Backward back;
    Restore restore(*context);
    back.visit(restore);
    back.grad = grads[0];
    const c10::List<bool> given = context->saved_data["given"].toBoolList();
    std::vector<bool> wanted;
    std::size_t edge = 0;
    for (const bool there : given) {
      wanted.push_back(there && context->needs_input_grad(edge++));
    }
    if constexpr (requires { back.wanted; }) {
      back.wanted = wanted;
    }
    const List all = gradients(std::move(back));
    List result;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i]) {
        result.push_back(wanted[i] ? all[i] : at::Tensor());
      }
    }
    result.emplace_back();  // `arguments` itself has no gradient
    return result;
  }

 private:
  static List gradients(typename Op::Backward back) {
    if constexpr (requires { Op::gradients(back); }) {
      return slots(Op::gradients(back));
    } else {
      const at::Tensor grad = back.grad;
      List all;
      {
        const at::NoGradGuard no_grad;
        all = slots(call_backward<Op>(std::move(back)));
      }
      return at::GradMode::is_enabled() ? SecondDerivative::of(backward_name<Op>(), grad, all) : all;
    }
  }
};

template <class Op>
typename Op::Results differentiable(const typename Op::Arguments& arguments) {
  std::vector<at::Tensor> given = slots(arguments);
  std::erase_if(given, [](const at::Tensor& t) { return !t.defined(); });
  const auto all = Derivative<Op>::apply(at::TensorList(given), arguments);
  return take_results<typename Op::Results>({all.begin(), all.end()});
}

// Defines the schemas of the operator and its backward operator, and registers the derivative. Second derivatives
// throw.
template <class Op>
void define(torch::Library& library) {
  library.def(schema_of<typename Op::Arguments, typename Op::Results>(Op::kName).c_str());
  if constexpr (!requires(typename Op::Backward back) { Op::gradients(back); }) {
    library.def(schema_of<typename Op::Backward, typename Op::Arguments>(backward_name<Op>()).c_str());
  }
  library.impl(Op::kName,
               torch::dispatch(c10::DispatchKey::Autograd, kernel<typename Op::Arguments, differentiable<Op>>()));
}

// Registers the forward kernel for a dispatch key.
template <class Op, auto kForward>
void implement(torch::Library& library, c10::DispatchKey key) {
  library.impl(Op::kName, torch::dispatch(key, kernel<typename Op::Arguments, kForward>()));
}
// Registers the forward and the backward kernel.
template <class Op, auto kForward, auto kBackward>
void implement(torch::Library& library, c10::DispatchKey key) {
  implement<Op, kForward>(library, key);
  library.impl(backward_name<Op>().c_str(), torch::dispatch(key, kernel<typename Op::Backward, kBackward>()));
}

// The run() of a backend that has its own kernels for the operator.
template <class Op>
at::Tensor run(const typename Op::Arguments& in) {
  return call<Op>(in).result;
}

// Arguments of a public operator: the computation's arguments, and the implementation to use.
template <class Inputs>
struct Call {
  Inputs in;
  std::string implementation = "automatic";
  template <class V>
  void visit(V& v) {
    in.visit(v);
    v.by_name();
    v("implementation", implementation);
  }
};

// Throws Error if the call's tensors, the last values of the stack, are on different devices.
inline void require_one_device(const c10::OperatorHandle& op, const Stack& stack) {
  const std::size_t n = op.schema().arguments().size();
  std::optional<at::Device> first;
  const auto look = [&](const at::Tensor& t) {
    if (!t.defined() || (first && t.device() == *first)) {
      return;
    }
    if (first) {
      fail("{}: tensors must be on one device, got {} and {}", op.schema().operator_name().name.substr(10),
           first->str(), t.device().str());
    }
    first = t.device();
  };
  for (auto value = stack.end() - static_cast<std::ptrdiff_t>(n); value != stack.end(); ++value) {
    if (value->isTensor()) {
      look(value->toTensor());
    } else if (value->isTensorList()) {
      for (const at::Tensor& t : value->toTensorVector()) {
        look(t);
      }
    }
  }
}

// A kernel for callers in Python, which turns Error into ValueError.
template <class Struct, auto kFunction>
void public_boxed(const c10::OperatorHandle& op, Stack* stack) {
  try {
    require_one_device(op, *stack);
    boxed<Struct, kFunction>(op, stack);
  } catch (const Error& refusal) {
    C10_THROW_ERROR(ValueError, refusal.what());
  }
}

// Defines a public operator, composed of operators that have derivatives.
template <class Struct, auto kFunction>
void define_public(torch::Library& library, const std::string& name) {
  library.def(schema_of<Struct, ResultOf<Struct, kFunction>>(name).c_str());
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                               torch::CppFunction::makeFromBoxedFunction<&public_boxed<Struct, kFunction>>()));
}

}  // namespace headroom::ops
