#include "fuzz.h"

#include "foundation/core/machine/log.h"
#include "headroom/models/language_model.h"
#include "headroom/store/huggingface.h"
#include "tiny/files.h"

namespace headroom::store::store_fuzz_test {

namespace fs = std::filesystem;

TEST(StoreFuzz, Checkpoints) {
  set_log_level(LogLevel::quiet);
  const tiny::Folder folder;
  config::Config config = tiny::config();
  config.model.n_layers = 1;
  config.model.vocabulary_size = config.tokenizer.vocabulary_size = 12;
  Checkpoint checkpoint;
  checkpoint.config = config;
  checkpoint.tokenizer = tokenizers::restore_tokenizer(config::TokenizerKind::bytes, "abcdefghijkl", "test");
  const models::LanguageModel model(config.model, 1);
  for (const nn::Parameter& parameter : model.parameters().stored()) {
    checkpoint.tensors["model." + parameter.name] = parameter.tensor.detach();
  }
  const auto text_of = [&] {
    save_checkpoint(checkpoint, folder / "good.safetensors");
    return read_text_file(folder / "good.safetensors");
  };
  const std::string whole = text_of();
  const fuzz::Material material{
      .good = {whole},
      .dictionary = {"n_layers = 3", "d_model = 1048576", "[model]", "\\n", "\"F32\"", "\"F16\"", "checksums", "step",
                     "tokenizer_kind", "bpe", "vocabulary_size = 13", "kind = \\\"vision\\\""}};
  fuzz::against(material, 300, [&](const std::string& input) {
    fs::remove(folder / "input.safetensors");
    write_text_file(folder / "input.safetensors", input);
    const Checkpoint read = read_checkpoint(folder / "input.safetensors");
    EXPECT_EQ(read.tokenizer->name(), checkpoint.tokenizer->name());
  });
}

TEST(StoreFuzz, ConfigOfHuggingface) {
  const tiny::Folder folder;
  const fs::path models = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "engine" / "store" / "huggingface";
  for (const char* name : {"gpt2", "gpt_neox", "llama"}) {
    const fs::path copy = folder / name;
    fs::copy(models / name, copy);
    fs::copy(models / "tokenizer.json", copy);
    const fuzz::Material material{
        .good = {read_text_file(copy / "config.json")},
        .dictionary = {"null", "true", "16777216", "-1", "1e300", "\"rope_scaling\": {\"type\": \"linear\"},", "{}",
                       "[]", "\"head_dim\": 7,", "\"num_key_value_heads\": 1,", "\"n_inner\": 1,",
                       "\"vocab_size\": 41,"}};
    fuzz::against(material, 300, [&](const std::string& input) {
      fs::remove(copy / "config.json");
      write_text_file(copy / "config.json", input);
      const Imported imported = import_huggingface(copy);
      EXPECT_EQ(imported.checkpoint.tokenizer->vocabulary_size(), imported.checkpoint.config.model.vocabulary_size);
    });
  }
}

}  // namespace headroom::store::store_fuzz_test
