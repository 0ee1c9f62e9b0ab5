#include "writer.h"

#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/message.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/run_folder.h"
#include "metrics.h"
#include "tensorboard.h"

namespace headroom::train {
namespace {

namespace fs = std::filesystem;

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Numbers of a metrics line as TensorBoard scalars, nested ones by path ("experts/layer0.attention.source/most").
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
      throw store::NotFiniteError(fmt::format("tensor \"{}\" holds numbers that are not finite", name));
    }
  }
}

class FolderWriter : public Writer {
 public:
  FolderWriter(const Place& place, std::vector<tasks::FigureKind> kinds)
      : place_(place),
        kinds_(std::move(kinds)),
        metrics_(place.folder / "metrics.jsonl", place.step),
        events_(place.folder, place.step + 1),
        progress_(place.title, place.steps, "step") {
    progress_.start_at(place.step);
    if (place.samples) {
      samples_.emplace(place.folder / "samples.jsonl", place.step);
    }
  }

  bool writes() const override { return true; }

  void step(std::int64_t step, double loss, const Interval& interval) override {
    note_ = fmt::format("loss {:.3f}, {}", loss, speed(interval));
    progress_.update(step, note_);
  }

  void note(std::int64_t step, std::string_view what) override { progress_.update(step, what); }

  void training(const TrainingPoint& point) override { write(point.step, "train", to_json(point)); }

  void validation(const ValidationPoint& point) override {
    write(point.step, "validation", to_json(point, kinds_));
    progress_.update(point.step, note_);  // no longer "validating"
    log_info("step {}: validation {}", point.step, tasks::describe(point.figures, kinds_));
  }

  void sample(std::int64_t step, const std::string& prompt, const std::string& text) override {
    constexpr std::size_t kLongest = 600;
    samples_->append({{"step", step}, {"prompt", prompt}, {"text", text}});
    log_info("step {}: {}", step, printable(prompt + text, kLongest));
  }

  void warning(const std::string& text) override { log_warning("{}", text); }
  void config(const config::Config& config) override { write_config(config, place_.folder); }
  void checkpoints_every(std::int64_t steps, double step_seconds) override {
    if (steps > 0) {
      log_info("a checkpoint every {} steps, some {} of training", steps,
               format_duration(step_seconds * static_cast<double>(steps)));
    } else {
      log_info("a checkpoint at the end only: all {} steps take some {}", place_.steps,
               format_duration(step_seconds * static_cast<double>(place_.steps)));
    }
  }

  fs::path checkpoint(const store::Checkpoint& checkpoint) override {
    metrics_.sync();
    if (samples_) {
      samples_->sync();
    }
    return store::write_checkpoint(checkpoint, place_.folder / "checkpoints", place_.keep_checkpoints, *place_.peers);
  }

  void best(const store::Checkpoint& checkpoint) override {
    const fs::path file = best_file(place_.folder);
    make_folder(file.parent_path());
    store::save_checkpoint(checkpoint, file, *place_.peers);
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

  std::string speed(const Interval& interval) const {
    const std::string tokens = format_count(per_second(interval.tokens, interval.seconds)) + " tokens/s";
    const double gflops = place_.step_gflop * per_second(interval.steps, interval.seconds);
    return gflops > 0.0 ? fmt::format("{}, {:.3g} GFLOP/s ({:.0f}% of the machine's)", tokens, gflops,
                                      100.0 * gflops / place_.machine_gflops)
                        : tokens;
  }

  Place place_;
  std::vector<tasks::FigureKind> kinds_;
  MetricsLog metrics_;
  std::optional<MetricsLog> samples_;
  EventWriter events_;
  std::string note_;  // of the last step
  Progress progress_;
};

// Of a process that does not lead: its part of checkpoints is all that it writes.
class PeerWriter : public Writer {
 public:
  explicit PeerWriter(const Place& place) : place_(place) {}
  fs::path checkpoint(const store::Checkpoint& checkpoint) override {
    return store::write_checkpoint(checkpoint, place_.folder / "checkpoints", place_.keep_checkpoints, *place_.peers);
  }
  void best(const store::Checkpoint& checkpoint) override {
    store::save_checkpoint(checkpoint, best_file(place_.folder), *place_.peers);
  }

 private:
  Place place_;
};

}  // namespace

fs::path Writer::checkpoint(const store::Checkpoint& checkpoint) {
  require_finite(checkpoint);
  return {};
}

void Writer::best(const store::Checkpoint& checkpoint) {
  require_finite(checkpoint);
}

std::unique_ptr<Writer> write_into(const Place& place, const std::vector<tasks::FigureKind>& kinds) {
  if (!place.peers->leads()) {
    return std::make_unique<PeerWriter>(place);
  }
  return std::make_unique<FolderWriter>(place, kinds);
}

void write_config(const config::Config& config, const fs::path& folder) {
  write_text_file(folder / "config.toml", config::to_toml(config, /*sources=*/true));
}

fs::path best_file(const fs::path& folder) {
  return folder / "checkpoints" / "best.safetensors";
}

}  // namespace headroom::train
