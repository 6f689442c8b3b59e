// Shadows torch's header of this name: generated kernels have no vectors of its element types, and to instantiate them
// takes longer than to compile most kernels.
#pragma once
