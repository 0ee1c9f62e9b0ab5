// A head map as named operator arguments, and a check of its shapes.
#pragma once

#include "engine/ops/argument_struct.h"
#include "headroom/ops/head_map.h"

namespace headroom::ops {

// Throws Error unless the map fits scores of this shape, [B, H, T, S].
void check_head_map(const HeadMap& map, at::SymIntArrayRef scores);

struct HeadMapArguments {
  struct Side {
    OptionalTensor factors;
    std::int64_t rank = 0;
    bool gate = false;
  };
  OptionalTensor fixed;
  Side query, key;
  std::int64_t groups = 1;
  bool skip = true;

  template <class V>
  void visit(V& v, const std::string& prefix = "") {
    const auto named = [&](const char* name, auto& member) { v((prefix + name).c_str(), member); };
    named("fixed", fixed);
    named("query", query.factors);
    named("key", key.factors);
    v.by_name();
    named("query_rank", query.rank);
    named("query_gate", query.gate);
    named("key_rank", key.rank);
    named("key_gate", key.gate);
    named("groups", groups);
    named("skip", skip);
  }

  static HeadMapArguments of(const HeadMap& map) {
    const auto side = [](const HeadMapSide& s) { return Side{optional(s.factors), s.rank, s.has_gate}; };
    return {map.fixed, side(map.query), side(map.key), map.n_groups, map.skip};
  }
  HeadMap map() const {
    const auto side = [](const Side& s) { return HeadMapSide{s.factors.value_or(at::Tensor()), s.rank, s.gate}; };
    return {groups, skip, fixed, side(query), side(key)};
  }
  bool given() const {
    const auto has_side = [](const Side& s) { return s.factors || s.rank > 0 || s.gate; };
    return !skip || fixed || has_side(query) || has_side(key);
  }
};

}  // namespace headroom::ops
