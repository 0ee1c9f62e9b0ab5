#include "headroom/store/checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "checksums.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/config/model_options.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "headroom/core/safetensors.h"
#include "stored_tensor.h"

namespace headroom::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFormat = "headroom.checkpoint.1";
constexpr const char* kChecksums = "checksums";
constexpr const char* kTokenizer = "tokenizer";

// Opens and checks the container and its format, not yet the contents. Throws UserError naming the file.
SafetensorsFile open_checkpoint(const fs::path& path) {
  SafetensorsFile file(path);
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kFormat) {
    user_error("{}: not a checkpoint: its format is \"{}\", not \"{}\"", path.string(),
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
  const std::int64_t special = config::n_special_tokens(config.model.kind);
  if (tokenizer->vocabulary_size() + special != config.model.vocabulary_size) {
    user_error("{}: its tokenizer {} has {} tokens, but model.vocabulary_size is {}", file.path().string(),
               tokenizer->name(), tokenizer->vocabulary_size(), config.model.vocabulary_size - special);
  }
  tokenizers::require_source_vocabulary(*tokenizer, config.model.source_vocabulary_size, file.path().string());
  return tokenizer;
}

// The parameters that the config asks for, as shapes without memory, against those of the file. Returns the names of
// the buffers' tensors.
std::set<std::string> check_parameters(const Checkpoint& checkpoint, const std::string& origin) {
  const config::ModelOptions& options = checkpoint.config.model;
  if (options.n_layers > static_cast<std::int64_t>(checkpoint.tensors.size())) {
    user_error("{}: model.n_layers is {}, but the file has only {} tensors", origin, options.n_layers,
               checkpoint.tensors.size());
  }
  std::size_t expected = 0;
  std::set<std::string> buffers;
  try {
    const auto shapes = models::make_model(options, 0, at::TensorOptions(at::kFloat).device(at::kMeta));
    for (const nn::Parameter& parameter : shapes->parameters().stored()) {
      const auto found = checkpoint.tensors.find("model." + parameter.name);
      if (found == checkpoint.tensors.end()) {
        user_error("{}: parameter \"{}\" is missing", origin, parameter.name);
      }
      const at::Tensor& tensor = found->second;
      if (tensor.scalar_type() != at::kFloat || tensor.sizes() != parameter.tensor.sizes()) {
        user_error("{}: parameter \"{}\" is {} {}, but its config asks for Float {}", origin, parameter.name,
                   c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()), c10::str(parameter.tensor.sizes()));
      }
      ++expected;
      if (parameter.buffer) {
        buffers.insert(found->first);
      }
    }
  } catch (const c10::Error& error) {
    user_error("{}: its config describes no possible model: {}", origin, error.what_without_backtrace());
  }
  const auto stored =
      static_cast<std::size_t>(std::count_if(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                                             [](const auto& entry) { return entry.first.starts_with("model."); }));
  if (stored != expected) {
    user_error("{}: holds {} parameters, but its config asks for {}", origin, stored, expected);
  }
  return buffers;
}

// The first process that has something to say, and what; -1: none has. The same in all of them.
std::pair<int, std::string> first_said(const std::string& mine, ProcessGroup& peers) {
  const std::vector<std::string> all = peers.gather(mine);
  for (int rank = 0; rank < peers.size(); ++rank) {
    if (!all[static_cast<std::size_t>(rank)].empty()) {
      return {rank, all[static_cast<std::size_t>(rank)]};
    }
  }
  return {-1, ""};
}

// Throws `what`, unless it is empty in every process.
void throw_for_all(const std::string& what, ProcessGroup& peers) {
  if (const auto [rank, said] = first_said(what, peers); rank >= 0) {
    throw SharedError(fmt::format("{}: {}", peers.name_of(rank), said));
  }
}

// What this process holds, contiguous on the CPU. Throws NotFiniteError in all processes.
std::vector<Held> held_by(const Checkpoint& checkpoint, const fs::path& path, ProcessGroup& peers) {
  std::vector<Held> held;
  std::string refused;
  const auto hold = [&](const std::string& key, std::int64_t begin, const at::Tensor& tensor) {
    const at::Tensor bytes = tensor.detach().to(at::kCPU).contiguous();
    held.push_back({key, static_cast<std::size_t>(begin) * bytes.element_size(), bytes});
    if (refused.empty() && bytes.is_floating_point() && !at::isfinite(bytes).all().item<bool>()) {
      refused = fmt::format("{}: not written: tensor \"{}\" holds numbers that are not finite", path.string(), key);
    }
  };
  for (const auto& [key, tensor] : checkpoint.tensors) {
    if (!tensor.is_meta()) {
      hold(key, 0, tensor);
    }
  }
  for (const auto& [key, pieces] : checkpoint.pieces) {
    for (const Checkpoint::Piece& piece : pieces) {
      hold(key, piece.begin, piece.numbers);
    }
  }
  if (const auto [rank, said] = first_said(refused, peers); rank >= 0) {
    throw NotFiniteError(said);
  }
  return held;
}

// The leading process makes the file aside, each writes what it holds into it, and once all are done it gets its name.
void write_together(const SafetensorsWriter& writer, const std::vector<Held>& held, const fs::path& path,
                    ProcessGroup& peers) {
  std::optional<AtomicFile> file;
  SafetensorsWriter::Layout layout;
  std::string refused, plan;
  try {
    if (peers.leads()) {
      layout = writer.layout(path);
      file.emplace(path);
      file->write(layout.header);
      file->resize(layout.size);
      plan = to_json_line({{"file", file->temporary().string()}, {"positions", layout.positions}});
    }
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_for_all(refused, peers);
  plan = peers.gather(plan).front();
  try {
    const Json said = parse_json(plan, "checkpoint");
    std::vector<FileRange> ranges;
    const Json& positions = said.at("positions");
    for (const Held& one : held) {
      ranges.push_back({positions.at(one.name).get<std::size_t>() + one.begin, bytes_of(one.bytes)});
    }
    if (const auto found = writer.tensors().find(kTokenizer); peers.leads() && found != writer.tensors().end()) {
      ranges.push_back({positions.at(kTokenizer).get<std::size_t>(), found->second.data});
    }
    write_ranges(said.at("file").get<std::string>(), ranges);
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_for_all(refused, peers);
  try {
    if (file) {
      file->commit();
    }
  } catch (const Error& error) {
    refused = error.what();
  }
  throw_for_all(refused, peers);
}

}  // namespace

void save_checkpoint(const Checkpoint& checkpoint, const fs::path& path, ProcessGroup& peers) {
  const std::vector<Held> held = held_by(checkpoint, path, peers);
  SafetensorsWriter writer;
  for (const Held& one : held) {
    const at::Tensor& tensor = checkpoint.tensors.at(one.name);
    if (!tensor.is_meta()) {
      writer.add(one.name, stored_type(tensor.scalar_type(), one.name), tensor.sizes().vec(), bytes_of(one.bytes));
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
  writer.set_metadata(kChecksums, join_checksums(peers.gather(checksums_of(held)), sizes));
  if (peers.size() == 1) {
    writer.write(path);
  } else {
    write_together(writer, held, path, peers);
  }
}

Checkpoint read_checkpoint(const fs::path& path, Check check) {
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
  const std::set<std::string> buffers = check_parameters(checkpoint, origin);
  if (check == Check::contents) {
    const auto sums = checkpoint.metadata.find(kChecksums);
    if (sums == checkpoint.metadata.end()) {
      log_info("{}: was written without checksums: damage to its tensors would not show", origin);
    } else {
      verify_checksums(checkpoint.tensors, buffers, sums->second, origin);
      checkpoint.verified = true;
    }
  }
  for (const char* own : {"format", "config", "tokenizer_kind", "tokenizer_name", "step", kChecksums}) {
    checkpoint.metadata.erase(own);
  }
  return checkpoint;
}

std::optional<std::int64_t> step_in(const fs::path& file) {
  try {
    return whole_number(open_checkpoint(file).metadata_at("step"));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace headroom::store
