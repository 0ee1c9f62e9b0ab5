// A temporary folder, a short text, and a model small enough to train in a test.
#pragma once

#include <ATen/Parallel.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "data/tokens/token_file.h"
#include "foundation/core/random.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/config.h"
#include "headroom/core/files.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tiny {

// Small models are faster on one thread, especially on a busy machine.
inline const bool kOneThread = (at::set_num_threads(1), true);

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "headroom-test-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Sentences of a few words in a fixed random order.
inline std::string text(std::size_t bytes, std::uint64_t seed = 1) {
  constexpr const char* kWords[] = {"the", "head", "room", "attends", "to", "every", "token", "twice", "and", "rests"};
  Random random(seed);
  std::string out;
  while (out.size() < bytes) {
    out += kWords[random.below(std::size(kWords))];
    out += random.below(6) == 0 ? ".\n" : " ";
  }
  return out.substr(0, bytes - 1) + "\n";
}

// Two layers of SwitchHead attention with memory and all kinds of dropout, which a resumed run must restore.
inline config::Config config() {
  config::Config config;
  config.model.vocabulary_size = 256;
  config.model.n_layers = 2;
  config.model.d_model = 16;
  config.model.context_length = 8;
  config.model.memory_length = 8;
  config.model.dropout = 0.1;
  config.model.attention.n_heads = 2;
  config.model.attention.d_head = 4;
  config.model.attention.projection = "experts";
  config.model.attention.of<config::RoutingOptions>().n_experts = 3;
  config.model.attention.of<config::RoutingOptions>().top_k = 2;
  config.model.attention.of<config::RoutingOptions>().expert_dropout = 0.1;
  config.model.attention.position = "relative";
  config.model.mlp.d_hidden = 32;
  config.tokenizer.kind = config::TokenizerKind::bytes;
  config.tokenizer.vocabulary_size = 256;
  config.train.steps = 8;
  config.train.batch_size = 4;
  config.train.learning_rate = 1e-2;
  config.train.log_every = 1;
  config.train.threads = 1;
  config.train.precision = config::Precision::fp32;
  return config;
}

inline std::shared_ptr<const tokenizers::Tokenizer> bytes_tokenizer() {
  return tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "", "test");
}

// Writes `content` to `name`.txt in the folder and returns its bytes as a token file.
inline std::shared_ptr<const data::TokenFile> token_file(const Folder& folder, const std::string& name,
                                                         const std::string& content) {
  const std::filesystem::path source = folder / (name + ".txt"), target = folder / (name + ".tokens");
  write_text_file(source, content);
  const auto text_source = data::open_text({source.string()}, {});
  data::write_token_file(*text_source, *bytes_tokenizer(), target);
  return std::make_shared<const data::TokenFile>(target);
}

}  // namespace headroom::tiny
