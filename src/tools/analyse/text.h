// What a model reads for analyses: samples of a text, and all of it.
#pragma once

#include <functional>
#include <memory>

#include "analyse.h"
#include "reader.h"

namespace headroom::inspect {

class Text {
 public:
  virtual ~Text() = default;
  virtual std::int64_t samples() const = 0;  // single sequences that there are
  virtual std::int64_t tokens() const = 0;   // of all of it
  // One sequence, with the memory that the tokens before it leave.
  virtual Reading sample(std::int64_t i, models::Memory& memory) const = 0;
  // All of it, some sequences side by side; `read` gets the memory of what came before each.
  using Read = std::function<void(const Reading& reading, models::Memory& memory)>;
  virtual void read_all(const Read& read) const = 0;
};

// Throws UserError for a text without tokens, and for files that cannot be read.
std::unique_ptr<Text> open_text(const store::OpenedModel& opened, const TextChoice& choice);

}  // namespace headroom::inspect
