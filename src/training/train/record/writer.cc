#include "writer.h"

#include <optional>
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

}  // namespace

class Writer::Files {
 public:
  Files(const WriterOptions& options, std::vector<tasks::FigureKind> figure_kinds)
      : kinds(std::move(figure_kinds)),
        metrics(options.folder / "metrics.jsonl", options.step),
        events(options.folder, options.step + 1),
        progress(options.title, options.steps, "step") {
    progress.start_at(options.step);
    if (options.samples) {
      samples.emplace(options.folder / "samples.jsonl", options.step);
    }
  }

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
    events.write(step, scalars);
    metrics.append(line);
  }

  std::vector<tasks::FigureKind> kinds;
  MetricsLog metrics;
  std::optional<MetricsLog> samples;
  EventWriter events;
  std::string note;  // of the last step
  Progress progress;
};

Writer::Writer() = default;
Writer::~Writer() = default;

Writer::Writer(const WriterOptions& options, std::vector<tasks::FigureKind> kinds)
    : options_(options),
      files_(options.group->leads() ? std::make_unique<Files>(options, std::move(kinds)) : nullptr) {}

void Writer::step(std::int64_t step, double loss, const LogInterval& interval) {
  if (files_ == nullptr) {
    return;
  }
  files_->note =
      fmt::format("loss {:.3f}, {} tokens/s", loss, format_count(per_second(interval.tokens, interval.seconds)));
  if (const double gflops = options_.step_gflop * per_second(interval.steps, interval.seconds); gflops > 0.0) {
    files_->note +=
        fmt::format(", {:.3g} GFLOP/s ({:.0f}% of the machine's)", gflops, 100.0 * gflops / options_.machine_gflops);
  }
  files_->progress.update(step, files_->note);
}

void Writer::note(std::int64_t step, std::string_view what) {
  if (files_ != nullptr) {
    files_->progress.update(step, what);
  }
}

void Writer::training(const TrainingPoint& point) {
  if (files_ != nullptr) {
    files_->write(point.step, "train", to_json(point));
  }
}

void Writer::validation(const ValidationPoint& point) {
  if (files_ == nullptr) {
    return;
  }
  files_->write(point.step, "validation", to_json(point, files_->kinds));
  files_->progress.update(point.step, files_->note);  // no longer "validating"
  const std::string part =
      point.predictions > 0 ? fmt::format(" (on {})", counted(point.predictions, "prediction")) : "";
  log_info("step {}: validation {}{}", point.step, tasks::describe(point.figures, files_->kinds), part);
}

void Writer::sample(std::int64_t step, const std::string& prompt, const std::string& text) {
  constexpr std::size_t kLongest = 600;
  files_->samples->append({{"step", step}, {"prompt", prompt}, {"text", text}});
  log_info("step {}: {}", step, printable(prompt + text, kLongest));
}

void Writer::warning(const std::string& text) {
  if (files_ != nullptr) {
    log_warning("{}", text);
  }
}

void Writer::config(const config::Config& config) {
  if (files_ != nullptr) {
    write_config(config, options_.folder);
  }
}

void Writer::checkpoints_every(std::int64_t steps, double step_seconds) {
  if (files_ == nullptr) {
    return;
  }
  const std::string pause = format_duration(step_seconds * static_cast<double>(steps > 0 ? steps : options_.steps));
  if (steps > 0) {
    log_info("a checkpoint every {} (about {} of training)", steps == 1 ? "step" : fmt::format("{} steps", steps),
             pause);
  } else {
    log_info("a checkpoint at the end only: training takes about {}", pause);
  }
}

fs::path Writer::checkpoint(const store::Checkpoint& checkpoint) {
  if (options_.folder.empty()) {
    require_finite(checkpoint);
    return {};
  }
  if (files_ != nullptr) {
    files_->metrics.sync();
    if (files_->samples) {
      files_->samples->sync();
    }
  }
  return store::write_checkpoint(checkpoint, options_.folder / "checkpoints", options_.keep_checkpoints,
                                 *options_.group);
}

void Writer::best(const store::Checkpoint& checkpoint) {
  if (options_.folder.empty()) {
    require_finite(checkpoint);
    return;
  }
  const fs::path file = best_file(options_.folder);
  if (files_ != nullptr) {
    make_folder(file.parent_path());
  }
  store::save_checkpoint(checkpoint, file, *options_.group);
}

void write_config(const config::Config& config, const fs::path& folder) {
  write_text_file(folder / "config.toml", config::to_toml(config, /*sources=*/true));
}

fs::path best_file(const fs::path& folder) {
  return folder / "checkpoints" / "best.safetensors";
}

}  // namespace headroom::train
