#include "embedding.h"

#include <algorithm>
#include <cmath>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/nn/position.h"

namespace headroom::models {
namespace {

double deviation(const config::ModelOptions& o) {
  return 1.0 / std::sqrt(static_cast<double>(o.d_model));
}

}  // namespace

at::Tensor Embedding::make_matrix(const config::ModelOptions& o, std::int64_t vocabulary_size,
                                  const nn::Builder& build) {
  return build.embedding("embed", {vocabulary_size, o.d_model}, nn::Start::normal(deviation(o)));
}

Embedding::Embedding(const config::ModelOptions& o, const nn::Builder& build)
    : Embedding(o, make_matrix(o, build), build) {}

Embedding::Embedding(const config::ModelOptions& o, at::Tensor matrix, const nn::Builder& build)
    : scale_(o.scales_embeddings() ? std::sqrt(static_cast<double>(o.d_model)) : 1.0),
      dropout_(o.dropout),
      context_length_(o.context_length),
      embed_(std::move(matrix)) {
  if (o.attention.position->added_vectors() == config::AddedVectors::learned) {
    position_ = build.embedding("position", {o.context_length, o.d_model}, nn::Start::normal(deviation(o)));
  } else if (o.attention.position->added_vectors() == config::AddedVectors::fixed) {
    position_ = nn::sinusoids(0, o.context_length, o.d_model, o.attention.rope_base, build.options());
  }
  if (o.kind == config::ModelKind::masked_language_model) {
    norm_.emplace(o.norm, o.norm_epsilon, o.d_model, build.in("norm_embed"));
  }
}

at::Tensor Embedding::operator()(const at::Tensor& tokens, at::IntArrayRef first, const nn::Context& context) const {
  const c10::SymInt n = tokens.sym_size(1);
  const std::int64_t last = *std::max_element(first.begin(), first.end());
  if (n + last > context_length_) {
    fail("model: a sequence must hold at most context_length={} tokens, got {}", context_length_, c10::str(n + last));
  }
  at::Tensor h = at::embedding(embed_, tokens);
  if (scale_ != 1.0) {
    h = h * scale_;
  }
  if (position_.defined()) {
    std::vector<at::Tensor> rows;
    for (const std::int64_t place : first) {
      rows.push_back(position_.narrow_symint(0, place, n));
    }
    h = h + (rows.size() == 1 ? rows[0] : at::stack(rows));
  }
  return nn::dropout(norm_ ? (*norm_)(h) : h, dropout_, context, "embed");
}

}  // namespace headroom::models
