#include "headroom/nn/factory.h"

#include "headroom/nn/composition.h"
#include "headroom/nn/position.h"
#include "headroom/nn/projection.h"
#include "headroom/nn/score.h"

namespace headroom::nn {

// Made when the first layer registers itself, whichever file's turn that is.
template <class Make>
std::map<std::string, Make, std::less<>>& factories() {
  static std::map<std::string, Make, std::less<>> table;
  return table;
}

template std::map<std::string, MakeProjection, std::less<>>& factories();
template std::map<std::string, MakeScore, std::less<>>& factories();
template std::map<std::string, MakeComposition, std::less<>>& factories();
template std::map<std::string, MakePosition, std::less<>>& factories();

}  // namespace headroom::nn
