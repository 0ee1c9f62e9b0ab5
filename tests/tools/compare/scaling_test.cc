#include "tools/compare/figures/scaling.h"

#include <random>

#include "example.h"
#include "training/cost/cost.h"

namespace headroom::compare::scaling_test {

constexpr double kFlops[] = {1e12, 4e12, 3e13};

// The losses are on the line `coefficient` (`factor` C)^-`exponent`: with factor 2, a family needs half the compute.
ScaledFamily family_on(const PowerLaw& law, double factor, std::size_t seeds = 1) {
  ScaledFamily family{.name = fmt::format("times_{}", factor)};
  for (const double flops : kFlops) {
    const double loss = law.loss(factor * flops);
    family.models.push_back(
        {.name = fmt::format("{}", flops), .flops = flops, .losses = std::vector<double>(seeds, loss)});
  }
  return family;
}

constexpr PowerLaw kLaw{.coefficient = 20.0, .exponent = 0.05};

// By hand: x = ln(1, e, e^2), y = ln(e^2, e, e): slope -1/2, mean 4/3.
TEST(PowerLaw, IsTheLeastSquaresOfLogarithms) {
  const double e = std::exp(1.0);
  const PowerLaw law = fit_power_law({1.0, e, e * e}, {e * e, e, e});
  EXPECT_NEAR(law.exponent, 0.5, 1e-12);
  EXPECT_NEAR(law.coefficient, std::exp(4.0 / 3.0 + 0.5), 1e-12);
}

TEST(Scaling, FindsAKnownGap) {
  const Scaling scaling = fit_families({family_on(kLaw, 1.0), family_on(kLaw, 1.87)});
  EXPECT_FALSE(scaling[0].saving) << "the first is what the other is compared with";
  const Saving& saving = scaling[1].saving.value();
  EXPECT_NEAR(saving.ratio, 1.87, 1e-9);
  EXPECT_FALSE(saving.low) << "one seed";
  EXPECT_FALSE(saving.extrapolated);
  EXPECT_NEAR(saving.loss, std::sqrt(kLaw.loss(1.87e12) * kLaw.loss(3e13)), 1e-9) << "the middle of what both reach";
  EXPECT_NEAR(scaling[1].residual, 0.0, 1e-12);
  for (const ScaledModel& model : scaling[1].models) {
    EXPECT_NEAR(model.saving.value().ratio, 1.87, 1e-9) << model.name;
    EXPECT_EQ(model.saving->extrapolated, model.flops == 3e13) << "the first family does not reach the last one's loss";
  }
}

TEST(Scaling, ForNonParallelFitsIsTheGapAtTheStatedLoss) {
  const PowerLaw steeper{.coefficient = 40.0, .exponent = 0.08};
  const Scaling scaling = fit_families({family_on(kLaw, 1.0), family_on(steeper, 1.0)});
  const Saving& saving = scaling[1].saving.value();
  EXPECT_NEAR(saving.ratio, kLaw.flops(saving.loss) / steeper.flops(saving.loss), 1e-6 * saving.ratio);
  EXPECT_NEAR(scaling[1].models[0].saving->ratio, kLaw.flops(steeper.loss(1e12)) / 1e12, 1e-6);
}

// A family that needs 1/1.87 of the compute at half the speed needs 2/1.87 of the time.
TEST(Scaling, SpeedupsAreOfTheMeasuredTimes) {
  Scaling families = {family_on(kLaw, 1.0), family_on(kLaw, 1.87)};
  for (std::size_t f = 0; f < 2; ++f) {
    for (ScaledModel& model : families[f].models) {
      model.seconds = {model.flops / (f == 0 ? 2e9 : 1e9)};
    }
  }
  const Scaling scaling = fit_families(families);
  EXPECT_NEAR(scaling[1].speedup.value().ratio, 1.87 / 2.0, 1e-9);
  EXPECT_NEAR(scaling[1].models[0].speedup.value().ratio, 1.87 / 2.0, 1e-9);
  EXPECT_FALSE(scaling[0].speedup);
  families[0].models[1].seconds = {0.0};
  EXPECT_FALSE(fit_families(families)[1].speedup) << "a time is not known";
}

// If the clock ends training, each seed has another compute.
TEST(Scaling, SeedsOfOtherLengthsHaveTheirOwnCompute) {
  Scaling families = {family_on(kLaw, 1.0, 2), family_on(kLaw, 1.87, 2)};
  for (std::size_t f = 0; f < 2; ++f) {
    for (ScaledModel& model : families[f].models) {
      model.flops_of_seeds = {model.flops / 3.0, model.flops * 3.0};
      for (std::size_t seed = 0; seed < 2; ++seed) {
        model.losses[seed] = kLaw.loss((f == 0 ? 1.0 : 1.87) * model.flops_of(seed));
      }
    }
  }
  const Scaling scaling = fit_families(families);
  EXPECT_NEAR(scaling[1].saving.value().low.value(), 1.87, 1e-6);
  EXPECT_NEAR(scaling[1].saving->high.value(), 1.87, 1e-6);
  for (const ScaledModel& model : scaling[1].models) {
    EXPECT_NEAR(model.saving.value().ratio, 1.87, 1e-6) << model.name;
  }
}

// The values are from DCMHA, Figure 3 (bottom).
TEST(Scaling, ImprovementsAreDifferencesOfTheSameSize) {
  ScaledFamily better = family_on(kLaw, 1.0, 2);
  for (ScaledModel& model : better.models) {
    model.losses[0] -= 0.1;
    model.losses[1] -= 0.3;
  }
  ScaledFamily short_one = family_on(kLaw, 2.0);
  short_one.models.pop_back();
  const Scaling scaling = fit_families({family_on(kLaw, 1.0, 2), better, short_one});
  for (const ScaledModel& model : scaling[1].models) {
    EXPECT_NEAR(model.improvement.value().mean, 0.2, 1e-9);
    EXPECT_LT(model.improvement->low, 0.1);
    EXPECT_GT(model.improvement->high, 0.3);
  }
  EXPECT_FALSE(scaling[0].models[0].improvement);
  EXPECT_FALSE(scaling[2].models[0].improvement) << "another number of sizes";
  EXPECT_NEAR(fit_families({family_on(kLaw, 1.0), family_on(kLaw, 1.0)})[1].models[0].improvement->high, 0.0, 1e-12);
}

// One family loses its small model, the other family its large one.
TEST(Scaling, ImprovementsAreNotOfOtherSizesIfModelsDiverged) {
  ScaledFamily first = family_on(kLaw, 1.0), other = family_on(kLaw, 2.0);
  first.models.front().losses = {NAN};
  other.models.back().losses = {NAN};
  const double expected = first.models[1].losses[0] - other.models[1].losses[0];
  const Scaling scaling = fit_families({first, other});
  ASSERT_EQ(scaling[1].models.size(), 2U);
  EXPECT_FALSE(scaling[1].models[0].improvement);
  EXPECT_NEAR(scaling[1].models[1].improvement.value().mean, expected, 1e-12);
}

TEST(Scaling, SaysWhenNoLossIsReachedByBoth) {
  const Scaling scaling = fit_families({family_on(kLaw, 1.0), family_on(kLaw, 100.0)});
  EXPECT_TRUE(scaling[1].saving.value().extrapolated);
  EXPECT_NEAR(scaling[1].saving->ratio, 100.0, 1e-7);
  EXPECT_HAS(conclude_scaling(scaling).at(0), "extrapolated");
}

TEST(Scaling, SaysHowFarModelsAreFromTheirLine) {
  ScaledFamily bent = family_on(kLaw, 1.0);
  bent.models[1].losses[0] *= 1.03;
  const Scaling scaling = fit_families({family_on(kLaw, 1.0), bent});
  EXPECT_GT(scaling[1].residual, 0.015);
  EXPECT_LT(scaling[1].residual, 0.025);
}

TEST(Scaling, FamiliesWithoutAFitHaveAReason) {
  ScaledFamily lost = family_on(kLaw, 2.0), rising = family_on(kLaw, 2.0, 2);
  lost.models[0].losses[0] = std::nan("");
  lost.models[2].losses[0] = INFINITY;
  rising.models[2].losses[1] = 30.0;  // in one seed only
  const Scaling scaling = fit_families({family_on(kLaw, 1.0, 2), lost, rising});
  EXPECT_EQ(scaling[1].models.size(), 1u);
  EXPECT_FALSE(scaling[1].saving);
  EXPECT_HAS(scaling[1].unfitted, "fewer than two");
  EXPECT_FALSE(scaling[2].saving);
  EXPECT_HAS(scaling[2].unfitted, "does not fall");
  EXPECT_TRUE(scaling[1].models[0].saving) << "the first family's line is there";
  const Scaling none = fit_families({lost, family_on(kLaw, 1.0)});
  EXPECT_FALSE(none[1].saving) << "nothing to be compared with";
  EXPECT_FALSE(none[1].models[0].saving);
}

// The losses are 1.00 and 0.99 at 1 and 10 units of compute: two errors of 0.01 are worth a factor of 100 of compute.
TEST(Scaling, HasNoLineIfTheErrorsHideIt) {
  const ScaledModel small{.name = "s", .flops = 1.0, .losses = {1.0}, .error = 0.01},
      large{.name = "l", .flops = 10.0, .losses = {0.99}, .error = 0.01};
  ScaledModel exact = large, guesses = large;
  exact.error = 0.0005;
  guesses.beats_guessing = false;
  const auto first = [](std::vector<ScaledModel> models) {
    return fit_families({{.name = "dense", .models = std::move(models)}}).front();
  };
  EXPECT_HAS(first({small, large}).unfitted, "the standard error of its losses, 0.01, leaves the compute");
  ScaledModel certain = small;
  certain.error = 0.0005;
  EXPECT_EQ(first({certain, exact}).unfitted, "");
  EXPECT_HAS(first({certain, guesses}).unfitted, "below that of guessing");
}

// The ratios of two seeds are 1.5 and 2: the interval is the mean of their logarithms -/+ 12.706 standard errors.
TEST(Scaling, IntervalMatchesTheSeedsLogarithms) {
  ScaledFamily first = family_on(kLaw, 1.0, 2), other = family_on(kLaw, 1.5, 2);
  for (std::size_t i = 0; i < other.models.size(); ++i) {
    other.models[i].losses[1] = kLaw.loss(2.0 * kFlops[i]);
  }
  const Saving saving = fit_families({first, other})[1].saving.value();
  const double middle = std::log(3.0) / 2.0, half = std::log(2.0 / 1.5) / 2.0;
  EXPECT_NEAR(saving.ratio, std::exp(middle), 1e-9);
  EXPECT_NEAR(std::log(saving.low.value()), middle - 12.7062047 * half, 1e-6);
  EXPECT_NEAR(std::log(saving.high.value()), middle + 12.7062047 * half, 1e-6);
  EXPECT_TRUE(saving.includes_one());
}

// Losses vary by 0.2% between seeds, as for small models. 95 of 100 intervals contain the true ratio.
TEST(Scaling, IntervalHasItsNominalCoverage) {
  constexpr int kTrials = 4000;
  constexpr double kTrue = 1.4;
  std::mt19937_64 random(1);
  std::normal_distribution<double> noise(0.0, 0.002);
  for (const std::size_t seeds : {std::size_t{2}, std::size_t{3}, std::size_t{5}}) {
    int covered = 0, significant = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      Scaling families = {family_on(kLaw, 1.0, seeds), family_on(kLaw, kTrue, seeds)};
      for (ScaledFamily& family : families) {
        for (ScaledModel& model : family.models) {
          for (double& loss : model.losses) {
            loss *= std::exp(noise(random));
          }
        }
      }
      const Saving saving = fit_families(std::move(families))[1].saving.value();
      covered += *saving.low < kTrue && kTrue < *saving.high ? 1 : 0;
      significant += saving.includes_one() ? 0 : 1;
    }
    const double share = static_cast<double>(covered) / kTrials;
    EXPECT_NEAR(share, 0.95, 0.012) << seeds << " seeds";  // 3.5 standard errors of a share of 4,000
    if (seeds == 5) {
      EXPECT_GT(significant, kTrials * 9 / 10) << "and it is narrow enough to find the gap";
    }
  }
}

std::vector<ComparedRun> example_families() {
  std::vector<ComparedRun> runs;
  for (const auto& [family, factor] : {std::pair("dense", 1.0), std::pair("a<b", 2.0)}) {
    for (const std::int64_t steps : {100, 300, 1000}) {
      ComparedRun run = testing::example_seeds(fmt::format("{}_{}", family, steps), {7.0, 7.1, 7.2});
      run.family = family;
      run.config.train.steps = steps;
      const double flops = cost::training_flops(run.config).value();
      for (std::size_t seed = 0; seed < run.trained.size(); ++seed) {
        run.trained[seed].result.validation.back().figures["loss"] =
            PowerLaw{.coefficient = 30.0 + static_cast<double>(seed), .exponent = 0.07}.loss(factor * flops);
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

TEST(Scaling, IsShownInWordsTableJsonAndOnThePage) {
  CompareResult result = testing::example_result(example_families());
  result.scaling = scaling_of(result.runs);
  ASSERT_EQ(result.scaling.size(), 2u);
  EXPECT_EQ(result.scaling[1].models[2].flops, cost::training_flops(result.runs[5].config).value());
  EXPECT_NEAR(result.scaling[1].saving.value().ratio, 2.0, 1e-9);
  EXPECT_NEAR(result.scaling[1].saving->low.value(), 2.0, 1e-9) << "all seeds agree";
  result.conclusion = conclude_scaling(result.scaling);
  EXPECT_HAS(result.conclusion.at(0), "dense needs 2.00 [2.00, 2.00] times the compute of a<b");
  const std::string table = render_scaling(result);
  EXPECT_EQ(std::ranges::count(table, '\n'), 17) << "two blocks: " << table;
  EXPECT_HAS(table, "dense needs");
  EXPECT_HAS(table, "2.00 [2.00, 2.00] extrapolated");
  const Json json = to_json(result);
  const Json& family = json.at("scaling").at(1);
  EXPECT_EQ(family.at("family"), "a<b");
  EXPECT_NEAR(family.at("saving").at("ratio").get<double>(), 2.0, 1e-9);
  EXPECT_EQ(family.at("models").size(), 3u);
  EXPECT_TRUE(json.at("scaling").at(0).at("saving").is_null());
  EXPECT_NEAR(family.at("speedup").at("ratio").get<double>(), 1.0, 1e-9) << "all took 60 s";
  const std::string page = page_of(result).dump();
  EXPECT_HAS(page, "\"Scaling\"");
  EXPECT_HAS(page, "\"text\":\"2.00 [2.00, 2.00]\",\"style\":-2}") << "the gap";
  EXPECT_HAS(page, "\"style\":5") << "a point has the colour of its run";
  EXPECT_EQ(render_scaling(testing::example_result({})), "");
  EXPECT_FALSE(to_json(testing::example_result({testing::example_run("a", 7.0)})).contains("scaling"));
}

std::string refusal(const std::vector<NamedConfig>& configs) {
  try {
    check_families(configs);
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

NamedConfig sized(const std::string& name, const std::string& family, std::int64_t steps) {
  NamedConfig named{.name = name, .config = {}, .family = family};
  named.config.train.steps = steps;
  return named;
}

TEST(Families, WithoutAPossibleFitAreRefused) {
  EXPECT_EQ(refusal({sized("a", "", 1), sized("b", "", 1)}), "") << "no families";
  EXPECT_EQ(refusal({sized("a", "x", 1), sized("b", "x", 2), sized("c", "y", 1), sized("d", "y", 2)}), "");
  EXPECT_NE(refusal({sized("a", "x", 1), sized("b", "x", 2)}).find("at least two"), std::string::npos);
  EXPECT_NE(
      refusal({sized("a", "x", 1), sized("b", "x", 2), sized("c", "y", 3)}).find("at least two different amounts"),
      std::string::npos);
  EXPECT_NE(refusal({sized("a", "x", 1), sized("b", "x", 1), sized("c", "y", 1), sized("d", "y", 2)}).find("got 1"),
            std::string::npos);
  NamedConfig sentences = sized("a", "x", 1);
  sentences.config.model.kind = config::ModelKind::encoder_decoder;
  EXPECT_HAS(refusal({sentences}), "not counted");
}

TEST(Families, AreReadFromTheCommandLine) {
  const std::vector<NamedConfig> configs =
      load_families({"dense=zoo/dense,demo/dense_h2", "mine=zoo/moa"}, {"train.steps=3"});
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_EQ(configs[1].name, "dense_h2");
  EXPECT_EQ(configs[1].family, "dense");
  EXPECT_EQ(configs[2].family, "mine");
  EXPECT_EQ(configs[2].config.train.steps, 3);
  for (const char* text : {"dense", "=zoo/dense", "dense=", "dense=zoo/dense,", "dense=,zoo/dense"}) {
    EXPECT_THROW(load_families({text}), UserError) << text;
  }
  EXPECT_THROW(load_families({"a=zoo/dense", "a=zoo/moa"}), UserError) << "one name, two families";
}

using ScalingRun = compare_fixture::CompareTest;

TEST_F(ScalingRun, FamiliesAreKeptInTheFolder) {
  CompareRequest r = request();
  r.configs = {config("four", 4), config("four_more", 4), config("one", 1), config("one_more", 1)};
  for (NamedConfig& named : r.configs) {
    named.family = named.config.model.attention.n_heads == 4 ? "many" : "few";
    named.config.train.steps = named.name.ends_with("more") ? 12 : 4;
    named.config.train.learning_rate = 1e-2;
  }
  const CompareResult result = compare(r);
  ASSERT_EQ(result.scaling.size(), 2u);
  EXPECT_EQ(result.scaling[0].name, "many");
  EXPECT_EQ(result.scaling[1].models.size(), 2u);
  EXPECT_TRUE(result.scaling[1].saving) << result.scaling[1].unfitted;
  for (const std::string& note : result.notes) {
    EXPECT_EQ(note.find("different sizes"), std::string::npos) << "they are meant not to be";
  }
  EXPECT_EQ(to_json(report(r.out)).at("scaling"), to_json(result).at("scaling"));
  r.configs.pop_back();
  EXPECT_THROW(compare(r), UserError) << "a family of one size";
}

}  // namespace headroom::compare::scaling_test
