// Interrupts during work that cannot be stopped between two steps.
#pragma once

namespace headroom {

// With true, the next signal of catch_interrupts() ends the process within seconds even if interrupted() is not called:
// for long work with nothing to save.
void end_soon_if_interrupted(bool ends);

}  // namespace headroom
