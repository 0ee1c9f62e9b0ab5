#include "headroom/store/checkpoint.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "checksums.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/special_tokens.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/log.h"
#include "headroom/core/safetensors.h"
#include "stored_tensor.h"

namespace headroom::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "headroom.checkpoint.1";
constexpr const char* kChecksums = "checksums";
constexpr std::string_view kPrefix = "step_", kSuffix = ".safetensors";

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

// The step of "step_<n>.safetensors"; none for other names.
std::optional<std::int64_t> step_of(const fs::path& file) {
  const std::string name = file.filename().string();
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size()) {
    return std::nullopt;
  }
  return parse_number(std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size()));
}

// Checkpoint files of a folder, newest (largest step) first.
std::vector<fs::path> list_checkpoints(const fs::path& folder) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (const auto step = step_of(entry.path())) {
      found.emplace_back(*step, entry.path());
    }
  }
  std::sort(found.begin(), found.end(), std::greater<>());
  std::vector<fs::path> files;
  for (auto& [step, path] : found) {
    files.push_back(std::move(path));
  }
  return files;
}

// Of a run folder that of its checkpoints; any other folder is taken for one itself.
fs::path folder_of_checkpoints(const fs::path& run_or_folder) {
  std::error_code error;
  const fs::path inside = run_or_folder / "checkpoints";
  return fs::is_directory(inside, error) ? inside : run_or_folder;
}

// The file name that `latest` holds; empty where it cannot be read.
std::string read_latest(const fs::path& folder) {
  try {
    std::string name = read_text_file(folder / "latest", 4096);
    name.erase(name.find_last_not_of(" \r\n\t") + 1);
    return name;
  } catch (const MisuseError&) {
    return {};
  }
}

void remove_old(const fs::path& folder, const fs::path& newest, std::int64_t keep) {
  std::int64_t kept = 1;  // the newest
  for (const fs::path& file : list_checkpoints(folder)) {
    if (file != newest && ++kept > keep) {
      std::error_code ignored;  // one too many does no harm
      fs::remove(file, ignored);
    }
  }
}

// Opens and checks the container and its format, not yet the contents. Throws MisuseError naming the file.
SafetensorsFile open_checkpoint(const fs::path& path) {
  SafetensorsFile file(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat) {
    misuse("{}: not a checkpoint: its format is \"{}\", not \"{}\"", path.string(),
           format == file.metadata().end() ? "" : format->second, kFormat);
  }
  return file;
}

// Models that choose a class read bytes, symbols or pictures as they are.
bool has_tokenizer(const config::ModelOptions& model) {
  return !model.has_classes();
}

// Of as many tokens as the model knows.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const SafetensorsFile& file, const config::Config& config) {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::read_tokenizer(file);
  const std::int64_t special = config::special_tokens(config.model.kind);
  if (tokenizer->vocabulary_size() + special != config.model.vocabulary_size) {
    misuse("{}: its tokenizer {} has {} tokens, but model.vocabulary_size is {}", file.path().string(),
           tokenizer->name(), tokenizer->vocabulary_size(), config.model.vocabulary_size - special);
  }
  return tokenizer;
}

// The parameters that the config asks for, as shapes without memory, against those of the file.
void check_parameters(const Checkpoint& checkpoint, const std::string& origin) {
  config::ModelOptions options = checkpoint.config.model;
  if (options.attention.position->added_vectors() == config::AddedVectors::fixed) {
    options.context_length = 1;  // its table is no parameter, and would be allocated even here
  }
  if (options.n_layers > static_cast<std::int64_t>(checkpoint.tensors.size())) {
    misuse("{}: model.n_layers is {}, but the file has only {} tensors", origin, options.n_layers,
           checkpoint.tensors.size());
  }
  std::size_t expected = 0;
  try {
    const auto shapes = models::make_model(options, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
    for (const nn::Parameter& parameter : shapes->parameters().stored()) {
      const auto found = checkpoint.tensors.find("model." + parameter.name);
      if (found == checkpoint.tensors.end()) {
        misuse("{}: parameter \"{}\" is missing", origin, parameter.name);
      }
      const at::Tensor& tensor = found->second;
      if (tensor.scalar_type() != at::kFloat || tensor.sizes() != parameter.tensor.sizes()) {
        misuse("{}: parameter \"{}\" is {} {}, but its config asks for Float {}", origin, parameter.name,
               c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()), c10::str(parameter.tensor.sizes()));
      }
      ++expected;
    }
  } catch (const c10::Error& error) {
    misuse("{}: its config describes no possible model: {}", origin, error.what_without_backtrace());
  }
  const auto stored =
      static_cast<std::size_t>(std::count_if(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                             [](const auto& entry) { return entry.first.starts_with("model."); }));
  if (stored != expected) {
    misuse("{}: holds {} parameters, but its config asks for {}", origin, stored, expected);
  }
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const fs::path& path) {
  SafetensorsWriter writer;
  std::map<std::string, at::Tensor> alive;  // the writer keeps only pointers
  for (const auto& [key, tensor] : checkpoint.tensors) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
    if (bytes.is_floating_point() && !at::isfinite(bytes).all().item<bool>()) {
      throw NotFiniteError(
          fmt::format("{}: not written: tensor \"{}\" holds numbers that are not finite", path.string(), key));
    }
    alive.emplace(key, bytes);
    writer.add(key, stored_type(bytes.scalar_type(), key), bytes.sizes().vec(), bytes_of(bytes));
  }
  if (checkpoint.tokenizer) {
    tokenizers::add_tokenizer(writer, *checkpoint.tokenizer);
  }
  for (const auto& [key, value] : checkpoint.metadata) {
    writer.set_metadata(key, value);
  }
  writer.set_metadata("format", std::string(kFormat));
  writer.set_metadata("config", config::to_toml(checkpoint.config));
  writer.set_metadata("step", std::to_string(checkpoint.step));
  writer.set_metadata(kChecksums, checksums_of(alive));
  writer.write(path);
}

fs::path write_checkpoint(const Checkpoint& checkpoint, const fs::path& folder, std::int64_t keep) {
  const std::string name = fmt::format("{}{}{}", kPrefix, checkpoint.step, kSuffix);
  make_folder(folder);
  save_checkpoint(checkpoint, folder / name);
  write_text_file(folder / "latest", name + "\n");
  remove_old(folder, folder / name, keep);
  return folder / name;
}

namespace {

enum class Depth { shape, bytes };  // what is checked: all but the tensors' contents, or these as well

Checkpoint read(const fs::path& path, Depth depth) {
  const auto file = std::make_shared<const SafetensorsFile>(open_checkpoint(path));
  const std::string origin = path.string();
  Checkpoint checkpoint;
  checkpoint.metadata = file->metadata();
  checkpoint.config = config::parse_config(file->metadata_at("config"), origin);
  config::check(checkpoint.config, origin);
  const auto step = parse_number(file->metadata_at("step"));
  if (!step) {
    misuse("{}: step must be a number of steps, got \"{}\"", origin, file->metadata_at("step"));
  }
  checkpoint.step = *step;
  if (has_tokenizer(checkpoint.config.model)) {
    checkpoint.tokenizer = tokenizer_of(*file, checkpoint.config);
  }
  for (const auto& [name, stored] : file->tensors()) {
    if (name != "tokenizer") {
      checkpoint.tensors.emplace(name, view_of(file, name, stored));
    }
  }
  check_parameters(checkpoint, origin);
  if (depth == Depth::bytes) {
    const auto sums = checkpoint.metadata.find(kChecksums);
    if (sums == checkpoint.metadata.end()) {
      log_info("{}: was written without checksums: damage to its tensors would not show", origin);
    } else {
      verify_checksums(checkpoint.tensors, sums->second, origin);
      checkpoint.verified = true;
    }
  }
  for (const char* own : {"format", "config", "tokenizer_kind", "tokenizer_name", "step", kChecksums}) {
    checkpoint.metadata.erase(own);
  }
  return checkpoint;
}

}  // namespace

Checkpoint read_checkpoint(const fs::path& path) {
  return read(path, Depth::bytes);
}

fs::path find_checkpoint(const fs::path& run_or_checkpoint) {
  std::error_code error;
  if (!fs::is_directory(run_or_checkpoint, error)) {
    if (!fs::exists(run_or_checkpoint, error)) {
      misuse("{}: there is no such run folder or checkpoint", run_or_checkpoint.string());
    }
    return run_or_checkpoint;
  }
  const fs::path folder = folder_of_checkpoints(run_or_checkpoint);
  std::vector<fs::path> candidates = list_checkpoints(folder);
  if (candidates.empty()) {
    misuse("{}: holds no checkpoint", run_or_checkpoint.string());
  }
  const auto named = std::find(candidates.begin(), candidates.end(), folder / read_latest(folder));
  if (named != candidates.end()) {
    std::rotate(candidates.begin(), named, named + 1);
  } else {
    log_warning("{}: names no checkpoint of this folder; taking the newest that is readable",
                (folder / "latest").string());
  }
  if (candidates.size() == 1) {
    return candidates.front();
  }
  for (const fs::path& candidate : candidates) {
    try {
      read(candidate, Depth::shape);
      return candidate;
    } catch (const MisuseError& reason) {
      log_warning("{}; trying an earlier checkpoint", reason.what());
    }
  }
  misuse("{}: none of its {} checkpoints is readable", folder.string(), candidates.size());
}

Checkpoint average_checkpoints(const fs::path& run, std::int64_t count) {
  const std::vector<fs::path> files = list_checkpoints(folder_of_checkpoints(run));
  if (count < 1 || std::ssize(files) < count) {
    misuse("{}: holds {} checkpoints, but the mean of {} is asked for (train.checkpoint_every, train.keep_checkpoints)",
           run.string(), files.size(), count);
  }
  Checkpoint mean = read(files.front(), Depth::bytes);
  std::map<std::string, at::Tensor> sums;
  for (std::int64_t i = 0; i < count; ++i) {
    const Checkpoint one = i == 0 ? mean : read(files[static_cast<std::size_t>(i)], Depth::bytes);
    for (const auto& [name, tensor] : mean.tensors) {
      if (!name.starts_with("model.")) {
        continue;
      }
      const auto found = one.tensors.find(name);
      if (found == one.tensors.end() || found->second.sizes() != tensor.sizes()) {
        misuse("{}: its model is another than that of {}", files[static_cast<std::size_t>(i)].string(),
               files.front().string());
      }
      at::Tensor& sum = sums[name];
      sum = sum.defined() ? sum.add_(found->second) : found->second.to(at::kDouble);
    }
  }
  mean.tensors.clear();
  for (auto& [name, sum] : sums) {
    mean.tensors[name] = sum.div_(static_cast<double>(count)).to(at::kFloat);
  }
  return mean;
}

std::optional<std::int64_t> step_in(const fs::path& file) {
  try {
    return parse_number(open_checkpoint(file).metadata_at("step"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

bool has_checkpoints(const fs::path& run) {
  return !list_checkpoints(run / "checkpoints").empty();
}

std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device) {
  auto model = models::make_model(checkpoint.config.model, static_cast<std::uint64_t>(checkpoint.config.train.seed),
                                  at::TensorOptions(at::kFloat).device(device));
  const at::NoGradGuard no_grad;
  for (const nn::Parameter& parameter : model->parameters().stored()) {
    const auto found = checkpoint.tensors.find("model." + parameter.name);
    if (found == checkpoint.tensors.end()) {
      fail("checkpoint: parameter \"{}\" is missing", parameter.name);
    }
    parameter.tensor.copy_(found->second);
  }
  return model;
}

std::unique_ptr<models::Model> build_writer(const Checkpoint& checkpoint, at::Device device,
                                            const nn::Context& context) {
  std::unique_ptr<models::Model> model = build_model(checkpoint, device);
  if (context.compute_dtype) {
    model->parameters().keep_products_in(*context.compute_dtype);
  }
  return model;
}

}  // namespace headroom::store
