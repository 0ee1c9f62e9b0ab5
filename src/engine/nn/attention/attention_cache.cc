#include "headroom/nn/attention_cache.h"

#include <algorithm>
#include <cstring>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::nn {

std::vector<at::Tensor> AttentionCache::ordered() const {
  std::vector<at::Tensor> tokens;
  const std::int64_t until_end = std::min(size_, capacity_ - start_);
  for (const at::Tensor& slot : slots_) {
    const at::Tensor older = slot.narrow(2, start_, until_end);
    tokens.push_back(until_end == size_ ? older : at::cat({older, slot.narrow(2, 0, size_ - until_end)}, 2));
  }
  return tokens;
}

void AttentionCache::unshare() {
  const std::int64_t used = std::min(capacity_, start_ + size_);
  for (at::Tensor& slot : slots_) {
    if (slot.use_count() > 1) {
      const at::Tensor mine = at::empty_like(slot);
      mine.narrow(2, 0, used).copy_(slot.narrow(2, 0, used));
      slot = mine;
    }
  }
}

void AttentionCache::make_slots(const std::vector<at::Tensor>& fresh) {
  if (slots_.empty()) {
    for (const at::Tensor& t : fresh) {
      slots_.push_back(at::empty({1, t.size(1), capacity_, t.size(3)}, t.options()));
    }
  }
}

// Uses memcpy, because a torch operator costs more than copying a few hundred elements.
void AttentionCache::write_row(const std::vector<at::Tensor>& fresh, std::int64_t row, std::int64_t slot) {
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    const at::Tensor &from = fresh[i], &to = slots_[i];
    const auto size = static_cast<std::int64_t>(from.element_size());
    const auto* source = static_cast<const char*>(from.const_data_ptr()) + row * from.stride(0) * size;
    auto* target = static_cast<char*>(to.mutable_data_ptr()) + slot * to.stride(2) * size;
    for (std::int64_t head = 0; head < from.size(1); ++head) {
      std::memcpy(target + head * to.stride(1) * size, source + head * from.stride(1) * size,
                  static_cast<std::size_t>(from.size(3) * size));
    }
  }
}

AttentionCache::Visible AttentionCache::append_row(const std::vector<at::Tensor>& fresh, std::int64_t row,
                                                   bool any_order) {
  const bool plain = std::ranges::all_of(
      fresh, [](const at::Tensor& t) { return t.is_cpu() && (t.stride(3) == 1 || t.size(3) == 1); });
  const bool replaces_oldest = any_order && sliding_ && size_ == capacity_;
  if (!plain || (start_ + size_ >= capacity_ && !replaces_oldest)) {
    std::vector<at::Tensor> own_row = transformed(fresh, [&](const at::Tensor& t) { return t.narrow(0, row, 1); });
    Visible all{.tensors = append(own_row)};
    all.size = all.tensors[0].size(2);
    return all;
  }
  make_slots(fresh);
  unshare();
  ++next_position_;
  if (replaces_oldest) {
    write_row(fresh, row, start_);
    start_ = (start_ + 1) % capacity_;
    ++first_index_;
    return {slots_, 0, capacity_};
  }
  write_row(fresh, row, start_ + size_);
  ++size_;
  return {slots_, start_, size_};
}

std::vector<at::Tensor> AttentionCache::append(const std::vector<at::Tensor>& fresh) {
  const std::int64_t n = fresh.front().size(2);
  if (!sliding_ && size_ + n > capacity_) {
    fail("attention cache: has room for {} tokens and holds {}, got {} more", capacity_, size_, n);
  }
  make_slots(fresh);
  unshare();
  next_position_ += n;
  if (start_ + size_ + n <= capacity_) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].narrow(2, start_ + size_, n).copy_(fresh[i]);
    }
    size_ += n;
    return ordered();
  }
  // The oldest tokens are dropped. The first of several new tokens still sees the capacity - 1 tokens before it.
  std::vector<at::Tensor> visible_tokens = ordered();
  const std::int64_t all = size_ + n, visible = std::min(all, capacity_ - 1 + n), kept = std::min(all, capacity_);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const at::Tensor whole = at::cat({visible_tokens[i], fresh[i]}, 2);
    visible_tokens[i] = whole.narrow(2, all - visible, visible);
    if (n < capacity_) {
      for (std::int64_t token = 0; token < n; ++token) {
        slots_[i].select(2, (start_ + size_ + token) % capacity_).copy_(fresh[i].select(2, token));
      }
    } else {
      slots_[i].copy_(whole.narrow(2, all - kept, kept));
    }
  }
  start_ = n < capacity_ ? (start_ + all - kept) % capacity_ : 0;
  first_index_ += all - kept;
  size_ = kept;
  return visible_tokens;
}

bool AttentionCache::rewind(std::int64_t count) {
  if (count > size_ || (sliding_ && next_position_ > capacity_)) {
    return false;
  }
  size_ -= count;
  next_position_ -= count;
  return true;
}

void AttentionCache::keep_last(std::int64_t count) {
  if (count < size_) {
    unshare();
    const std::vector<at::Tensor> tokens = ordered();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].narrow(2, 0, count).copy_(tokens[i].narrow(2, size_ - count, count).clone());
    }
    start_ = 0;
    size_ = count;
  }
  const std::int64_t length = std::min(next_position_, count);  // length of the new chunk's memory
  first_index_ = length - size_;
}

void AttentionCache::reset() {
  size_ = start_ = next_position_ = first_index_ = 0;
  state_.clear();
  source_.clear();
  valid_source_.reset();
}

std::int64_t AttentionCache::elements() const {
  std::int64_t total = 0;
  const auto add = [&](const at::Tensor& t) { total += t.defined() ? t.numel() : 0; };
  for (const at::Tensor& slot : slots_) {
    add(slot);
  }
  std::ranges::for_each(source_, add);
  std::ranges::for_each(state_, add);
  return total;
}

}  // namespace headroom::nn
