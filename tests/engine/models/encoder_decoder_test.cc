#include "headroom/models/encoder_decoder.h"

#include "engine/ops/gradients.h"
#include "headroom/config/part_options.h"
#include "one_thread.h"
#include "small_models.h"

namespace headroom::models::encoder_decoder_test {

using config::ModelOptions;
using testing::decode;
using testing::relative_error;

ModelOptions tiny() {
  config::ModelOptions o = tiny::changed(
      tiny::model(config::ModelKind::encoder_decoder), "",
      "n_decoder_layers=3 norm_position=post tied_embeddings=true head_bias=false attention.position=sinusoidal");
  return o;
}

testing::Models kinds() {
  const std::string moa = "projection=routed_heads gate=softmax_renormalised ";
  return testing::models_of(
      tiny(), {{"post, tied", ""},
               {"moa", moa},
               {"moa, relative, pre", moa + "position=relative position_bias=true", "norm_position=pre"},
               {"mixture", "score=gaussian_mixture bias=true"},
               {"shifted mixture, learned, pre, own head",
                "score=gaussian_mixture bias=true keys=shifted prior=head_position position=learned",
                "norm_position=pre tied_embeddings=false head_bias=true"},
               {"switchall, rope, windows",
                "projection=experts experts=[q,k,v,o] shared_selection=true position=rope window=3 window_pattern=1:1",
                "mlp.kind=experts"},
               {"composed, parallel", "composition=dynamic", "arrangement=parallel norm_position=pre"},
               {"linear, vocabularies apart", "score=linear", "source_vocabulary_size=31"},
               {"latent, gated, sink", "projection=latent kv_rank=5 position=rope gate_output=element sink=true"}});
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t n) {
  return at::randint(23, {batch, n}, at::kLong);
}

at::Tensor first_of(std::int64_t n, at::IntArrayRef counts) {
  const at::Tensor valid = at::zeros({static_cast<std::int64_t>(counts.size()), n}, at::kBool);
  for (std::size_t row = 0; row < counts.size(); ++row) {
    valid[static_cast<std::int64_t>(row)].narrow(0, 0, counts[row]).fill_(true);
  }
  return valid;
}

// Rows may be reordered, repeated and removed between calls.
TEST(EncoderDecoder, ReorderedDecodingEqualsTheFullPass) {
  const at::NoGradGuard no_grad;
  auto all = kinds();
  ModelOptions linear = tiny();
  linear.attention.score = "linear";
  all.emplace_back("linear", linear);
  ModelOptions slides = tiny();
  slides.attention.window = 3;
  all.emplace_back("window", slides);
  for (const auto& [name, options] : all) {
    at::manual_seed(3);
    const EncoderDecoder model(options, 3, at::kDouble);
    const at::Tensor source = random_tokens(2, 7), valid = first_of(7, {4, 7});
    auto states = model.start_decoding(source, valid, {});
    at::Tensor from = at::arange(2), written = random_tokens(2, 2);
    decode(model, written, states);
    for (const std::vector<std::int64_t>& rows :
         {std::vector<std::int64_t>{0, 0, 1, 1}, {1, 0, 2, 3}, {1, 1, 3, 2}, {3, 2}, {0}}) {
      const at::Tensor order = at::tensor(rows, at::kLong);
      states = gather_states(states, rows);
      from = from.index_select(0, order);
      written = at::cat({written.index_select(0, order), random_tokens(std::ssize(rows), 1)}, 1);
      const at::Tensor step = decode(model, written.narrow(1, written.size(1) - 1, 1), states);
      const at::Tensor whole = model.logits(
          {.source = source.index_select(0, from), .valid_source = valid.index_select(0, from), .target = written}, {});
      EXPECT_LE(relative_error(step, whole.select(1, written.size(1) - 1)), 1e-11) << name << " " << written.size(1);
    }
  }
}

// Sources and targets of different lengths must give the same bits in a batch as alone.
TEST(EncoderDecoder, ATranslationEqualsItsResultAlone) {
  for (auto [name, options] : kinds()) {
    options.d_model = 132;
    options.attention.d_head = 66;
    options.mlp.d_hidden = 275;
    const EncoderDecoder model(options, 3);
    for (const bool half : {false, true}) {
      nn::Context context;
      if (half) {
        context.compute_dtype = at::kBFloat16;
      }
      at::manual_seed(3);
      const at::Tensor source = random_tokens(5, 7), valid = first_of(7, {4, 7, 1, 7, 6}), target = random_tokens(5, 7);
      auto together = model.start_decoding(source, valid, context);
      std::vector<std::vector<DecodeState>> alone;
      for (std::int64_t row = 0; row < 5; ++row) {
        alone.push_back(model.start_decoding(source.narrow(0, row, 1), valid.narrow(0, row, 1), context));
      }
      std::vector<DecodeState> first = {together[0]};
      decode(model, target.narrow(0, 0, 1).narrow(1, 0, 2), first, context);
      decode(model, target.narrow(0, 0, 1).narrow(1, 0, 2), alone[0], context);
      together[0] = first[0];
      for (std::int64_t t = 2; t < 7; ++t) {
        const at::Tensor now = target.narrow(1, t, 1), logits = decode(model, now, together, context);
        for (std::int64_t row = 0; row < 5; ++row) {
          const at::Tensor expected =
              decode(model, now.narrow(0, row, 1), alone[static_cast<std::size_t>(row)], context);
          ASSERT_TRUE(logits.narrow(0, row, 1).equal(expected)) << name << (half ? ", bfloat16" : "") << " row " << row;
        }
      }
    }
  }
}

TEST(EncoderDecoder, LossIsTheSmoothedCrossEntropyOfItsLogits) {
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(4);
    EncoderDecoder model(options, 3, at::kDouble);
    const SequencePair pair{.source = random_tokens(2, 7),
                            .valid_source = first_of(7, {4, 7}),
                            .target = random_tokens(2, 8),
                            .valid_target = first_of(8, {8, 5})};
    const at::Tensor next = random_tokens(2, 8).masked_fill(pair.valid_target.logical_not(), -1);
    const at::Tensor logits = model.logits(pair, {}).reshape({16, -1});
    for (const double smoothing : {0.0, 0.1}) {
      const at::Tensor expected =
          at::cross_entropy_loss(logits, next.reshape({-1}), {}, at::Reduction::Mean, -1, smoothing);
      const Loss loss = model.loss(pair, next, smoothing, {});
      EXPECT_NEAR(loss.cross_entropy.item<double>(), expected.item<double>(), 1e-11) << name << " " << smoothing;
      const bool balances =
          options.mlp.kind == config::MlpKind::experts || options.attention.projection == "routed_heads";
      ASSERT_EQ(loss.regulariser.defined(), balances) << name;
      model.parameters().zero_grad();
      loss.total().backward();
      testing::expect_gradients(model.parameters(), name, {"b_k"});
    }
  }
}

TEST(EncoderDecoder, SmoothingHasTheGradientOfTheWholeSum) {
  EncoderDecoder model(kinds()[4].second, 3, at::kDouble);
  at::manual_seed(5);
  const SequencePair pair{.source = random_tokens(2, 7), .target = random_tokens(2, 8)};
  const at::Tensor next = random_tokens(2, 8);
  model.loss(pair, next, 0.3, {}).total().backward();
  std::vector<at::Tensor> got;
  for (const nn::Parameter& p : model.parameters().all()) {
    got.push_back(p.tensor.grad().clone());
  }
  model.parameters().zero_grad();
  at::cross_entropy_loss(model.logits(pair, {}).reshape({16, -1}), next.reshape({-1}), {}, at::Reduction::Mean, -100,
                         0.3)
      .backward();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const nn::Parameter& p = model.parameters().all()[i];
    EXPECT_LE(at::norm(got[i] - p.tensor.grad()).item<double>(), 1e-11 * (1.0 + at::norm(got[i]).item<double>()))
        << p.name;
  }
}

TEST(EncoderDecoder, AllThreeAttentionsOfRoutedHeadsAreBalanced) {
  ModelOptions options = kinds()[1].second;
  options.initialisation = config::Initialisation::glorot;  // makes MoA's routers uniform
  const EncoderDecoder model(options, 3, at::kDouble);
  at::manual_seed(6);
  std::map<std::string, at::Tensor> losses;
  nn::ExpertUsage usage;
  const nn::Context context{.losses = &losses, .usage = &usage};
  const SequencePair pair{
      .source = random_tokens(2, 7), .target = random_tokens(2, 8), .valid_target = first_of(8, {8, 5})};
  model.loss(pair, random_tokens(2, 8), 0.0, context);
  // Uniform routers have a loss of 1 each: two in the encoder layers, and two in each of three decoder layers.
  EXPECT_NEAR(losses.at("switch").item<double>(), 8.0, 1e-12);
  ASSERT_EQ(usage.size(), 8U);
  EXPECT_EQ(usage.at("encoder.layer1.attention.select").sum().item<std::int64_t>(), 2 * 14);
  EXPECT_EQ(usage.at("decoder.layer2.attention.select").sum().item<std::int64_t>(), 2 * 13);  // padding is not routed
  EXPECT_EQ(usage.at("decoder.layer2.cross.select").sum().item<std::int64_t>(), 2 * 13);
}

TEST(EncoderDecoder, SoftPriorsCountTokensOfBothSequencesOnly) {
  for (const config::Prior prior : {config::Prior::head, config::Prior::head_position}) {
    ModelOptions o = tiny();
    o.attention.score = "gaussian_mixture";
    o.attention.of<config::MixtureOptions>().prior = prior;
    o.attention.of<config::MixtureOptions>().prior_update = config::PriorUpdate::soft_e;
    at::manual_seed(8);
    const SequencePair alone{.source = random_tokens(1, 3), .target = random_tokens(1, 6)};  // more queries than keys
    const at::Tensor one = at::zeros({1, 1}, at::kLong), two = at::zeros({1, 2}, at::kLong);
    const SequencePair padded{.source = at::cat({alone.source, two}, 1),
                              .valid_source = first_of(5, {3}),
                              .target = at::cat({alone.target, one}, 1),
                              .valid_target = first_of(7, {6})};
    const auto priors_after = [&](const SequencePair& pair) {
      const EncoderDecoder model(o, 3, at::kDouble);
      nn::BufferUpdates updates;
      const nn::Context training{.training = true, .updates = &updates};
      model.logits(pair, training);
      nn::apply(updates);
      std::map<std::string, at::Tensor> priors;
      for (const nn::Parameter& p : model.parameters().stored()) {
        if (p.name.ends_with("prior")) {
          priors[p.name] = p.tensor.clone();
        }
      }
      return priors;
    };
    const auto expected = priors_after(alone), got = priors_after(padded);
    ASSERT_EQ(expected.size(), 2U + 2U * 3U);
    for (const auto& [name, value] : expected) {
      EXPECT_LE(relative_error(got.at(name), value), 1e-6) << name;  // the mean has an epsilon
      EXPECT_GT((value - 0.5).abs().max().item<double>(), 1e-6) << name;
    }
  }
}

TEST(EncoderDecoder, OneEmbeddingServesBothSidesAndTheOutput) {
  EncoderDecoder tied(tiny(), 3);
  EXPECT_EQ(tied.parameters().at("embed").sizes(), (at::IntArrayRef{23, 12}));
  EXPECT_THROW(tied.parameters().at("head.w"), Error);
  EncoderDecoder learned(kinds()[4].second, 3);
  EXPECT_EQ(learned.parameters().at("encoder.position").size(0), 8);
  EXPECT_EQ(learned.parameters().at("decoder.position").size(0), 8);
  EXPECT_EQ(learned.parameters().at("decoder.layer2.cross.w_v").size(0), 12);
  EXPECT_EQ(learned.parameters().at("decoder.layer2.norm_cross.scale").size(0), 12);
}

TEST(EncoderDecoder, BadInputIsRefused) {
  const EncoderDecoder model(tiny(), 1);
  const at::Tensor two = random_tokens(2, 8), next = random_tokens(2, 8);
  const SequencePair pair{.source = two, .target = two};
  const auto with = [&](auto change) {
    SequencePair changed = pair;
    change(changed);
    return changed;
  };
  EXPECT_THROW(model.logits(with([](SequencePair& p) { p.source = random_tokens(2, 9); }), {}), Error);
  EXPECT_THROW(model.logits(with([](SequencePair& p) { p.target = random_tokens(2, 9); }), {}), Error);
  EXPECT_THROW(model.logits(with([](SequencePair& p) { p.target = random_tokens(3, 8); }), {}), Error);
  EXPECT_THROW(model.logits(with([](SequencePair& p) { p.valid_source = at::ones({2, 7}, at::kBool); }), {}), Error);
  EXPECT_THROW(model.logits(with([](SequencePair& p) { p.valid_target = at::ones({2, 8}); }), {}), Error);
  EXPECT_THROW(model.loss(pair, random_tokens(2, 7), 0.0, {}), Error);
  EXPECT_THROW(model.loss(pair, next, 1.0, {}), Error);
  EXPECT_THROW(model.loss(pair, next, -0.1, {}), Error);
  auto states = model.start_decoding(two, {}, {});
  EXPECT_THROW(decode(model, at::empty({2, 0}, at::kLong), states), Error);
  EXPECT_THROW(decode(model, random_tokens(3, 1), states), Error);
  decode(model, two, states);
  EXPECT_THROW(decode(model, random_tokens(2, 1), states), Error) << "the context is full";
  ModelOptions other = tiny();
  other.kind = config::ModelKind::language_model;
  EXPECT_THROW(EncoderDecoder(other, 1), UserError);
}

}  // namespace headroom::models::encoder_decoder_test
