// Models written by transformers and by DCFormer's authors; tests change copies of their folders.
#pragma once

#include "engine/store/checkpoint_reader.h"
#include "folder_test.h"
#include "headroom/core/json.h"
#include "headroom/models/language_model.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/huggingface.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"

namespace headroom::store::fixtures {

namespace fs = std::filesystem;

// huggingface/make.py describes these models and their logits.
inline const fs::path kModels = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "engine" / "store" / "huggingface";
inline const fs::path kTokenizer = kModels / "tokenizer.json";

inline Checkpoint import_model(const std::string& name) {
  return import_huggingface(kModels / name, kTokenizer).checkpoint;
}

inline at::Tensor tensor_of(const fs::path& path, const std::string& name) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  return view_of(file, name, file->at(name)).clone();
}

inline at::Tensor logits_of(const Checkpoint& checkpoint, const at::Tensor& tokens) {
  const c10::InferenceMode no_graph;
  const auto model = build_model(checkpoint);
  models::Memory memory;
  return models::as_language_model(*model, "test").logits(tokens, memory, nn::Context());
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}
// Holds a copy of a model's folder, for tests that change its config.json and tensors.
class HuggingfaceFolder : public testing::Test {
 protected:
  void copy(const std::string& name) {
    path_ = folder_ / "model";
    fs::remove_all(path_);
    fs::copy(kModels / name, path_);
  }
  template <class Change>
  void change_config(Change&& change) {
    Json json = parse_json(read_text_file(path_ / "config.json"), "config.json");
    change(json);
    write_text_file(path_ / "config.json", json.dump());
  }
  void set(const std::string& pointer, const std::string& value) {
    change_config([&](Json& json) { json[Json::json_pointer(pointer)] = Json::parse(value); });
  }
  // Rewrites the tensors in `files` shards after `change`, which may add tensors and remove some (undefined).
  template <class Change>
  void rewrite(Change&& change, std::size_t files = 1) {
    std::map<std::string, at::Tensor> tensors;
    {
      const auto file = std::make_shared<const SafetensorsFile>(path_ / "model.safetensors");
      for (const auto& [name, stored] : file->tensors()) {
        tensors[name] = view_of(file, name, stored).clone();
      }
    }
    change(tensors);
    fs::remove(path_ / "model.safetensors");
    std::vector<SafetensorsWriter> writers(files);
    Json map = Json::object();
    std::size_t next = 0;
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.contiguous();
      const std::size_t file = next++ % files;
      writers[file].add(name, stored_type(tensor.scalar_type(), name), tensor.sizes().vec(), bytes_of(tensor));
      map[name] = shard(file);
    }
    for (std::size_t file = 0; file < files; ++file) {
      writers[file].write(path_ / (files == 1 ? "model.safetensors" : shard(file)));
    }
    if (files > 1) {
      write_text_file(path_ / "model.safetensors.index.json", Json{{"weight_map", map}}.dump());
    }
  }
  static std::string shard(std::size_t file) { return fmt::format("model-{}.safetensors", file); }
  std::string refusal() const {
    return user_error_of([&] { import_huggingface(path_, kTokenizer); });
  }
  std::string export_refusal(const Checkpoint& checkpoint) const {
    return user_error_of([&] { export_huggingface(checkpoint, folder_ / "out", "run"); });
  }
  Checkpoint read() const { return import_huggingface(path_, kTokenizer).checkpoint; }

  tiny::Folder folder_;
  fs::path path_;
};

}  // namespace headroom::store::fixtures
