#include "packing.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <vector>

#include "foundation/draw/page.h"
#include "tools/analyse/model_runner.h"

namespace headroom::inspector {
namespace {

constexpr std::array<std::int64_t, 5> kLevels = {32767, 127, 63, 31, 15};  // finest first
constexpr std::int64_t kOneByte = 127;                                     // more levels need two bytes
constexpr std::int64_t kBestRatio = 24;  // assumed upper bound of the compression ratio
constexpr std::int64_t kSquare = 16;     // side of the background's squares, in values
constexpr double kBytesPerPeak = 2.2;    // estimated, compressed

std::string int32_bytes(std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  return {reinterpret_cast<const char*>(&narrow), sizeof narrow};
}

at::Tensor square_root(const at::Tensor& p, const at::Tensor& scale) {
  const at::Tensor share = p / scale.masked_fill(scale.eq(0.0), 1.0);
  return share.sign() * share.abs().sqrt();
}

at::Tensor quantised(const at::Tensor& root, std::int64_t levels) {
  return (root * static_cast<double>(levels)).round().to(at::kInt);
}

// The start of a packed map.
std::string header(std::int64_t levels, const at::Tensor& root, const at::Tensor& scale) {
  return int32_bytes(levels) + bytes_of(analyse::shade_end(root.square() * scale.unsqueeze(1)), at::kFloat) +
         bytes_of(scale, at::kFloat);
}

std::string pack_levels(const at::Tensor& root, const at::Tensor& scale, const at::Tensor& visible,
                        std::int64_t levels) {
  const at::Tensor n = quantised(root.masked_select(visible), levels);
  std::string bytes = header(levels, root, scale);
  if (levels > kOneByte) {
    bytes += bytes_of(n.bitwise_and(0xff), at::kByte);
    bytes += bytes_of(n.bitwise_right_shift(8), at::kChar);
  } else {
    bytes += bytes_of(n, at::kChar);
  }
  return draw::deflated(bytes);
}

// Returns the mean of each square over the entries where `counts` is 1.
at::Tensor background(const at::Tensor& p, const at::Tensor& counts) {
  const std::int64_t t = p.size(0), more = (kSquare - t % kSquare) % kSquare;
  const auto sums = [&](const at::Tensor& all) {
    const at::Tensor padded = at::constant_pad_nd(all.to(at::kFloat), {0, more, 0, more});
    return padded.unflatten(1, {-1, kSquare}).unflatten(0, {-1, kSquare}).sum({1, 3});
  };
  return sums(p * counts) / sums(counts).clamp_min(1.0);
}

std::string pack_peaks(const at::Tensor& p, const at::Tensor& root, const at::Tensor& scale, const at::Tensor& visible,
                       std::int64_t k) {
  const at::Tensor size = p.abs().masked_fill(visible.logical_not(), -1.0);
  const at::Tensor columns = std::get<0>(std::get<1>(size.topk(k, -1)).sort(-1));
  const at::Tensor real = visible.gather(1, columns);  // false for the padding of rows with fewer than k values
  const at::Tensor steps = at::cat({columns.narrow(1, 0, 1), columns.diff(1, 1)}, 1);
  const at::Tensor rest = background(p, visible.scatter(1, columns, false));
  const at::Tensor most = rest.abs().max();
  return draw::deflated(header(0, root, scale) + int32_bytes(k) + uint16_bytes(steps.masked_select(real)) +
                        bytes_of(quantised(root.gather(1, columns).masked_select(real), kOneByte), at::kChar) +
                        int32_bytes(kSquare) + bytes_of(most, at::kFloat) +
                        bytes_of(quantised(square_root(rest, most), kOneByte), at::kChar));
}

}  // namespace

std::string bytes_of(const at::Tensor& tensor, at::ScalarType type) {
  const at::Tensor dense = tensor.detach().to(at::kCPU).to(type).contiguous();
  return {static_cast<const char*>(dense.const_data_ptr()), static_cast<std::size_t>(dense.nbytes())};
}

std::string uint16_bytes(const at::Tensor& tensor) {
  return bytes_of(tensor, at::kShort);
}

std::string pack_map(const at::Tensor& map, std::int64_t bytes, bool causal) {
  const at::NoGradGuard no_grad;
  const std::int64_t t = map.size(0), after = causal ? 0 : t;
  const at::Tensor p = map.to(at::kCPU, at::kFloat).tril(after);
  const at::Tensor scale = p.abs().amax(1), root = square_root(p, scale.unsqueeze(1));
  const at::Tensor visible = at::ones({t, t}, at::kBool).tril(after);
  const auto n_visible = visible.sum().item<std::int64_t>();
  for (const std::int64_t levels : kLevels) {
    const std::int64_t raw = n_visible * (levels > kOneByte ? 2 : 1);
    if (raw / kBestRatio > bytes) {
      continue;
    }
    const std::string packed = pack_levels(root, scale, visible, levels);
    if (std::ssize(packed) <= bytes) {
      return packed;
    }
  }
  const double room = static_cast<double>(bytes) / (kBytesPerPeak * static_cast<double>(t));
  return pack_peaks(p, root, scale, visible, std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 1, t));
}

at::Tensor thumbnail(const at::Tensor& map, std::int64_t side) {
  const at::NoGradGuard no_grad;
  const at::Tensor p = map.to(at::kFloat).abs().unsqueeze(0).unsqueeze(0);
  const auto most = at::adaptive_max_pool2d(p, {std::min(side, map.size(0)), std::min(side, map.size(1))});
  const at::Tensor end = analyse::shade_end(p).clamp_min(1e-30);
  return ((std::get<0>(most)[0][0] / end).clamp_max(1.0).sqrt() * 255.0).round().to(at::kByte);
}

namespace {

constexpr std::int64_t kSizesAtOnce = 1 << 24;  // contributions computed together

// The largest contributions to one layer's output per token, and the sum of the others. Sizes are relative to the norm
// of the output.
class Contributions {
 public:
  Contributions(const Attribution& a, std::int64_t most) : a_(a) {
    const at::Tensor out = a.out.to(at::kFloat);
    length_ = out.norm(2, {-1});
    const at::Tensor divisor = length_.masked_fill(length_.eq(0.0), 1.0).unsqueeze(1);
    unit_ = out / divisor;
    readout_ = inspector::readout(a, unit_ / divisor);
    bias_ = (a.rest.to(at::kFloat) * unit_).sum(-1) / divisor.squeeze(1);
    residual_ = residual_of(a);
    const std::int64_t heads = a.weights.size(0), ways = readout_.size(2), each = a.values.size(2) * ways;
    const std::int64_t all = heads * a.n_sources() * each;
    n_ = std::min(most, all);
    const std::int64_t at_once = std::clamp<std::int64_t>(kSizesAtOnce / all, 1, a.n_queries());
    for (std::int64_t begin = 0; begin < a.n_queries(); begin += at_once) {
      add(begin, std::min(at_once, a.n_queries() - begin));
    }
  }

  Json about() const {
    return {{"contributions", n_},
            {"splits", decompositions_},
            {"score_terms", a_.pre ? a_.pre->names : std::vector<std::string>()},
            {"residual", residual_.max().item<double>()}};
  }

  std::string bytes() const {
    std::string all;
    for (const std::vector<at::Tensor>* indices : {&source_, &head_, &value_expert_, &output_expert_}) {
      all += uint16_bytes(at::cat(*indices));
    }
    all += bytes_of(at::cat(size_), at::kHalf);
    for (const std::vector<at::Tensor>& terms : entry_terms_) {
      all += bytes_of(at::cat(terms), at::kHalf);
    }
    for (const at::Tensor& values : {length_, residual_, bias_, at::cat(others_), at::cat(by_head_)}) {
      all += bytes_of(values, at::kFloat);
    }
    for (const std::vector<at::Tensor>& terms : total_terms_) {
      all += bytes_of(at::cat(terms), at::kFloat);
    }
    if (!score_terms_.empty()) {
      all += bytes_of(at::cat(score_terms_), at::kHalf);
    }
    return all;
  }

 private:
  void add(std::int64_t begin, std::int64_t count) {
    const at::Tensor all = sizes(a_, readout_, begin, count);  // [H, count, S, V, O]
    const std::int64_t s = all.size(2), v = all.size(3), o = all.size(4);
    const at::Tensor flat = all.transpose(0, 1).flatten(1);  // [count, H S V O]
    const at::Tensor index = std::get<1>(flat.abs().topk(n_, -1));
    const at::Tensor size = flat.gather(1, index);
    const at::Tensor way = index.remainder(o), value = index.floor_divide(o).remainder(v);
    const at::Tensor source = index.floor_divide(o * v).remainder(s), head = index.floor_divide(o * v * s);
    const at::Tensor query = at::arange(begin, begin + count, at::kLong).unsqueeze(1).expand_as(index);
    source_.push_back(source);
    head_.push_back(head);
    value_expert_.push_back(a_.value_expert.index({head, source, value}));
    output_expert_.push_back(a_.output_expert.index({head, query, way}));
    size_.push_back(size);
    others_.push_back(flat.sum(-1) - size.sum(-1));
    by_head_.push_back(all.sum({2, 3, 4}).t());
    add_decompositions(all, {query - begin, head, source, size}, begin, count);
  }

  struct Entries {
    at::Tensor query, head, source, size;  // [count, n]
  };

  void add_decompositions(const at::Tensor& all, const Entries& kept, std::int64_t begin, std::int64_t count) {
    const std::vector<Decomposition> weight_terms = decompose_weights(a_, begin, count);
    if (weight_terms.empty()) {
      return;
    }
    entry_terms_.resize(weight_terms.size());
    total_terms_.resize(weight_terms.size());
    decompositions_.clear();
    const auto of_entries = [&](const at::Tensor& terms) {  // [terms, count, n]
      return terms.index({at::indexing::Slice(), kept.head, kept.query, kept.source});
    };
    if (const Decomposition scores = decompose_scores(a_, begin, count); !scores.terms.empty()) {
      score_terms_.push_back(of_entries(scores.weights).permute({1, 2, 0}));
    }
    const at::Tensor weights = a_.weights.narrow(1, begin, count);
    const at::Tensor per_weight = all.sum({3, 4}) / weights.masked_fill(weights.eq(0.0), 1.0);
    for (std::size_t i = 0; i < weight_terms.size(); ++i) {
      const auto& [name, terms, w] = weight_terms[i];  // w: [terms, H, count, S]
      const at::Tensor share = of_entries(w) / weights.index({kept.head, kept.query, kept.source});
      entry_terms_[i].push_back((share.nan_to_num(0.0, 0.0, 0.0) * kept.size).permute({1, 2, 0}));
      total_terms_[i].push_back((w * per_weight).sum({1, 3}).t());
      decompositions_.push_back({{"name", name}, {"terms", terms}});
    }
  }

  const Attribution& a_;
  std::int64_t n_ = 0;
  at::Tensor length_, unit_, readout_, bias_, residual_;
  std::vector<at::Tensor> source_, head_, value_expert_, output_expert_, size_, others_, by_head_, score_terms_;
  std::vector<std::vector<at::Tensor>> entry_terms_, total_terms_;
  Json decompositions_ = Json::array();
};

}  // namespace

PackedContributions pack_contributions(const Attribution& a, std::int64_t most) {
  const Contributions all(a, most);
  return {.bytes = all.bytes(), .about = all.about()};
}

}  // namespace headroom::inspector
