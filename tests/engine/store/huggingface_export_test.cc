// Tests exports: the model kind that is written, refusals, and files that are overwritten.
#include "headroom/config/part_options.h"
#include "huggingface_folder.h"

namespace headroom::store::huggingface_export_test {

using namespace fixtures;

// A mistral without a window is written as it was read. So is a qwen2: it has no output bias. Earlier versions imported
// qwen2 with an output bias, which was 0 until a training step changed it.
TEST_F(HuggingfaceFolder, ExportKeepsTheKind) {
  copy("mistral");
  set("/sliding_window", "null");
  EXPECT_EQ(export_huggingface(read(), folder_ / "mistral", "run"), "mistral");
  EXPECT_EQ(import_huggingface(folder_ / "mistral").checkpoint.config.model.attention.window, 0);
  set("/sliding_window", "5");
  set("/layer_types", R"(["sliding_attention", "full_attention"])");
  EXPECT_EQ(export_huggingface(read(), folder_ / "ministral", "run"), "ministral");
  const config::ModelOptions alternating = import_huggingface(folder_ / "ministral").checkpoint.config.model;
  EXPECT_EQ(alternating.of_layer(0).attention.window, 5);
  EXPECT_EQ(alternating.of_layer(1).attention.window, 0);

  copy("qwen2");
  Checkpoint checkpoint = read();
  const auto n_values = [](const fs::path& folder) {
    std::size_t bytes = 0;
    const SafetensorsFile file(folder / "model.safetensors");
    for (const auto& [name, tensor] : file.tensors()) {
      bytes += tensor.data.size();
    }
    return bytes / sizeof(float);
  };
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "qwen2");
  EXPECT_EQ(n_values(folder_ / "qwen2"), n_values(path_));
  EXPECT_FALSE(checkpoint.tensors.contains("model.layer0.attention.b_o"));

  checkpoint.config.model.attention.of<config::DenseOptions>().output_bias = true;
  for (int layer = 0; layer < checkpoint.config.model.n_layers; ++layer) {
    checkpoint.tensors[fmt::format("model.layer{}.attention.b_o", layer)] =
        at::zeros({checkpoint.config.model.d_model});
  }
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "qwen2");
  checkpoint.tensors.at("model.layer0.attention.b_o")[0] = 1.0;
  EXPECT_EQ(export_huggingface(checkpoint, folder_ / "qwen2", "run"), "llama");
  const Checkpoint again = import_huggingface(folder_ / "qwen2").checkpoint;
  EXPECT_EQ(again.tensors.at("model.layer0.attention.b_o")[0].item<float>(), 1.0F);
}

// A word list has no equivalent, so the files of the earlier tokenizer must not stay in the folder.
TEST_F(HuggingfaceFolder, ExportRemovesTheTokenizerOfAnEarlierOne) {
  Checkpoint checkpoint = import_model("llama");
  export_huggingface(checkpoint, folder_ / "out", "run");
  EXPECT_TRUE(tokenizers::holds_tokenizer(folder_ / "out"));
  checkpoint.tokenizer =
      tokenizers::restore_tokenizer(config::TokenizerKind::words, "<unk>\n<eos>\nthe\nhead\n", "test");
  export_huggingface(checkpoint, folder_ / "out", "run");
  EXPECT_FALSE(tokenizers::holds_tokenizer(folder_ / "out"));
  EXPECT_FALSE(fs::exists(folder_ / "out" / "tokenizer_config.json"));
}

TEST_F(HuggingfaceFolder, ExportRefusesSettingsThatNoKindHas) {
  const auto says = [&](const std::function<void(config::ModelOptions&)>& change) {
    Checkpoint checkpoint = import_model("llama");
    change(checkpoint.config.model);
    return export_refusal(checkpoint);
  };
  EXPECT_HAS(says([](auto& o) { o.attention.projection = "experts"; }), "model.attention.projection");
  EXPECT_HAS(says([](auto& o) { o.head_bias = true; }), "run: model.head_bias:");
  EXPECT_HAS(says([](auto& o) { o.scaled_embeddings = true; }), "model.scaled_embeddings");
  EXPECT_HAS(says([](auto& o) { o.memory_length = 24; }), "model.memory_length");
  EXPECT_HAS(says([](config::ModelOptions& o) { o.attention.of<config::PositionOptions>().rope_fraction = 0.5; }),
             "run: model.attention.rope_fraction:");
  Checkpoint more = import_model("llama");
  more.tensors["model.layer0.attention.w_more"] = at::zeros({1});
  EXPECT_THROW(export_huggingface(more, folder_ / "out", "run"), UserError);
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(HuggingfaceFolder, ExportReplacesOnlyItsOwnFiles) {
  const Checkpoint checkpoint = import_model("llama");
  const fs::path own = folder_ / "own";
  export_huggingface(checkpoint, own, "run");
  export_huggingface(checkpoint, own, "run");
  copy("llama");
  EXPECT_THROW(export_huggingface(checkpoint, path_, "run"), UserError);
  fs::remove(own / "model.safetensors");
  EXPECT_THROW(export_huggingface(checkpoint, own, "run"), UserError) << "a config that belongs to other weights";
}

// If the model lacks biases that the architecture always has, the export writes zeros.
TEST_F(HuggingfaceFolder, ExportFillsBiasesWithZeros) {
  config::Config config = tiny::config();
  config::ModelOptions& o = config.model;
  o.memory_length = 0;
  o.head_bias = false;
  o.attention = {};
  o.attention.n_heads = 2;
  o.attention.d_head = 8;
  o.mlp.bias = false;
  for (const char* position : {"learned", "rope"}) {
    o.attention.position = position;
    Checkpoint checkpoint;
    checkpoint.config = config;
    checkpoint.tokenizer = tiny::bytes_tokenizer();
    const models::LanguageModel model(o, 1, at::TensorOptions(at::kFloat));
    for (const nn::Parameter& parameter : model.parameters().stored()) {
      checkpoint.tensors["model." + parameter.name] = parameter.tensor.detach();
    }
    export_huggingface(checkpoint, folder_ / position, "run");
    const Imported again = import_huggingface(folder_ / position);
    EXPECT_EQ(again.checkpoint.tokenizer->encode("a b"), (std::vector<std::int32_t>{'a', ' ', 'b'}));
    const at::Tensor tokens = at::arange(8).reshape({1, 8}) + 90;
    EXPECT_LT(difference(logits_of(again.checkpoint, tokens), logits_of(checkpoint, tokens)), 1e-5);
  }
}

}  // namespace headroom::store::huggingface_export_test
