#include "writer.h"

#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "metrics.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Collects the numbers in a metrics line as TensorBoard scalars. Nested values are tagged by path
// ("experts/layer0.attention.source/most").
void collect(const Json& value, const std::string& tag, std::vector<std::pair<std::string, double>>& out) {
  if (value.is_number()) {
    out.emplace_back(tag, value.get<double>());
  } else if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) {
      collect(inner, tag + "/" + key, out);
    }
  }
}

void require_finite(const store::Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>()) {
      throw store::NotFiniteError(fmt::format("tensor \"{}\" has values that are not finite", name));
    }
  }
}

class FolderWriter : public Writer {
 public:
  FolderWriter(const WriterOptions& options, std::vector<tasks::FigureKind> kinds)
      : options_(options),
        kinds_(std::move(kinds)),
        metrics_(options.folder / "metrics.jsonl", options.step),
        events_(options.folder, options.step + 1),
        progress_(options.title, options.steps, "step") {
    progress_.start_at(options.step);
    if (options.samples) {
      samples_.emplace(options.folder / "samples.jsonl", options.step);
    }
  }

  bool writes() const override { return true; }

  void step(std::int64_t step, double loss, const LogInterval& interval) override {
    note_ = fmt::format("loss {:.3f}, {}", loss, speed(interval));
    progress_.update(step, note_);
  }

  void note(std::int64_t step, std::string_view what) override { progress_.update(step, what); }

  void training(const TrainingPoint& point) override { write(point.step, "train", to_json(point)); }

  void validation(const ValidationPoint& point) override {
    write(point.step, "validation", to_json(point, kinds_));
    progress_.update(point.step, note_);  // no longer "validating"
    const std::string part =
        point.predictions > 0 ? fmt::format(" (on {})", counted(point.predictions, "prediction")) : "";
    log_info("step {}: validation {}{}", point.step, tasks::describe(point.figures, kinds_), part);
  }

  void sample(std::int64_t step, const std::string& prompt, const std::string& text) override {
    constexpr std::size_t kLongest = 600;
    samples_->append({{"step", step}, {"prompt", prompt}, {"text", text}});
    log_info("step {}: {}", step, printable(prompt + text, kLongest));
  }

  void warning(const std::string& text) override { log_warning("{}", text); }
  void config(const config::Config& config) override { write_config(config, options_.folder); }
  void checkpoints_every(std::int64_t steps, double step_seconds) override {
    if (steps > 0) {
      log_info("a checkpoint every {} (about {} of training)", steps == 1 ? "step" : fmt::format("{} steps", steps),
               format_duration(step_seconds * static_cast<double>(steps)));
    } else {
      log_info("a checkpoint at the end only: training takes about {}",
               format_duration(step_seconds * static_cast<double>(options_.steps)));
    }
  }

  fs::path checkpoint(const store::Checkpoint& checkpoint) override {
    metrics_.sync();
    if (samples_) {
      samples_->sync();
    }
    return store::write_checkpoint(checkpoint, options_.folder / "checkpoints", options_.keep_checkpoints,
                                   *options_.group);
  }

  void best(const store::Checkpoint& checkpoint) override {
    const fs::path file = best_file(options_.folder);
    make_folder(file.parent_path());
    store::save_checkpoint(checkpoint, file, *options_.group);
  }

 private:
  void write(std::int64_t step, const char* group, const Json& line) {
    std::vector<std::pair<std::string, double>> named;
    for (const auto& [key, value] : line.items()) {
      if (key != "step") {
        collect(value, std::string(group) + "/" + key, named);
      }
    }
    std::vector<Scalar> scalars;
    for (const auto& [tag, value] : named) {
      scalars.push_back({tag, value});
    }
    events_.write(step, scalars);
    metrics_.append(line);
  }

  std::string speed(const LogInterval& interval) const {
    const std::string tokens = format_count(per_second(interval.tokens, interval.seconds)) + " tokens/s";
    const double gflops = options_.step_gflop * per_second(interval.steps, interval.seconds);
    return gflops > 0.0 ? fmt::format("{}, {:.3g} GFLOP/s ({:.0f}% of the machine's)", tokens, gflops,
                                      100.0 * gflops / options_.machine_gflops)
                        : tokens;
  }

  WriterOptions options_;
  std::vector<tasks::FigureKind> kinds_;
  MetricsLog metrics_;
  std::optional<MetricsLog> samples_;
  EventWriter events_;
  std::string note_;  // of the last step
  Progress progress_;
};

// The writer of all ranks but the leading one: writes only this rank's shards of checkpoints.
class ShardWriter : public Writer {
 public:
  explicit ShardWriter(const WriterOptions& options) : options_(options) {}
  fs::path checkpoint(const store::Checkpoint& checkpoint) override {
    return store::write_checkpoint(checkpoint, options_.folder / "checkpoints", options_.keep_checkpoints,
                                   *options_.group);
  }
  void best(const store::Checkpoint& checkpoint) override {
    store::save_checkpoint(checkpoint, best_file(options_.folder), *options_.group);
  }

 private:
  WriterOptions options_;
};

}  // namespace

fs::path Writer::checkpoint(const store::Checkpoint& checkpoint) {
  require_finite(checkpoint);
  return {};
}

void Writer::best(const store::Checkpoint& checkpoint) {
  require_finite(checkpoint);
}

std::unique_ptr<Writer> make_writer(const WriterOptions& options, const std::vector<tasks::FigureKind>& kinds) {
  if (!options.group->leads()) {
    return std::make_unique<ShardWriter>(options);
  }
  return std::make_unique<FolderWriter>(options, kinds);
}

void write_config(const config::Config& config, const fs::path& folder) {
  write_text_file(folder / "config.toml", config::to_toml(config, /*sources=*/true));
}

fs::path best_file(const fs::path& folder) {
  return folder / "checkpoints" / "best.safetensors";
}

}  // namespace headroom::train
