#include "picture_shards.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "data/tokens/dataset_id.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "picture_file.h"
#include "shard_index.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

class PictureShards : public Pictures {
 public:
  PictureShards(std::vector<fs::path> paths, const std::vector<ShardIndex>& indices, std::int64_t channels)
      : paths_(std::move(paths)), channels_(channels) {
    Sha256 sums;
    for (const ShardIndex& index : indices) {
      places_.insert(places_.end(), index.places.begin(), index.places.end());
      ends_.push_back(std::ssize(places_));
      sums.update(index.sum);
    }
    identity_ = fmt::format("{} pictures in {} shards, {}", places_.size(), paths_.size(), dataset_id(sums));
  }

  std::int64_t size() const override { return std::ssize(places_); }
  std::int32_t label(std::int64_t i) const override { return places_[static_cast<std::size_t>(i)].label; }
  DecodedPicture picture(std::int64_t i) const override {
    const PicturePlace& place = places_[static_cast<std::size_t>(i)];
    const PlacedReader file(paths_[shard_of(i)]);
    return decode_picture(fmt::format("{}: the picture at byte {}", file.name(), place.begin),
                          file.read(place.begin, place.size), channels_);
  }
  std::vector<std::int64_t> runs() const override {
    std::vector<std::int64_t> sizes = ends_;
    std::adjacent_difference(ends_.begin(), ends_.end(), sizes.begin());
    return sizes;
  }
  std::string identity() const override { return identity_; }

 private:
  std::size_t shard_of(std::int64_t i) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  }

  std::vector<fs::path> paths_;
  std::int64_t channels_;
  std::vector<PicturePlace> places_;
  std::vector<std::int64_t> ends_;  // of the shards' pictures
  std::string identity_;
};

void warn_of_bad(const std::vector<fs::path>& shards, const std::vector<ShardIndex>& indices) {
  std::int64_t bad = 0, good = 0;
  std::string complaint;
  for (const ShardIndex& index : indices) {
    complaint = bad == 0 ? index.complaint : complaint;
    bad += index.bad;
    good += std::ssize(index.places);
  }
  if (bad > 0) {
    log_warning("{}: {} of {} samples were left out; the first: {}", shards.front().string(), bad, bad + good,
                complaint);
  }
}

}  // namespace

std::unique_ptr<const Pictures> open_picture_shards(const std::vector<fs::path>& shards, const ImageReading& reading) {
  if (!reading.classes.empty() && std::ssize(reading.classes) != reading.n_classes) {
    user_error("data.classes: must name model.n_classes = {} classes, got {}", reading.n_classes,
               reading.classes.size());
  }
  constexpr std::size_t kMany = 16;
  std::optional<Progress> progress;
  if (shards.size() >= kMany) {
    progress.emplace("pictures", std::ssize(shards), "shard");
  }
  std::vector<ShardIndex> indices(shards.size());
  std::mutex mutex;
  std::int64_t done = 0;
  in_parallel(shards.size(), static_cast<std::size_t>(reading.threads), [&](std::size_t i) {
    if (interrupted()) {
      throw InterruptedError(fmt::format("{}: interrupted while the shards' headers were read", shards[i].string()));
    }
    indices[i] = index_shard(shards[i], reading);
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) {
      progress->update(done);
    }
  });
  warn_of_bad(shards, indices);
  return std::make_unique<PictureShards>(shards, indices, reading.channels);
}

}  // namespace headroom::data
