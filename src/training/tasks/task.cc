#include "task.h"

#include "headroom/core/error.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/language_modelling.h"
#include "training/tasks/language/masked_language_modelling.h"
#include "training/tasks/translation/translation.h"

namespace headroom::tasks {
namespace {

// Returns whether the validation data are generated rows, which have known answers.
bool validates_on_generated_rows(const config::DataOptions& data) {
  return data.generator == config::Generator::composition && data.validation.empty();
}

}  // namespace

const Task& task_for(const config::Config& config, std::string_view what) {
  switch (config.model.kind) {
    case config::ModelKind::language_model:
      return config.data.synthetic != config::Synthetic::none ? synthetic_sequences()
             : validates_on_generated_rows(config.data)       ? composition()
                                                              : language_modelling();
    case config::ModelKind::encoder_decoder:
      return translation();
    case config::ModelKind::classifier:
      return config.data.generator == config::Generator::none ? sequence_classification() : listops();
    case config::ModelKind::vision:
      return image_classification();
    case config::ModelKind::masked_language_model:
      return masked_language_modelling();
  }
  user_error("{}: model.kind: there is no task for \"{}\" yet", what, config::name_of(config.model.kind));
}

}  // namespace headroom::tasks
