#include "tokenizer.h"

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "refusal.h"

namespace headroom::python {
namespace {

using Handle = c10::intrusive_ptr<Tokenizer>;

at::Tensor to_tensor(std::string_view bytes) {
  const at::Tensor tensor = at::empty({std::ssize(bytes)}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.mutable_data_ptr<std::uint8_t>());
  return tensor;
}

std::string to_bytes(const at::Tensor& tensor) {
  const at::Tensor bytes = tensor.to(at::kCPU, at::kByte).contiguous();
  const auto* const begin = bytes.const_data_ptr<std::uint8_t>();
  return {begin, begin + bytes.numel()};
}

Handle restore(const std::string& kind, const at::Tensor& serialised) {
  config::Config config;
  config::set_key(config, "tokenizer.kind=" + kind, "tokenizer");
  return c10::make_intrusive<Tokenizer>(
      tokenizers::restore_tokenizer(config.tokenizer.kind, to_bytes(serialised), "tokenizer"));
}

Handle load(const std::string& path) {
  return c10::make_intrusive<Tokenizer>(tokenizers::load_tokenizer(path));
}

Handle two_tokenizers(const Handle& sources, const Handle& targets) {
  return c10::make_intrusive<Tokenizer>(tokenizers::two_tokenizers(sources->engine, targets->engine));
}

at::Tensor encode(const tokenizers::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  return at::tensor(ids, at::kInt).to(at::kLong);
}

at::Tensor decode(const tokenizers::Tokenizer& tokenizer, const at::Tensor& ids) {
  if (ids.dim() != 1 || ids.scalar_type() != at::kLong) {
    fail("decode: ids must be int64 [n], got {} {}", c10::toString(ids.scalar_type()), c10::str(ids.sizes()));
  }
  std::vector<std::int32_t> narrow;
  const at::Tensor there = ids.to(at::kCPU).contiguous();
  for (const std::int64_t id :
       std::span(there.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(there.numel()))) {
    narrow.push_back(id < 0 || id > INT32_MAX ? -1 : static_cast<std::int32_t>(id));
  }
  return to_tensor(tokenizer.decode(narrow));
}

}  // namespace

void offer_tokenizer(torch::Library& library) {
  using State = std::tuple<std::string, at::Tensor>;
  library.class_<Tokenizer>("Tokenizer")
      .def("kind", [](const Handle& self) { return std::string(config::name_of(self->engine->kind())); })
      .def("name", [](const Handle& self) { return self->engine->name(); })
      .def("vocabulary_size", [](const Handle& self) { return self->engine->vocabulary_size(); })
      .def("for_sources",
           [](const Handle& self) {
             return c10::make_intrusive<Tokenizer>(
                 std::shared_ptr<const tokenizers::Tokenizer>(self->engine, &self->engine->for_sources()));
           })
      .def("serialised", [](const Handle& self) { return to_tensor(self->engine->serialised()); })
      .def("encode",
           [](const Handle& self, const std::string& text) {
             return with_value_errors([&] { return encode(*self->engine, text); });
           })
      .def("decode",
           [](const Handle& self, const at::Tensor& ids) {
             return with_value_errors([&] { return decode(*self->engine, ids); });
           })
      .def("save",
           [](const Handle& self, const std::string& path) {
             with_value_errors([&] { tokenizers::save_tokenizer(*self->engine, path); });
           })
      .def_pickle(
          [](const Handle& self) -> State {
            return {std::string(config::name_of(self->engine->kind())), to_tensor(self->engine->serialised())};
          },
          [](const State& state) {
            return with_value_errors([&] { return restore(std::get<0>(state), std::get<1>(state)); });
          });
  library.def("load_tokenizer", refusing(load));
  library.def("restore_tokenizer", refusing(restore));
  library.def("two_tokenizers", refusing(two_tokenizers));
}

}  // namespace headroom::python
