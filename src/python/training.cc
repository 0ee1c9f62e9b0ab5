// Python binding of runs whose model Python shards over the ranks (training/train/loop/sharded.h).
#include <ATen/core/dispatch/Dispatcher.h>
#include <malloc.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdio>

#include "cli/engine/engine.h"
#include "context.h"
#include "foundation/core/ceil_div.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/json.h"
#include "layer.h"
#include "training/parallel/launcher.h"

namespace headroom::python {
namespace {

train::ShardedReply call_python(const char* function, const Json& values, const std::vector<at::Tensor>& tensors) {
  std::vector<c10::IValue> stack{std::string(function), to_json_line(values), tensors};
  c10::Dispatcher::singleton().findSchemaOrThrow("headroom::sharded_call", "").callBoxed(stack);
  return {parse_json(stack.at(0).toStringRef(), function), stack.at(1).toTensorVector()};
}

// Returns the exit status of the command.
std::int64_t train_sharded(const std::string& config, const std::string& out, const std::vector<std::string>& set,
                           bool resume, bool json, const std::string& command_line) {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // shards and whole tensors alternate, which fragments the heap
  const cli::Train command{.config = config, .out = out, .set = set, .resume = resume};
  const cli::EngineRequest request{.command = command, .command_line = command_line, .output = cli::Output(json)};
  try {
    return cli::run_distributed(request, [&] { return cli::run(command, request, call_python); });
  } catch (const Error& error) {
    std::fprintf(stderr, "headroom: %s\n", error.what());
    return dynamic_cast<const UserError*>(&error) != nullptr          ? 2
           : dynamic_cast<const InterruptedError*>(&error) != nullptr ? interrupt_status()
                                                                      : 1;
  }
}

// Returns this process's rank, the number of ranks, the run's store, and how often the launcher has restarted it.
std::tuple<std::int64_t, std::int64_t, std::string, std::int64_t, std::int64_t> launch() {
  const auto found = parallel::read_launch().value_or(parallel::Launch());
  return {found.rank, found.size, found.host, found.port, found.restarts};
}

// Returns the rows of each initial value that a rank of FSDP owns, in creation order; of buffers, all rows. Stores no
// more than these and one whole parameter.
std::vector<at::Tensor> initial_shards(const std::string& text, std::int64_t seed, std::int64_t rank,
                                       std::int64_t ranks) {
  std::vector<at::Tensor> shards;
  nn::ParameterSource source(static_cast<std::uint64_t>(seed));
  source.keep = [&](const at::Tensor& value, bool buffer) {
    const std::int64_t rows = value.size(0), most = ceil_div(rows, ranks), begin = std::min(rank * most, rows);
    shards.push_back(buffer ? value : value.narrow(0, begin, std::min(most, rows - begin)).clone());
    return at::empty_like(value, value.options().device(at::kMeta));
  };
  nn::Parameters unused;
  make_parameters(layer_of(text), unused, source);
  return shards;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("sharded_call(str function, str values, Tensor[] tensors) -> (str, Tensor[])");  // Python implements it
  library.def("train_sharded", train_sharded);
  library.def("launch", throwing_value_errors(launch));
  library.def("initial_shards", throwing_value_errors(initial_shards));
}

}  // namespace headroom::python
