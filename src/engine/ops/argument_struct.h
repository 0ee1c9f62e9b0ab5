// Argument structs: an operator's arguments, results or saved values as a struct that names each member once, and the
// conversions between such structs, schemas and the dispatcher's stack.
//
// The struct's visit(v) calls v("q", q) for each member in the order of the schema; v.constant("index", index) for
// tensors without a derivative; v.changed("m", m) for lists of tensors changed in place; v.needed("step", step) for a
// number without a default; and v.by_name() before the first keyword-only argument.
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

// The results of an operator with one result.
struct Single {
  at::Tensor result;
  template <class V>
  void visit(V& v) {
    v("result", result);
  }
};

// The backward pass's arguments of an operator that saves only its inputs.
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

namespace visitors {

template <class T>
constexpr bool kTensors = std::is_same_v<T, std::vector<at::Tensor>>;
template <class T>
constexpr bool kOptional = std::is_same_v<T, OptionalTensor>;
template <class T>
constexpr bool kTensor = std::is_same_v<T, at::Tensor>;

// Base of visitors that treat all kinds of members alike.
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
// Base of visitors that look only at tensors with a derivative.
struct Results {
  template <class T>
  void constant(const char* /*name*/, const T& /*member*/) {}
  template <class T>
  void needed(const char* /*name*/, const T& /*member*/) {}
  void by_name() {}
};

// Builds the arguments of a schema, "Tensor q, Tensor? b=None, float scale=1", with the members' values as defaults.
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

// Builds the results of a schema, "Tensor o, Tensor log_sum".
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
    if (!next->isNone() || kOptional<T>) {  // lists may be None, too
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

// Absent optional tensors are pushed as undefined tensors.
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

// Collects all tensors with a derivative; undefined for absent ones.
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

}  // namespace visitors

template <class Struct>
std::vector<at::Tensor> slots(Struct of) {
  visitors::Slots all;
  of.visit(all);
  return std::move(all.tensors);
}

// Push onto and pop from the end of the stack.
template <class Struct>
void push_arguments(Stack& stack, Struct arguments) {
  visitors::PushArguments push(stack);
  arguments.visit(push);
}
template <class Struct>
Struct take_arguments(Stack& stack) {
  Struct result;
  visitors::Count count;
  result.visit(count);
  visitors::TakeArguments take(stack.data() + stack.size() - count.n);
  result.visit(take);
  torch::jit::drop(stack, count.n);
  return result;
}

inline void push_results(Stack& stack, at::Tensor result) {
  stack.emplace_back(std::move(result));
}
template <class Struct>
void push_results(Stack& stack, Struct results) {
  visitors::PushResults push(stack);
  results.visit(push);
}
// The stack must hold nothing but the results.
template <class Struct>
Struct take_results(Stack stack) {
  Struct results;
  visitors::TakeResults take(stack.data());
  results.visit(take);
  return results;
}

// "name(arguments) -> (results)". Results: an argument struct, at::Tensor, or void.
template <class Arguments, class Results>
std::string schema_of(const std::string& name) {
  visitors::ArgumentsSchema arguments;
  Arguments().visit(arguments);
  visitors::ResultsSchema results;
  if constexpr (std::is_same_v<Results, at::Tensor>) {
    results.text = "Tensor";
  } else if constexpr (!std::is_void_v<Results>) {
    Results().visit(results);
  }
  return fmt::format("{}({}) -> ({})", name, arguments.text, results.text);
}

}  // namespace headroom::ops
