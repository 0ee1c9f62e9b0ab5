// The safetensors files of a Hugging Face folder as one set of tensors.
#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headroom/core/safetensors.h"

namespace headroom::store {

// Of a model that is not cut into shards.
inline constexpr const char* kWeightsFile = "model.safetensors";
// In its metadata: the folder was exported from here, and may be written again; its model was trained here.
inline constexpr const char *kWrittenBy = "written_by", *kTrainedHere = "trained_here";

class ModelFolder {
 public:
  // Opens model.safetensors, else every shard that model.safetensors.index.json names. Throws UserError.
  explicit ModelFolder(const std::filesystem::path& folder);

  bool contains(const std::string& name) const { return files_.contains(name); }
  std::vector<std::string> names() const;
  // In the file's type, a view. Throws UserError naming the file and what it lacks, or another shape than `shape`.
  at::Tensor at(const std::string& name, const std::vector<std::int64_t>& shape) const;
  const std::string& origin() const { return origin_; }

 private:
  void open(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);

  std::string origin_;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files_;  // by tensor
};

}  // namespace headroom::store
