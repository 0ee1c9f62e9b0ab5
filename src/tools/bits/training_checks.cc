// Training checks, with a small SwitchHead model with dropout and memory.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bits.h"
#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "training/parallel/gloo_group.h"

namespace headroom::bits {
namespace {

constexpr const char* kConfig = R"([model]
vocabulary_size = 256
n_layers = 2
d_model = 32
context_length = 32
memory_length = 32
dropout = 0.1
[model.attention]
n_heads = 2
d_head = 16
projection = "experts"
n_experts = 4
top_k = 2
position = "relative"
[model.mlp]
d_hidden = 64
[tokenizer]
kind = "bytes"
[data]
train = ["text.txt"]
validation = ["text.txt"]
[train]
steps = 12
batch_size = 6
accumulate = 6
learning_rate = 3e-3
schedule = "constant"
checkpoint_every = 4
evaluate_every = 0
)";

struct Run {
  std::string out;  // in the folder of the request
  int ranks = 1;
  std::int64_t threads = 1;           // of each rank
  std::vector<std::string> set = {};  // changes of kConfig
  bool resume = false;
};

class Trainer {
 public:
  explicit Trainer(const BitsRequest& request) : request_(request) {
    write_text_file(request.folder / "model.toml", kConfig);
    Random random(1);
    std::string text;
    while (text.size() < 20000) {
      text += static_cast<char>('a' + random.below(26));
      text += random.below(5) == 0 ? " " : "";
    }
    write_text_file(request.folder / "text.txt", text);
  }

  // Starts one rank of a run with `--set` changes and more options.
  std::unique_ptr<Child> start(const Run& run, std::vector<std::pair<std::string, std::string>> environment = {}) {
    environment.emplace_back("HEADROOM_CACHE", (request_.folder / "cache").string());
    std::vector<std::string> arguments = {"train",     (request_.folder / "model.toml").string(),
                                          "--out",     (request_.folder / run.out).string(),
                                          "--threads", std::to_string(run.threads),
                                          "--json"};
    for (const std::string& change : run.set) {
      arguments.insert(arguments.end(), {"--set", change});
    }
    if (run.resume) {
      arguments.emplace_back("--resume");
    }
    return std::make_unique<Child>(ChildCommand{.program = request_.program,
                                                .arguments = std::move(arguments),
                                                .environment = std::move(environment),
                                                .output = request_.folder / fmt::format("output{}", ++started_)});
  }

  // Returns the hash of the trained parameters.
  std::string train(const Run& run) {
    const parallel::Rendezvous rendezvous;
    std::vector<std::unique_ptr<Child>> ranks;
    for (int rank = 0; rank < run.ranks; ++rank) {
      ranks.push_back(run.ranks == 1 ? start(run) : start(run, rendezvous.variables(rank, run.ranks)));
    }
    std::string hash;
    for (const auto& rank : ranks) {
      if (const Json document = rank->result(); document.is_object()) {
        hash = document.at("parameters_sha256").get<std::string>();
      }
    }
    return hash;
  }

  // Kills the run after its first checkpoint, and resumes it.
  std::string train_with_a_kill(Run run) {
    const std::unique_ptr<Child> child = start(run);
    const std::filesystem::path checkpoint = request_.folder / run.out / "checkpoints" / "latest";
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!std::filesystem::exists(checkpoint) && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (!child->kill()) {
      fail("bits: a training run ended before it could be killed");
    }
    run.resume = true;
    return train(run);
  }

 private:
  const BitsRequest& request_;
  int started_ = 0;
};

Check compare(std::string name, std::string compared, const std::vector<std::pair<std::string, std::string>>& hashes) {
  Check check{.name = std::move(name), .compared = std::move(compared), .equal = true, .different = {}};
  for (const auto& [what, hash] : hashes) {
    if (hash != hashes.front().second) {
      check.equal = false;
      check.different += (check.different.empty() ? "" : ", ") + what;
    }
  }
  return check;
}

}  // namespace

std::vector<Check> check_training(const BitsRequest& request) {
  Trainer trainer(request);
  std::vector<Check> checks;
  const std::string one = trainer.train({.out = "one"});
  checks.push_back(compare("number of ranks", "parameters after training on 1, 2 and 3 ranks",
                           {{"1 rank", one},
                            {"2 ranks", trainer.train({.out = "two", .ranks = 2})},
                            {"3 ranks", trainer.train({.out = "three", .ranks = 3})}}));
  trainer.train({.out = "moved", .ranks = 3, .set = {"train.steps=8"}});
  checks.push_back(
      compare("another number of ranks", "parameters after 8 steps on 3 ranks and 4 steps on 2",
              {{"1 rank", one}, {"3, then 2 ranks", trainer.train({.out = "moved", .ranks = 2, .resume = true})}}));
  const std::vector<std::string> longer = {"train.steps=60", "train.checkpoint_every=10"};
  checks.push_back(compare("kill and resume", "parameters of a run that was killed (SIGKILL) and resumed",
                           {{"not killed", trainer.train({.out = "whole", .set = longer})},
                            {"killed", trainer.train_with_a_kill({.out = "killed", .set = longer})}}));
  return checks;
}

}  // namespace headroom::bits
