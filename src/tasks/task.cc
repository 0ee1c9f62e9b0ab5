#include "headroom/tasks/task.h"

#include "headroom/core/error.h"
#include "headroom/tasks/classification.h"
#include "headroom/tasks/language_modelling.h"
#include "headroom/tasks/masked_language_modelling.h"
#include "headroom/tasks/translation.h"

namespace headroom::tasks {

const Task& task_for(const config::ModelOptions& model, std::string_view what) {
  switch (model.kind) {
    case config::ModelKind::language_model:
      return language_modelling();
    case config::ModelKind::encoder_decoder:
      return translation();
    case config::ModelKind::classifier:
      return sequence_classification();
    case config::ModelKind::vision:
      return image_classification();
    case config::ModelKind::masked_language_model:
      return masked_language_modelling();
  }
  misuse("{}: model.kind: there is no task for \"{}\" yet", what, config::name_of(model.kind));
}

}  // namespace headroom::tasks
