#include "folder.h"

#include <fmt/ranges.h>

#include <set>

#include "engine/store/stored_tensor.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"

namespace headroom::store {

ModelFolder::ModelFolder(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path whole = folder / kWeightsFile, index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(whole, ignored)) {
    origin_ = whole.string();
    open(whole);
  } else if (std::filesystem::exists(index, ignored)) {
    origin_ = index.string();
    open_shards(index);
  } else {
    user_error("{}: holds neither model.safetensors nor model.safetensors.index.json; other formats are not read",
               folder.string());
  }
}

void ModelFolder::open(const std::filesystem::path& path) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  for (const auto& [name, stored] : file->tensors()) {
    if (!files_.emplace(name, file).second) {
      user_error("{}: tensor \"{}\" is in another shard as well", path.string(), name);
    }
  }
}

void ModelFolder::open_shards(const std::filesystem::path& index) {
  const SortedJson document = parse_sorted_json(read_text_file(index), origin_);
  if (!document.is_object() || !document.contains("weight_map") || !document.at("weight_map").is_object()) {
    user_error("{}: must hold an object weight_map of tensors and their files", origin_);
  }
  std::set<std::string> shards;
  for (const auto& [name, shard] : document.at("weight_map").items()) {
    const std::string file = shard.is_string() ? shard.get<std::string>() : std::string();
    if (file.empty() || file == "." || file == ".." || file.find_first_of("/\\") != std::string::npos) {
      user_error("{}: weight_map: the file of \"{}\" must be the name of one in this folder", origin_, name);
    }
    shards.insert(file);
  }
  for (const std::string& shard : shards) {
    open(index.parent_path() / shard);
  }
  for (const auto& [name, shard] : document.at("weight_map").items()) {
    const auto found = files_.find(name);
    if (found == files_.end() || found->second->path().filename() != shard.get<std::string>()) {
      user_error("{}: weight_map: {} has no tensor \"{}\"", origin_, shard.get<std::string>(), name);
    }
  }
}

std::vector<std::string> ModelFolder::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : files_) {
    all.push_back(name);
  }
  return all;
}

at::Tensor ModelFolder::at(const std::string& name, const std::vector<std::int64_t>& shape) const {
  const auto found = files_.find(name);
  if (found == files_.end()) {
    user_error("{}: has no tensor \"{}\", which its config.json asks for", origin_, name);
  }
  const StoredTensor& stored = found->second->at(name);
  if (stored.shape != shape) {
    user_error("{}: tensor \"{}\" has the shape [{}], but config.json asks for [{}]", found->second->path().string(),
               name, fmt::join(stored.shape, ", "), fmt::join(shape, ", "));
  }
  at::Tensor tensor = view_of(found->second, name, stored);
  if (!tensor.is_floating_point()) {
    user_error("{}: tensor \"{}\" has type {}, but must be F64, F32, F16 or BF16", found->second->path().string(), name,
               name_of(stored.dtype));
  }
  if (!at::isfinite(tensor.to(at::kFloat)).all().item<bool>()) {
    user_error("{}: tensor \"{}\" holds numbers that are not finite in float32", found->second->path().string(), name);
  }
  return tensor;
}

}  // namespace headroom::store
