#pragma once

#include "aotpack/operator.h"
