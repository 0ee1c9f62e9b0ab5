// Python bindings for tokenizers, checkpoints and Hugging Face folders.
#include <torch/custom_class.h>

#include <memory>

#include "context.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/huggingface.h"
#include "headroom/store/open_model.h"
#include "layer.h"

namespace headroom::python {
namespace {

struct Tokenizer : torch::CustomClassHolder {
  explicit Tokenizer(std::shared_ptr<const tokenizers::Tokenizer> with) : engine(std::move(with)) {}
  std::shared_ptr<const tokenizers::Tokenizer> engine;
};

using Handle = c10::intrusive_ptr<Tokenizer>;

at::Tensor to_tensor(std::string_view bytes) {
  const at::Tensor tensor = at::empty({std::ssize(bytes)}, at::kByte);
  std::ranges::copy(bytes, tensor.mutable_data_ptr<std::uint8_t>());
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
    narrow.push_back(static_cast<std::int32_t>(id));
    if (narrow.back() != id) {
      fail("decode: an id must be 0 to {}, got {}", tokenizer.vocabulary_size() - 1, id);
    }
  }
  return to_tensor(tokenizer.decode(narrow));
}

// Must be registered before all operators that take or return a tokenizer.
void register_tokenizer(torch::Library& library) {
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
  library.def("load_tokenizer", throwing_value_errors(load));
  library.def("restore_tokenizer", throwing_value_errors(restore));
  library.def("two_tokenizers", throwing_value_errors(two_tokenizers));
}

namespace fs = std::filesystem;

using Tensors = std::vector<at::Tensor>;
using MaybeTokenizer = std::optional<Handle>;

// The model's kind, its description and its parameters in creation order; then the config (TOML), step, tokenizer and
// special tokens (JSON; empty: none), which write_checkpoint() takes.
using Opened = std::tuple<std::string, std::string, Tensors, std::string, std::int64_t, MaybeTokenizer, std::string>;

Opened read_checkpoint(const std::string& run_or_checkpoint) {
  const fs::path file = store::find_checkpoint(run_or_checkpoint);
  const store::Checkpoint checkpoint = store::read_checkpoint(file);
  store::require_finite(checkpoint, file.string());
  const auto model = store::build_model(checkpoint);
  Tensors values;
  for (const nn::Parameter& parameter : model->parameters().in_creation_order()) {
    values.push_back(parameter.tensor.clone());  // a copy, not a view of the file
  }
  MaybeTokenizer tokenizer;
  if (checkpoint.tokenizer) {
    tokenizer = c10::make_intrusive<Tokenizer>(checkpoint.tokenizer);
  }
  const auto special = checkpoint.metadata.find(store::kSpecialTokens);
  return {std::string(config::name_of(checkpoint.config.model.kind)),
          describe({.kind = "model", .model = checkpoint.config.model}),
          values,
          config::to_toml(checkpoint.config),
          checkpoint.step,
          tokenizer,
          special == checkpoint.metadata.end() ? "" : special->second};
}

// Sets the tokenizer in the config. Throws UserError if it does not match the model.
void check_tokenizer(const tokenizers::Tokenizer* tokenizer, config::Config& config) {
  const config::ModelOptions& model = config.model;
  if (model.has_classes()) {
    if (tokenizer != nullptr) {
      user_error("save_checkpoint: tokenizer must not be given for a model with classes");
    }
    return;
  }
  if (tokenizer == nullptr) {
    user_error("save_checkpoint: tokenizer must be given, as the model has none");
  }
  const std::int64_t special = config::n_special_tokens(model.kind), known = tokenizer->vocabulary_size() + special;
  if (known != model.vocabulary_size) {
    user_error("save_checkpoint: tokenizer must have the {} tokens of the model's vocabulary_size, got {} with {}",
               model.vocabulary_size - special, tokenizer->name(), tokenizer->vocabulary_size());
  }
  tokenizers::require_source_vocabulary(*tokenizer, model.source_vocabulary_size, "save_checkpoint");
  config.tokenizer.kind = tokenizer->kind();
  config.tokenizer.vocabulary_size = tokenizer->vocabulary_size();
  config.tokenizer.model.clear();  // the checkpoint contains it
  config.tokenizer.source_model.clear();
}

// `config` is from read_checkpoint(), or empty.
config::Config config_of(const Layer& layer, const std::string& config) {
  config::Config all;
  if (config.empty()) {
    all.train.precision = config::Precision::fp32;  // so that the logits equal Python's on any machine
    all.tokenizer.vocabulary_size = layer.model.vocabulary_size;
  } else {
    all = config::parse_config(config, "save_checkpoint");
  }
  all.model = layer.model;
  return all;
}

void write_checkpoint(const std::string& path, const std::string& description, const Tensors& values,
                      const std::string& config, std::int64_t step, const MaybeTokenizer& tokenizer,
                      const std::string& special_tokens) {
  store::require_replaceable(path, "save_checkpoint: path");
  const Layer& layer = layer_of(description);
  store::Checkpoint checkpoint;
  checkpoint.config = config_of(layer, config);
  checkpoint.step = step;
  checkpoint.tokenizer = tokenizer ? (*tokenizer)->engine : nullptr;
  if (!special_tokens.empty()) {
    checkpoint.metadata.emplace(store::kSpecialTokens, special_tokens);
  }
  check_tokenizer(checkpoint.tokenizer.get(), checkpoint.config);
  config::check(checkpoint.config, "save_checkpoint");
  nn::Parameters parameters;
  make_parameters(layer, parameters, nn::ParameterSource(values));
  for (const nn::Parameter& parameter : parameters.in_creation_order()) {
    checkpoint.tensors.emplace("model." + parameter.name, parameter.tensor.detach().to(at::kFloat));
  }
  store::save_checkpoint(checkpoint, path);
}

// Imports a folder that contains a config.json; exports a run or checkpoint. Returns the model_type.
std::string convert(const std::string& source, const std::string& target, const std::string& tokenizer) {
  std::error_code ignored;
  if (!fs::is_directory(target, ignored)) {
    store::require_replaceable(target, "convert: target");
  }
  if (fs::exists(fs::path(source) / "config.json", ignored)) {
    const store::Imported imported = store::import_huggingface(source, tokenizer);
    store::save_checkpoint(imported.checkpoint, target);
    return imported.kind;
  }
  if (!tokenizer.empty()) {
    user_error("convert: tokenizer: can be given only for a folder with a config.json, but {} has none", source);
  }
  const fs::path file = store::find_checkpoint(source);
  const store::Checkpoint checkpoint = store::read_checkpoint(file);
  store::require_finite(checkpoint, file.string());
  return store::export_huggingface(checkpoint, target, file.string());
}

void export_tokenizer(const Handle& tokenizer, std::int64_t context_length, const std::string& folder,
                      const std::string& special_tokens) {
  store::Checkpoint checkpoint;
  if (!special_tokens.empty()) {
    checkpoint.metadata.emplace(store::kSpecialTokens, special_tokens);
  }
  store::export_tokenizer(*tokenizer->engine, context_length, folder, store::stored_special_tokens(checkpoint));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  register_tokenizer(library);
  library.def("read_checkpoint", throwing_value_errors(read_checkpoint));
  library.def("write_checkpoint", throwing_value_errors(write_checkpoint));
  library.def("convert", throwing_value_errors(convert));
  library.def("export_tokenizer", throwing_value_errors(export_tokenizer));
}

}  // namespace headroom::python
