// Structs that name their members once, and what takes them apart and puts them together as an operator's arguments and
// results.
//
// A struct is described by visit(v): v("q", q) for each member in the order of the schema, v.constant("index", index)
// for tensors without a derivative, v.changed("m", m) for lists of tensors changed in place, and v.by_name() before
// the first that Python gives by name only. v.needed("step", step): a number without a default.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/stack.h>
#include <fmt/format.h>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace headroom::ops {

using OptionalTensor = std::optional<at::Tensor>;
using Stack = torch::jit::Stack;

inline OptionalTensor optional(const at::Tensor& t) {
  return t.defined() ? OptionalTensor(t) : std::nullopt;
}

// The result of an operator that has but one.
struct Single {
  at::Tensor result;
  template <class V>
  void visit(V& v) {
    v("result", result);
  }
};

// What the backward pass of an operator takes that needs its inputs and no more.
template <class Arguments>
struct GradAndInputs {
  at::Tensor grad;
  Arguments in;
  template <class V>
  void visit(V& v) {
    v("grad", grad);
    in.visit(v);
  }
};

namespace described {

template <class T>
constexpr bool kTensors = std::is_same_v<T, std::vector<at::Tensor>>;
template <class T>
constexpr bool kOptional = std::is_same_v<T, OptionalTensor>;
template <class T>
constexpr bool kTensor = std::is_same_v<T, at::Tensor>;

// What visitors have in common: kinds of members that they do not tell apart.
template <class Self>
struct All {
  template <class T>
  void constant(const char* name, T& member) {
    static_cast<Self&> (*this)(name, member);
  }
  template <class T>
  void changed(const char* name, T& member) {
    static_cast<Self&> (*this)(name, member);
  }
  template <class T>
  void needed(const char* name, T& member) {
    static_cast<Self&> (*this)(name, member);
  }
  void by_name() {}
};
// Those that look at tensors with a derivative only.
struct Results {
  template <class T>
  void constant(const char* /*name*/, const T& /*member*/) {}
  template <class T>
  void needed(const char* /*name*/, const T& /*member*/) {}
  void by_name() {}
};

// "Tensor q, Tensor? b=None, float scale=1": the arguments of a schema, with the members' values as defaults.
class ArgumentsSchema : public All<ArgumentsSchema> {
 public:
  template <class T>
  void operator()(const char* name, const T& member) {
    if constexpr (kTensor<T>) {
      add("Tensor {}", name);
    } else if constexpr (kOptional<T>) {
      add("Tensor? {}=None", name);
    } else if constexpr (kTensors<T>) {
      add("Tensor[]? {}=None", name);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      add("bool[]? {}=None", name);
    } else if constexpr (std::is_same_v<T, bool>) {
      add("bool {}={}", name, member ? "True" : "False");
    } else if constexpr (std::is_same_v<T, std::string>) {
      add("str {}=\"{}\"", name, member);
    } else {
      static_assert(std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>);
      add("{} {}={}", std::is_same_v<T, double> ? "float" : "int", name, member);
    }
  }
  void changed(const char* name, const std::vector<at::Tensor>& /*member*/) { add("Tensor({}!)[] {}", alias_++, name); }
  void needed(const char* name, std::int64_t /*member*/) { add("int {}", name); }
  void by_name() {
    if (text.find('*') == std::string::npos) {
      add("*");
    }
  }
  std::string text;

 private:
  template <class... T>
  void add(fmt::format_string<T...> format, T&&... values) {
    text += (text.empty() ? "" : ", ") + fmt::format(format, std::forward<T>(values)...);
  }
  char alias_ = 'a';
};

// "Tensor o, Tensor log_sum": the results of a schema.
struct ResultsSchema : Results {
  std::string text;
  template <class T>
  void operator()(const char* name, const T& /*member*/) {
    if constexpr (kTensor<T> || kOptional<T> || kTensors<T>) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kTensors<T> ? "Tensor[]" : "Tensor", name);
    }
  }
};

struct PushArguments : All<PushArguments> {
  Stack& stack;
  explicit PushArguments(Stack& to) : stack(to) {}
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    stack.emplace_back(std::move(member));
  }
};

struct TakeArguments : All<TakeArguments> {
  c10::IValue* next;
  explicit TakeArguments(c10::IValue* first) : next(first) {}
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    if (!next->isNone() || kOptional<T>) {  // a list may be absent, too
      member = std::move(*next).template to<T>();
    }
    ++next;
  }
};

struct Count : All<Count> {
  std::size_t n = 0;
  template <class T>
  void operator()(const char* /*name*/, const T& /*member*/) {
    ++n;
  }
};

// An undefined tensor means that there is none.
struct PushResults : Results {
  Stack& stack;
  explicit PushResults(Stack& to) : stack(to) {}
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    if constexpr (kOptional<T>) {
      stack.emplace_back(member.value_or(at::Tensor()));
    } else if constexpr (kTensor<T> || kTensors<T>) {
      stack.emplace_back(std::move(member));
    }
  }
};

struct TakeResults : Results {
  c10::IValue* next;
  explicit TakeResults(c10::IValue* first) : next(first) {}
  template <class T>
  void operator()(const char* /*name*/, T& member) {
    if constexpr (kTensors<T>) {
      member = (next++)->toTensorVector();
    } else if constexpr (kTensor<T> || kOptional<T>) {
      const at::Tensor t = next->isNone() ? at::Tensor() : next->toTensor();
      ++next;
      if (t.defined()) {
        member = t;
      }
    }
  }
};

// All tensors with a derivative, one after the other; undefined for those that are absent.
struct Slots : Results {
  std::vector<at::Tensor> tensors;
  template <class T>
  void operator()(const char* /*name*/, const T& member) {
    if constexpr (kTensors<T>) {
      tensors.insert(tensors.end(), member.begin(), member.end());
    } else if constexpr (kOptional<T>) {
      tensors.push_back(member.value_or(at::Tensor()));
    } else if constexpr (kTensor<T>) {
      tensors.push_back(member);
    }
  }
};

}  // namespace described

template <class Struct>
std::vector<at::Tensor> slots(Struct of) {
  described::Slots all;
  of.visit(all);
  return std::move(all.tensors);
}

// Both at the end of the stack.
template <class Struct>
void push_arguments(Stack& stack, Struct arguments) {
  described::PushArguments push(stack);
  arguments.visit(push);
}
template <class Struct>
Struct take_arguments(Stack& stack) {
  Struct result;
  described::Count count;
  result.visit(count);
  described::TakeArguments take(stack.data() + stack.size() - count.n);
  result.visit(take);
  torch::jit::drop(stack, count.n);
  return result;
}

inline void push_results(Stack& stack, at::Tensor result) {
  stack.emplace_back(std::move(result));
}
template <class Struct>
void push_results(Stack& stack, Struct results) {
  described::PushResults push(stack);
  results.visit(push);
}
// The stack holds nothing else.
template <class Struct>
Struct take_results(Stack stack) {
  Struct results;
  described::TakeResults take(stack.data());
  results.visit(take);
  return results;
}

// "name(arguments) -> (results)". Results: a described struct, one tensor, or void.
template <class Arguments, class Results>
std::string schema_of(const std::string& name) {
  described::ArgumentsSchema arguments;
  Arguments().visit(arguments);
  described::ResultsSchema results;
  if constexpr (std::is_same_v<Results, at::Tensor>) {
    results.text = "Tensor";
  } else if constexpr (!std::is_void_v<Results>) {
    Results().visit(results);
  }
  return fmt::format("{}({}) -> ({})", name, arguments.text, results.text);
}

}  // namespace headroom::ops
