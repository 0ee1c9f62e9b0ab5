// Tests the tensors and the tokenizer of a folder: dtypes, shards, older versions, and files that do not match.
#include "huggingface_folder.h"

namespace headroom::store::huggingface_files_test {

using namespace fixtures;

TEST_F(HuggingfaceFolder, OtherTypesAndShardsAreRead) {
  const Checkpoint whole = import_model("llama");
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
    copy("llama");
    rewrite(
        [&](auto& tensors) {
          for (auto& [name, tensor] : tensors) {
            tensor = tensor.to(type);
          }
        },
        3);
    for (const auto& [name, tensor] : read().tensors) {
      const bool half = type != at::kDouble && tensor.dim() > 1;  // matrices keep their dtype
      EXPECT_EQ(tensor.scalar_type(), half ? type : at::kFloat);
      EXPECT_TRUE(tensor.to(at::kFloat).equal(whole.tensors.at(name).to(type).to(at::kFloat))) << name;
    }
  }
}

// Experts that are stored with several dtypes must keep all their values.
TEST_F(HuggingfaceFolder, ExpertsOfSeveralTypesAreRead) {
  copy("deepseek_v2");
  const Checkpoint whole = read();
  const std::string narrow = "model.layers.1.mlp.experts.0.up_proj.weight";
  rewrite([&](auto& tensors) { tensors.at(narrow) = tensors.at(narrow).to(at::kBFloat16); });
  const at::Tensor before = whole.tensors.at("model.layer1.ffn.w_up"),
                   after = read().tensors.at("model.layer1.ffn.w_up");
  EXPECT_TRUE(after[0].to(at::kFloat).equal(before[0].to(at::kBFloat16).to(at::kFloat)));
  EXPECT_TRUE(after.narrow(0, 1, 4).equal(before.narrow(0, 1, 4)));
}

// Models in half precision must give the same results whether they are converted as a whole or matrix by matrix.
TEST_F(HuggingfaceFolder, LargeModelsStayInHalfPrecision) {
  copy("llama");
  rewrite([](auto& tensors) {
    for (auto& [name, tensor] : tensors) {
      tensor = tensor.to(at::kBFloat16);
    }
  });
  save_checkpoint(read(), folder_ / "half.safetensors");
  const at::Tensor tokens = tensor_of(kModels / "llama" / "expected.safetensors", "tokens");
  const auto logits = [&](const OpenOptions& options, at::ScalarType stays) {
    const c10::InferenceMode no_graph;
    const OpenedModel opened = open_model((folder_ / "half.safetensors").string(), options);
    EXPECT_EQ(opened.model->parameters().at("layer0.attention.w_q").scalar_type(), stays);
    EXPECT_EQ(opened.model->parameters().at("embed").scalar_type(), at::kFloat);
    models::Memory memory;
    return models::as_language_model(*opened.model, "test").logits(tokens, memory, opened.context);
  };
  const at::Tensor whole = logits({}, at::kFloat);
  EXPECT_TRUE(logits({.largest_float_copy = 0}, at::kBFloat16).equal(whole));
  EXPECT_TRUE(logits({.writes = true, .largest_float_copy = 0}, at::kBFloat16).equal(whole));
  const OpenOptions bf16{.precision = config::Precision::bf16, .largest_float_copy = 0};
  EXPECT_LT(difference(logits(bf16, at::kBFloat16), whole), 0.2);
}

TEST_F(HuggingfaceFolder, OlderFilesAreRead) {
  const Checkpoint whole = import_model("gpt2");
  copy("gpt2");
  rewrite([](auto& tensors) {
    std::map<std::string, at::Tensor> base;  // the names of a saved base model, with its masks
    for (const auto& [name, tensor] : tensors) {
      base[name.substr(std::string_view("transformer.").size())] = tensor;
    }
    base["h.0.attn.bias"] = at::ones({1, 1, 4, 4});
    base["lm_head.weight"] = base.at("wte.weight");
    tensors = base;
  });
  for (const auto& [name, tensor] : read().tensors) {
    EXPECT_TRUE(tensor.equal(whole.tensors.at(name))) << name;
  }
  rewrite([](auto& tensors) { tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1; });
  EXPECT_HAS(refusal(), "tensor \"lm_head.weight\" differs from the embedding");

  copy("gpt_neox");  // transformers 5 renamed the head
  const Checkpoint neox = read();
  rewrite([](auto& tensors) {
    tensors["lm_head.weight"] = tensors.at("embed_out.weight");
    tensors.erase("embed_out.weight");
  });
  EXPECT_TRUE(read().tensors.at("model.head.w").equal(neox.tensors.at("model.head.w")));
}

// Files of dcformer may contain copies of the maps, which must equal the maps. Fixed maps must be the identity.
TEST_F(HuggingfaceFolder, CopiesOfTheMapsAreCompared) {
  copy("dcpythia_parallel");
  rewrite([](auto& tensors) {
    for (const char* copy : {"dw_m", "qkw_m", "pre_proj.w", "post_proj.w"}) {
      EXPECT_EQ(tensors.erase(std::string("layers.1.attention.dyn_w_proj.") + copy), 1U);
    }
  });
  EXPECT_EQ(read().config.model.n_layers, 4);
  rewrite([](auto& tensors) { tensors["layers.1.attention.dyn_w_proj.pre_proj.w"] = at::ones({1, 4, 4}); });
  EXPECT_HAS(refusal(),
             "tensor \"layers.1.attention.dyn_w_proj.pre_proj.w\" has no equivalent: it must be the identity");
  const auto refused = [&](const std::string& end, auto&& change) {
    copy("dcpythia_parallel");
    const std::string name = "layers.1.attention.dyn_w_proj." + end;
    rewrite([&](auto& tensors) { tensors[name] = change(tensors.at(name)); });
    EXPECT_HAS(refusal(), fmt::format("tensor \"{}\"", name));
  };
  const auto changed = [](std::int64_t element) {
    return [element](const at::Tensor& tensor) {
      at::Tensor other = tensor.clone();
      other.view(-1)[element] += 1;
      return other;
    };
  };
  for (const std::int64_t element : {0, 63, 64, 79, -1}) {  // first and last elements of dw1 and dd, in d x (64 + 16)
    refused("dw_m", changed(element));
  }
  refused("qkw_m", changed(0));
  refused("qkw_m", changed(-1));
  refused("qkw_m", [](const at::Tensor& tensor) { return tensor.flatten(0, 1); });
  refused("post_proj.w", [](const at::Tensor&) { return at::eye(2).unsqueeze(0); });
}

// In a folder without a tokenizer, ids are bytes.
TEST_F(HuggingfaceFolder, ATokenizerMayBeMissing) {
  copy("llama");
  const auto encoded = [&](const std::string& text) {
    return import_huggingface(path_).checkpoint.tokenizer->encode(text);
  };
  EXPECT_EQ(encoded("\x05\x03"), (std::vector<std::int32_t>{5, 3}));
  set("/vocab_size", "300");
  rewrite([](auto& tensors) {
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      tensors[name] = at::zeros({300, 16});
    }
  });
  EXPECT_EQ(encoded("a b"), (std::vector<std::int32_t>{'a', ' ', 'b'}));
  EXPECT_EQ(import_huggingface(path_).checkpoint.tokenizer->vocabulary_size(), 300);
}

TEST_F(HuggingfaceFolder, EachExpertIsNeeded) {
  const std::string last = "model.layers.1.mlp.experts.4.up_proj.weight";
  copy("deepseek_v2");
  rewrite([&](auto& tensors) { tensors["model.layers.1.mlp.experts.5.up_proj.weight"] = tensors.at(last); });
  EXPECT_HAS(refusal(), "tensor \"model.layers.1.mlp.experts.5.up_proj.weight\" has no equivalent");
  copy("deepseek_v2");
  rewrite([&](auto& tensors) { tensors.erase(last); });
  EXPECT_HAS(refusal(), "tensor \"" + last + "\" is missing, but config.json requires it");
}

TEST_F(HuggingfaceFolder, EachBiasIsNeeded) {
  copy("llama_biases");
  rewrite([](auto& tensors) { tensors.erase("model.layers.0.self_attn.o_proj.bias"); });
  EXPECT_HAS(refusal(), "tensor \"model.layers.0.self_attn.o_proj.bias\" is missing, but config.json requires it");
}

// Masks, angles and copies of parameters are not read, but their layers must exist.
TEST_F(HuggingfaceFolder, UnreadTensorsBelongToALayer) {
  const std::pair<const char*, const char*> all[] = {{"gpt2", "transformer.h.9.attn.bias"},
                                                     {"llama", "model.layers.9.self_attn.rotary_emb.inv_freq"},
                                                     {"dcformer_mgate", "layers.9.attention.dyn_w_proj.dw_m"},
                                                     {"dcformer_mgate", "layers.9.attention.dyn_w_proj.pre_proj.w"}};
  for (const auto& [model, name] : all) {
    copy(model);
    rewrite([&](auto& tensors) { tensors[name] = at::eye(2); });
    EXPECT_HAS(refusal(), fmt::format("tensor \"{}\" has no equivalent", name));
  }
}

TEST_F(HuggingfaceFolder, RefusesFilesThatDoNotFit) {
  copy("gpt2");
  rewrite([](auto& tensors) { tensors["score.weight"] = at::ones({2, 2}); });
  EXPECT_HAS(refusal(), "tensor \"score.weight\" has no equivalent");
  rewrite([](auto& tensors) {
    tensors.erase("score.weight");
    tensors["transformer.ln_f.bias"] = at::ones({16}, at::kInt);
  });
  EXPECT_HAS(refusal(), "tensor \"transformer.ln_f.bias\" has type I32, but must be");

  copy("gpt2");
  rewrite([](auto&) {}, 2);
  const std::string good = read_text_file(path_ / "model.safetensors.index.json");
  for (const char* name : {"../model-0.safetensors", "/etc/passwd", "..", ""}) {
    Json index = parse_json(good, "index");
    index["weight_map"]["transformer.wte.weight"] = name;
    write_text_file(path_ / "model.safetensors.index.json", index.dump());
    EXPECT_HAS(refusal(), "must be in this folder");
  }
  Json index = parse_json(good, "index");
  index["weight_map"]["other"] = "model-0.safetensors";
  write_text_file(path_ / "model.safetensors.index.json", index.dump());
  EXPECT_HAS(refusal(), "weight_map: model-0.safetensors has no tensor \"other\"");
  write_text_file(path_ / "model.safetensors.index.json", "{}");
  EXPECT_HAS(refusal(), "weight_map must be an object");
  fs::remove(path_ / "model.safetensors.index.json");
  EXPECT_HAS(refusal(), "holds neither model.safetensors nor model.safetensors.index.json");
  fs::remove(path_ / "config.json");
  EXPECT_HAS(refusal(), "config.json");

  copy("gpt2");
  set("/vocab_size", "39");
  rewrite(
      [](auto& tensors) { tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"].narrow(0, 0, 39); });
  EXPECT_HAS(refusal(), "has 40 tokens, but vocab_size is 39");

  copy("gpt2");
  rewrite([](auto& tensors) { tensors["transformer.ln_f.bias"][0] = INFINITY; });
  EXPECT_HAS(refusal(), "model.safetensors: tensor \"transformer.ln_f.bias\" has values that are not finite");
}

}  // namespace headroom::store::huggingface_files_test
