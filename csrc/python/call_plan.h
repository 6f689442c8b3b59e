// How a plain call maps to an entry's tensors, learnt from the manifest without a JSON library. Structures that are not
// plain (nested arguments, constants, nested results) are left to Python: aotpack/runtime/structure.py.
#pragma once

#include <Python.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace aotpack::python {

struct CallPlan {
  enum class Result : uint8_t { kStructured, kTensor, kTuple, kList, kDict };

  // Every argument is a tensor. Then `positional[p]` is the index of the input that the p-th positional argument gives,
  // and `names[i]` (interned, may be null) the name by which input i may be passed instead.
  bool plain_arguments = false;
  std::vector<int> positional;
  std::vector<PyObject*> names;

  // How outputs `outputs[k]` make up the result; `keys[k]` for dicts.
  Result result = Result::kStructured;
  std::vector<int> outputs;
  std::vector<PyObject*> keys;
};

// One plan per entry, in the manifest's order. What it does not understand comes out as "not plain". The strings are
// interned and never freed. Needs the GIL.
std::vector<CallPlan> read_call_plans(std::string_view manifest);

}  // namespace aotpack::python
