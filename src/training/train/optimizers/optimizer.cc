#include "optimizer.h"

#include "headroom/core/error.h"

namespace headroom::train {

const Optimizer& optimizer_named(config::Optimizer name) {
  switch (name) {
    case config::Optimizer::adamw:
      return adamw();
    case config::Optimizer::muon:
      return muon();
  }
  fail("train.optimizer: {}: is not known here", config::name_of(name));
}

}  // namespace headroom::train
