#include "ahead.h"

#include <future>
#include <utility>

namespace headroom::tasks {
namespace {

class Ahead : public TrainingData {
 public:
  explicit Ahead(std::unique_ptr<TrainingData> data) : data_(std::move(data)), position_(data_->position()) {}

  models::Batch next() override {
    if (!coming_.valid()) {
      prepare();
    }
    Prepared batch = coming_.get();
    position_ = batch.after;
    prepare();
    return std::move(batch.batch);
  }
  data::DataPosition position() const override { return position_; }
  void seek(data::DataPosition position) override {
    coming_ = {};  // after what it is at
    data_->seek(position);
    position_ = position;
  }
  const std::string& identity() const override { return data_->identity(); }
  void need_only(const std::vector<bool>& rows) override {
    seek(position_);  // what is being made has other rows
    data_->need_only(rows);
  }

 private:
  struct Prepared {
    models::Batch batch;
    data::DataPosition after;
  };

  void prepare() {
    coming_ = std::async(std::launch::async, [this] {
      Prepared prepared{.batch = data_->next(), .after = {}};
      prepared.after = data_->position();
      return prepared;
    });
  }

  std::unique_ptr<TrainingData> data_;
  data::DataPosition position_;
  std::future<Prepared> coming_;  // last: its end waits for the thread
};

}  // namespace

std::unique_ptr<TrainingData> prepared_ahead(std::unique_ptr<TrainingData> data) {
  return std::make_unique<Ahead>(std::move(data));
}

}  // namespace headroom::tasks
