// Shadows torch's header of this name: see shim.h.
#pragma once
#include "module/shim.h"
