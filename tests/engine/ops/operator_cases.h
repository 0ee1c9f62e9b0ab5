// The tables of all operators as one list.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "engine/ops/adamw/cases.h"
#include "engine/ops/attention/cases.h"
#include "engine/ops/attention/row_terms_cases.h"
#include "engine/ops/attention/sequences_cases.h"
#include "engine/ops/dropout/cases.h"
#include "engine/ops/expert_linear/cases.h"
#include "engine/ops/head_map/cases.h"
#include "engine/ops/linear/cases.h"
#include "engine/ops/linear_attention/cases.h"
#include "engine/ops/linear_cross_entropy/cases.h"
#include "engine/ops/muon/cases.h"

namespace headroom::testing {

struct OperatorCase {
  std::string op, name;
  std::function<ops::Problem(const ops::Setting&)> problem;
  std::vector<ops::Precision> precisions;
  double share = 0.0;  // of the largest of all gradients, that the error in one may count relative to
};

inline void PrintTo(const OperatorCase& c, std::ostream* to) {
  *to << c.op << ": " << c.name;
}

template <class Case>
void add_cases(std::vector<OperatorCase>& all, const char* op, const std::vector<Case>& table, double share = 0.0) {
  for (const Case& c : table) {
    all.push_back(
        {op, c.name(), [c](const ops::Setting& setting) { return c.problem(setting); }, c.precisions(), share});
  }
}

inline std::vector<OperatorCase> operator_cases() {
  using ops::Role;
  std::vector<OperatorCase> all;
  add_cases(all, "adamw", ops::adamw_cases(Role::tested));
  add_cases(all, "attention", ops::attention_cases(Role::tested), 0.1);
  add_cases(all, "attention_sequences", ops::sequences_cases());
  add_cases(all, "dropout", ops::dropout_cases());
  add_cases(all, "expert_linear", ops::expert_linear_cases(Role::tested));
  add_cases(all, "head_map_factors", ops::factors_cases());
  add_cases(all, "linear", ops::linear_cases());
  add_cases(all, "linear_attention", ops::linear_attention_cases(Role::tested));
  add_cases(all, "linear_cross_entropy", ops::cross_entropy_cases(Role::tested));
  add_cases(all, "muon", ops::muon_cases());
  add_cases(all, "row_terms", ops::row_terms_cases());
  return all;
}

}  // namespace headroom::testing
