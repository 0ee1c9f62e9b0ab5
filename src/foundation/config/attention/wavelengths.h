// What every position scheme of sines and cosines has: the geometric series of their wavelengths.
#pragma once

#include "headroom/config/attention_options.h"
#include "headroom/config/field.h"

namespace headroom::config {

// Several parts share the option; the first that is asked adds it.
inline void describe_wavelengths(Fields& fields, AttentionOptions& o) {
  if (!fields.has("rope_base")) {
    fields.add("rope_base", o.rope_base, above(1),
               "relative, rope, sinusoidal: base of the geometric series of wavelengths");
  }
}

}  // namespace headroom::config
