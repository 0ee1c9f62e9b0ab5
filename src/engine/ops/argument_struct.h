// Argument structs: an operator's arguments, results or saved values as a struct that names each member once, and the
// conversions between such structs, schemas and the dispatcher's stack.
//
// The struct's visit(v) names the members in the order of the schema: v("q", q, "k", k); v.constant("index", index) for
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

// The results of an operator with a single result.
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

// Base of visitors. Self::member(name, member) handles one member.
template <class Self>
struct Visitor {
  template <class T, class... Rest>
  void operator()(const char* name, T& member, Rest&&... rest) {
    static_cast<Self*>(this)->member(name, member);
    if constexpr (sizeof...(rest) > 0) {
      (*this)(std::forward<Rest>(rest)...);
    }
  }
  void by_name() {}
};
// Base of visitors that treat every kind of member the same way.
template <class Self>
struct All : Visitor<Self> {
  template <class T>
  void constant(const char* name, T& member) {
    (*this)(name, member);
  }
  template <class T>
  void changed(const char* name, T& member) {
    (*this)(name, member);
  }
  template <class T>
  void needed(const char* name, T& member) {
    (*this)(name, member);
  }
};
// Base of visitors that look only at tensors with a derivative.
template <class Self>
struct Results : Visitor<Self> {
  template <class T>
  void constant(const char* /*name*/, const T& /*member*/) {}
  template <class T>
  void needed(const char* /*name*/, const T& /*member*/) {}
};

// Builds the arguments of a schema, "Tensor q, Tensor? b=None, float scale=1", with the members' values as defaults.
class ArgumentsSchema : public All<ArgumentsSchema> {
 public:
  template <class T>
  void member(const char* name, const T& value) {
    if constexpr (kTensor<T>) {
      add("Tensor {}", name);
    } else if constexpr (kOptional<T>) {
      add("Tensor? {}=None", name);
    } else if constexpr (kTensors<T>) {
      add("Tensor[]? {}=None", name);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      add("bool[]? {}=None", name);
    } else if constexpr (std::is_same_v<T, bool>) {
      add("bool {}={}", name, value ? "True" : "False");
    } else if constexpr (std::is_same_v<T, std::string>) {
      add("str {}=\"{}\"", name, value);
    } else {
      static_assert(std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>);
      add("{} {}={}", std::is_same_v<T, double> ? "float" : "int", name, value);
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
struct ResultsSchema : Results<ResultsSchema> {
  std::string text;
  template <class T>
  void member(const char* name, const T& /*value*/) {
    if constexpr (kTensor<T> || kOptional<T> || kTensors<T>) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kTensors<T> ? "Tensor[]" : "Tensor", name);
    }
  }
};

struct PushArguments : All<PushArguments> {
  Stack& stack;
  explicit PushArguments(Stack& to) : stack(to) {}
  template <class T>
  void member(const char* /*name*/, T& value) {
    stack.emplace_back(std::move(value));
  }
};

struct TakeArguments : All<TakeArguments> {
  c10::IValue* next;
  explicit TakeArguments(c10::IValue* first) : next(first) {}
  template <class T>
  void member(const char* /*name*/, T& value) {
    if (!next->isNone() || kOptional<T>) {  // lists may be None, too
      value = std::move(*next).template to<T>();
    }
    ++next;
  }
};

struct Count : All<Count> {
  std::size_t n = 0;
  template <class T>
  void member(const char* /*name*/, const T& /*value*/) {
    ++n;
  }
};

// Optional tensors that are not set are pushed as undefined tensors.
struct PushResults : Results<PushResults> {
  Stack& stack;
  explicit PushResults(Stack& to) : stack(to) {}
  template <class T>
  void member(const char* /*name*/, T& value) {
    if constexpr (kOptional<T>) {
      stack.emplace_back(value.value_or(at::Tensor()));
    } else if constexpr (kTensor<T> || kTensors<T>) {
      stack.emplace_back(std::move(value));
    }
  }
};

struct TakeResults : Results<TakeResults> {
  c10::IValue* next;
  explicit TakeResults(c10::IValue* first) : next(first) {}
  template <class T>
  void member(const char* /*name*/, T& value) {
    if constexpr (kTensors<T>) {
      value = (next++)->toTensorVector();
    } else if constexpr (kTensor<T> || kOptional<T>) {
      const at::Tensor t = next->isNone() ? at::Tensor() : next->toTensor();
      ++next;
      if (t.defined()) {
        value = t;
      }
    }
  }
};

// Collects all tensors with a derivative; undefined for optional tensors that are not set.
struct Slots : Results<Slots> {
  std::vector<at::Tensor> tensors;
  template <class T>
  void member(const char* /*name*/, const T& value) {
    if constexpr (kTensors<T>) {
      tensors.insert(tensors.end(), value.begin(), value.end());
    } else if constexpr (kOptional<T>) {
      tensors.push_back(value.value_or(at::Tensor()));
    } else if constexpr (kTensor<T>) {
      tensors.push_back(value);
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
// The stack must contain the results only.
template <class Struct>
Struct take_results(Stack stack) {
  Struct results;
  visitors::TakeResults take(stack.data());
  results.visit(take);
  return results;
}

// Returns "name(arguments) -> (results)". Results: an argument struct, at::Tensor, or void.
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
