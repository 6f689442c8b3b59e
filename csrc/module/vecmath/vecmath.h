// vecmath.h: elementary functions of vectors, by overload on float and double lanes.
#pragma once

#include "lanes.h"
