// Compares imported models with transformers: logits, a gradient and generated text. Also tests the export.
#include "huggingface_folder.h"

namespace headroom::store::huggingface_test {

using namespace fixtures;

// Returns the models whose expected values include `tensor`. All have logits; some also have a gradient and a generated
// text.
std::vector<std::string> models_with(const char* tensor) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kModels)) {
    const fs::path expected = entry.path() / "expected.safetensors";
    if (fs::exists(expected) && SafetensorsFile(expected).tensors().contains(tensor)) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

class Huggingface : public testing::TestWithParam<std::string> {};
class HuggingfaceRecords : public Huggingface {};

// Returns the gradient of the mean cross-entropy with respect to the embedding, which depends on all layers.
at::Tensor gradient_of(const Checkpoint& checkpoint, const at::Tensor& tokens) {
  const auto model = build_trainable(checkpoint, at::kCPU);
  models::Memory memory;
  const nn::Context context{.training = true};
  models::as_language_model(*model, "test").loss(tokens, memory, context).cross_entropy.backward();
  return model->parameters().at("embed").grad();
}

// Continues the first `n_given` tokens of `text` greedily with the KV cache, up to the length of `text`.
std::vector<std::int64_t> written_by(const Checkpoint& checkpoint, const std::vector<std::int64_t>& text,
                                     std::size_t n_given) {
  const c10::InferenceMode no_graph;
  const auto model = build_model(checkpoint);
  const models::LanguageModel& writer = models::as_language_model(*model, "test");
  models::DecodeState state = writer.start_decoding();
  std::vector<std::int64_t> written(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(n_given));
  for (std::size_t read = 0; written.size() < text.size();) {
    const models::DecodeRow row{&state, std::span<const std::int64_t>(written).subspan(read)};
    read = written.size();
    written.push_back(writer.decode({&row, 1}, nn::Context()).argmax(-1).item<std::int64_t>());
  }
  return written;
}

TEST_P(HuggingfaceRecords, GeneratesAndTrainsAsTransformersDoes) {
  const fs::path expected = kModels / GetParam() / "expected.safetensors";
  const Checkpoint checkpoint = import_huggingface(kModels / GetParam(), kTokenizer).checkpoint;
  const at::Tensor gradient = tensor_of(expected, "gradient");
  EXPECT_GT(gradient.abs().max().item<double>(), 1e-3);
  EXPECT_LT(difference(gradient_of(checkpoint, tensor_of(expected, "tokens")), gradient), 1e-4);
  const at::Tensor written = tensor_of(expected, "written");
  const std::vector<std::int64_t> text(written.data_ptr<std::int64_t>(),
                                       written.data_ptr<std::int64_t>() + written.numel());
  EXPECT_EQ(written_by(checkpoint, text, 8), text);
}

TEST_P(Huggingface, GivesTheLogitsOfTransformers) {
  const Imported imported = import_huggingface(kModels / GetParam(), kTokenizer);
  EXPECT_TRUE(GetParam().starts_with(imported.kind));
  const at::Tensor tokens = tensor_of(kModels / GetParam() / "expected.safetensors", "tokens");
  const at::Tensor expected = tensor_of(kModels / GetParam() / "expected.safetensors", "logits");
  EXPECT_GT(expected.std().item<double>(), 0.3);
  // With composed heads, the authors' float32 logits differ from float64 logits by up to 2e-4.
  const double limit = imported.kind.starts_with("dc") ? 1e-4 * expected.abs().max().item<double>() : 1e-5;
  EXPECT_LT(difference(logits_of(imported.checkpoint, tokens), expected), limit);

  // A checkpoint file must preserve the logits.
  const tiny::Folder folder;
  save_checkpoint(imported.checkpoint, folder / "model.safetensors");
  const Checkpoint read = read_checkpoint(folder / "model.safetensors");
  EXPECT_TRUE(read.verified);
  EXPECT_EQ(read.tokenizer->name(), imported.checkpoint.tokenizer->name());
  EXPECT_LT(difference(logits_of(read, tokens), expected), limit);

  // An export and a second import must preserve the model.
  const std::string kind = export_huggingface(imported.checkpoint, folder / "back", "test");
  EXPECT_EQ(kind, imported.kind);
  const Imported again = import_huggingface(folder / "back");
  EXPECT_EQ(config::to_toml(again.checkpoint.config), config::to_toml(imported.checkpoint.config));
  EXPECT_EQ(again.checkpoint.tensors.size(), imported.checkpoint.tensors.size());
  for (const auto& [name, tensor] : imported.checkpoint.tensors) {
    EXPECT_TRUE(again.checkpoint.tensors.at(name).equal(tensor)) << name;
  }
}

const auto kName = [](const auto& one) { return one.param; };
INSTANTIATE_TEST_SUITE_P(Kinds, HuggingfaceRecords, testing::ValuesIn(models_with("gradient")), kName);
INSTANTIATE_TEST_SUITE_P(Kinds, Huggingface, testing::ValuesIn(models_with("logits")), kName);

}  // namespace headroom::store::huggingface_test
