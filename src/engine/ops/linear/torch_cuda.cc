// On a GPU torch's product, bias included, is one kernel of the vendor's library already.
#include "operator.h"

namespace headroom::ops {
namespace {

[[maybe_unused]] const bool kLinearOnCuda =
    linear_backends().add({{"torch", at::kCUDA, 0, any_type}, never, linear_reference});

}  // namespace
}  // namespace headroom::ops
