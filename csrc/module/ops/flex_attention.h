// The score functions of a module, which the build writes.
#pragma once

#include "kernels/score_rules.h"

// Each may be null.
struct AotpackScoreFunctions {
  aotpack::kernels::AnyScoreFunction score, mask;
};
// Those of the given name; null where there are none.
const AotpackScoreFunctions* aotpack_score_functions(const char* name);
