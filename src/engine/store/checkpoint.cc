#include "headroom/store/checkpoint.h"

#include <algorithm>
#include <utility>

#include "checkpoint_reader.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "headroom/store/huggingface.h"

namespace headroom::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "headroom.checkpoint.1";
constexpr const char* kChecksums = "checksums";
constexpr const char* kTokenizer = "tokenizer";

// Opens the file and checks that it is a checkpoint. Throws UserError naming the file.
SafetensorsFile open_checkpoint(const fs::path& path) {
  SafetensorsFile file(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat) {
    user_error("{}: not a checkpoint: its format is \"{}\", not \"{}\"", path.string(),
               format == file.metadata().end() ? "" : format->second, kFormat);
  }
  return file;
}

// Models with classes have no tokenizer, because they read bytes, symbols or images directly.
bool has_tokenizer(const config::ModelOptions& model) {
  return !model.has_classes();
}

// Returns the tokenizer, whose vocabulary size must equal the model's.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_of(const SafetensorsFile& file, const config::Config& config) {
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::read_tokenizer(file);
  const std::int64_t special = config::n_special_tokens(config.model.kind);
  if (tokenizer->vocabulary_size() + special != config.model.vocabulary_size) {
    user_error("{}: its tokenizer {} has {} tokens, but model.vocabulary_size is {}", file.path().string(),
               tokenizer->name(), tokenizer->vocabulary_size(), config.model.vocabulary_size - special);
  }
  tokenizers::require_source_vocabulary(*tokenizer, config.model.source_vocabulary_size, file.path().string());
  return tokenizer;
}

// Returns the first rank whose message is not empty, and its message; rank -1 if there is none. Identical on all ranks.
std::pair<int, std::string> first_message(const std::string& mine, ProcessGroup& group) {
  const std::vector<std::string> all = group.gather(mine);
  for (int rank = 0; rank < group.size(); ++rank) {
    if (!all[static_cast<std::size_t>(rank)].empty()) {
      return {rank, all[static_cast<std::size_t>(rank)]};
    }
  }
  return {-1, ""};
}

// Throws the first rank's message on all ranks, unless all messages are empty.
void throw_on_all(const std::string& message, ProcessGroup& group) {
  if (const auto [rank, first] = first_message(message, group); rank >= 0) {
    throw SharedError(fmt::format("{}: {}", group.name_of(rank), first));
  }
}

// Returns the tensors and shards that this rank owns. Throws NotFiniteError on all ranks.
std::vector<OwnedBytes> owned_by(const Checkpoint& checkpoint, const fs::path& path, ProcessGroup& group) {
  const std::string not_finite = first_not_finite(checkpoint);
  const std::string refused =
      not_finite.empty()
          ? ""
          : fmt::format("{}: not written: tensor \"{}\" has values that are not finite", path.string(), not_finite);
  if (const auto [rank, message] = first_message(refused, group); rank >= 0) {
    throw NotFiniteError(message);
  }
  std::vector<OwnedBytes> owned;
  const auto add = [&](const std::string& key, std::int64_t begin, const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
    owned.push_back({key, static_cast<std::size_t>(begin) * bytes.element_size(), bytes});
  };
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (!tensor.is_meta()) {
      add(key, 0, tensor);
    }
  }
  for (const auto& [key, shards] : checkpoint.shards) {
    for (const Checkpoint::Shard& shard : shards) {
      add(key, shard.begin, shard.values);
    }
  }
  return owned;
}

// The leading rank creates a temporary file, every rank writes its tensors into it, and the leading rank renames it.
void write_together(const SafetensorsWriter& writer, const std::vector<OwnedBytes>& owned, const fs::path& path,
                    ProcessGroup& group) {
  std::optional<AtomicFile> file;
  SafetensorsWriter::Layout layout;
  std::string refused, plan;
  try {
    if (group.leads()) {
      layout = writer.layout(path);
      file.emplace(path);
      file->write(layout.header);
      file->resize(layout.size);
      plan = to_json_line({{"file", file->temporary().string()}, {"positions", layout.positions}});
    }
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_on_all(refused, group);
  plan = group.gather(plan).front();
  try {
    const Json layout_json = parse_json(plan, "checkpoint");
    std::vector<FileRange> ranges;
    const Json& positions = layout_json.at("positions");
    for (const OwnedBytes& one : owned) {
      ranges.push_back({positions.at(one.name).get<std::size_t>() + one.begin, bytes_of(one.values)});
    }
    if (const auto found = writer.tensors().find(kTokenizer); group.leads() && found != writer.tensors().end()) {
      ranges.push_back({positions.at(kTokenizer).get<std::size_t>(), found->second.data});
    }
    write_ranges(layout_json.at("file").get<std::string>(), ranges);
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_on_all(refused, group);
  try {
    if (file) {
      file->commit();
    }
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_on_all(refused, group);
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const fs::path& path, ProcessGroup& group) {
  const std::vector<OwnedBytes> owned = owned_by(checkpoint, path, group);
  SafetensorsWriter writer;
  for (const OwnedBytes& one : owned) {
    const at::Tensor& tensor = checkpoint.tensors.at(one.name);
    if (!tensor.is_meta()) {
      writer.add(one.name, stored_type(tensor.scalar_type(), one.name), tensor.sizes().vec(), bytes_of(one.values));
    }
  }
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (tensor.is_meta()) {
      writer.add_elsewhere(key, stored_type(tensor.scalar_type(), key), tensor.sizes().vec());
    }
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
  std::map<std::string, std::size_t> sizes;
  for (const auto& [key, tensor] : checkpoint.tensors) {
    sizes[key] = tensor.nbytes();
  }
  writer.set_metadata(kChecksums, join_checksums(group.gather(checksums_of(owned)), sizes));
  if (group.size() == 1) {
    writer.write(path);
  } else {
    write_together(writer, owned, path, group);
  }
}

Checkpoint read_unchecked(const fs::path& path) {
  if (std::error_code ignored; fs::is_directory(path, ignored)) {
    return import_huggingface(path).checkpoint;
  }
  const auto file = std::make_shared<const SafetensorsFile>(open_checkpoint(path));
  const std::string origin = path.string();
  Checkpoint checkpoint;
  checkpoint.metadata = file->metadata();
  checkpoint.config = config::parse_config(file->metadata_at("config"), origin);
  config::check(checkpoint.config, origin);
  const auto step = whole_number(file->metadata_at("step"));
  if (!step) {
    user_error("{}: step must be a number of steps, got \"{}\"", origin, file->metadata_at("step"));
  }
  checkpoint.step = *step;
  if (has_tokenizer(checkpoint.config.model)) {
    checkpoint.tokenizer = tokenizer_of(*file, checkpoint.config);
  }
  for (const auto& [name, stored] : file->tensors()) {
    if (name != kTokenizer) {
      checkpoint.tensors.emplace(name, view_of(file, name, stored));
    }
  }
  for (const char* own : {"format", "config", "tokenizer_kind", "tokenizer_name", "step"}) {
    checkpoint.metadata.erase(own);
  }
  return checkpoint;
}

std::unique_ptr<models::Model> build(const Checkpoint& checkpoint, const std::string& origin,
                                     const at::TensorOptions& options, const Place& place) {
  const config::ModelOptions& model = checkpoint.config.model;
  if (model.n_layers > static_cast<std::int64_t>(checkpoint.tensors.size())) {
    user_error("{}: model.n_layers is {}, but the file has only {} tensors", origin, model.n_layers,
               checkpoint.tensors.size());
  }
  const auto find = [&](const nn::Parameter& wanted) {
    const auto found = checkpoint.tensors.find("model." + wanted.name);
    if (found == checkpoint.tensors.end()) {
      user_error("{}: parameter \"{}\" is missing", origin, wanted.name);
    }
    const at::Tensor& tensor = found->second;
    const bool known = tensor.scalar_type() == at::kFloat || at::isReducedFloatingType(tensor.scalar_type());
    if (!known || tensor.sizes() != wanted.tensor.sizes()) {
      user_error("{}: parameter \"{}\" is {} {}, but its config requires Float {}", origin, wanted.name,
                 c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()), c10::str(wanted.tensor.sizes()));
    }
    return place(tensor, wanted);
  };
  std::unique_ptr<models::Model> built;
  try {
    built = models::make_model(model, nn::ParameterSource(find, options.dtype(at::kFloat)));
  } catch (const c10::Error& error) {
    if (options.device().is_cuda()) {
      throw;  // for example, out of memory
    }
    user_error("{}: its config is invalid: {}", origin, error.what_without_backtrace());
  }
  const std::size_t expected = built->parameters().in_creation_order().size();
  const auto stored = static_cast<std::size_t>(
      std::ranges::count_if(checkpoint.tensors, [](const auto& entry) { return entry.first.starts_with("model."); }));
  if (stored != expected) {
    user_error("{}: has {} parameters, but its config requires {}", origin, stored, expected);
  }
  return built;
}

namespace {

// Checks the values against the checksums, and sets checkpoint.verified if there are any.
void verify_values(Checkpoint& checkpoint, const std::string& origin) {
  const auto sums = checkpoint.metadata.find(kChecksums);
  if (sums == checkpoint.metadata.end()) {
    log_info("{}: was written without checksums, so corrupt tensors cannot be detected", origin);
    return;
  }
  verify_checksums(checkpoint.tensors, sums->second, origin);
  checkpoint.metadata.erase(sums);
  checkpoint.verified = true;
}

// Returns the newest intact checkpoint of a run before `file`; empty if there is none.
std::string intact_before(const fs::path& file) {
  for (const fs::path& earlier : earlier_checkpoints(file)) {
    try {
      Checkpoint checkpoint = read_unchecked(earlier);
      verify_values(checkpoint, earlier.string());
      return checkpoint.verified ? earlier.string() : "";
    } catch (const UserError&) {  // corrupt as well
    }
  }
  return "";
}

}  // namespace

void verify(Checkpoint& checkpoint, const std::string& origin) {
  try {
    if (!checkpoint.verified) {
      verify_values(checkpoint, origin);
    }
  } catch (const UserError& error) {
    const std::string other = intact_before(origin);
    user_error("{}{}", error.what(),
               other.empty() ? ""
                             : fmt::format("; {} is intact: name it instead of the run, or remove the damaged file to "
                                           "continue from it with --resume",
                                           other));
  }
}

Checkpoint read_checkpoint(const fs::path& path, Check check) {
  Checkpoint checkpoint = read_unchecked(path);
  build(checkpoint, path.string(), at::TensorOptions(at::kMeta), [](const at::Tensor& stored, const nn::Parameter&) {
    return at::empty_like(stored, at::TensorOptions(at::kMeta).dtype(at::kFloat));
  });
  if (check == Check::contents) {
    verify(checkpoint, path.string());
  }
  checkpoint.metadata.erase(kChecksums);
  return checkpoint;
}

std::string first_not_finite(const Checkpoint& checkpoint, std::string_view prefix) {
  const auto is_finite = [&](const std::string& name, const at::Tensor& tensor) {
    return !name.starts_with(prefix) || tensor.is_meta() || !tensor.is_floating_point() ||
           tensor.isfinite().all().item<bool>();
  };
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!is_finite(name, tensor)) {
      return name;
    }
  }
  for (const auto& [name, shards] : checkpoint.shards) {
    for (const Checkpoint::Shard& shard : shards) {
      if (!is_finite(name, shard.values)) {
        return name;
      }
    }
  }
  return "";
}

void require_finite(const Checkpoint& checkpoint, const std::string& origin) {
  constexpr std::string_view kModel = "model.";
  if (const std::string name = first_not_finite(checkpoint, kModel); !name.empty()) {
    user_error("{}: parameter {} has NaN or infinite values; use an earlier checkpoint", origin,
               name.substr(kModel.size()));
  }
}

std::optional<std::int64_t> step_in(const fs::path& file) {
  try {
    return whole_number(open_checkpoint(file).metadata_at("step"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void require_replaceable(const fs::path& file, std::string_view what) {
  if (std::error_code unknown; !fs::exists(file, unknown)) {
    return;
  }
  bool resumable = false;
  try {
    resumable = std::ranges::any_of(open_checkpoint(file).tensors(), [](const auto& entry) {
      return std::string_view(entry.first).starts_with("optimizer.");
    });
  } catch (const Error&) {
    user_error("{}: {} exists and is not a checkpoint; choose another name", what, printable(file.string()));
  }
  if (resumable) {
    user_error("{}: {} is a checkpoint that training can resume from; choose another name", what,
               printable(file.string()));
  }
}

}  // namespace headroom::store
