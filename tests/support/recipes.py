"""The archives that tests of the runtime and the command line use, by name."""

from __future__ import annotations

import dataclasses

from aotpack.archive import WeightTensor
from aotpack.spec import (
    CallSpec,
    DataclassSpec,
    DictSpec,
    Dim,
    DType,
    ListSpec,
    TensorLeaf,
    TupleSpec,
    ValueLeaf,
)
from tests.support.archives import Example, Recipe, Updates, Weight, floats, tensor
from tests.support.size_recipes import SIZE_RECIPES

_X = TensorLeaf(0)
_FLOAT = DType.FLOAT32

# y = x * w + 1 for x [batch, 4]
AFFINE = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  const float* w = call->constants[0].data;
  float* y = make(call, 0, x, AOTPACK_DTYPE_FLOAT32, sizeof(float));
  if (!y) return fail(call, AOTPACK_MODULE_OUT_OF_MEMORY, "no memory");
  for (int64_t i = 0; i < count(x); ++i) y[i] = ((const float*)x->data)[i] * w[i % 4] + 1;
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("batch", 1, 64),),
    inputs=(tensor("x", ["batch", 4]),),
    outputs=(tensor("output", ["batch", 4]),),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TensorLeaf(0),
    weights=(Weight("w", (1.0, 2.0, 3.0, 4.0)),),
    examples=(
        Example(((_FLOAT, (2, 4), floats(*range(8))),), ((_FLOAT, (2, 4), floats(1, 3, 7, 13, 5, 11, 19, 29)),)),
    ),
    name="affine",
)

# Two tensors in, two out: x + scale and x - scale.
_TWO_BODY = """
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  const float scale = *(const float*)call->inputs[1].data;
  float* a = make(call, 0, x, AOTPACK_DTYPE_FLOAT32, sizeof(float));
  float* b = make(call, 1, x, AOTPACK_DTYPE_FLOAT32, sizeof(float));
  for (int64_t i = 0; i < count(x); ++i) {
    a[i] = ((const float*)x->data)[i] + scale;
    b[i] = ((const float*)x->data)[i] - scale;
  }
  return AOTPACK_MODULE_OK;
}
"""
_TWO = {
    "body": _TWO_BODY,
    "dims": (Dim("n", 0, None),),
    "inputs": (tensor("x", ["n"]), tensor("scale", [])),
    "outputs": (tensor("output.0", ["n"]), tensor("output.1", ["n"])),
}
_BOTH = (TensorLeaf(0), TensorLeaf(1))
_KEYWORD = CallSpec((_X,), ("x",), ("scale",), (TensorLeaf(1),))

TUPLE = Recipe(**_TWO, in_spec=_KEYWORD, out_spec=TupleSpec(_BOTH))  # type: ignore[arg-type]
LIST = Recipe(**_TWO, in_spec=CallSpec(_BOTH, ("x", "scale")), out_spec=ListSpec(_BOTH))  # type: ignore[arg-type]
DICT = Recipe(**_TWO, in_spec=_KEYWORD, out_spec=DictSpec(("plus", "minus"), _BOTH))  # type: ignore[arg-type]
NESTED = Recipe(
    **_TWO,  # type: ignore[arg-type]
    in_spec=CallSpec(
        (
            DataclassSpec(
                "tests.support.structures:Batch", ("x", "rest"), (_X, ListSpec((TensorLeaf(1), ValueLeaf(3))))
            ),
        ),
        ("batch",),
        ("mode", "flag"),
        (ValueLeaf("fast"), ValueLeaf(None)),
    ),
    out_spec=DictSpec(("pair", "constant"), (TupleSpec((TensorLeaf(1), TensorLeaf(0))), ValueLeaf(7))),
)
DATACLASS_OUT = Recipe(
    **_TWO,  # type: ignore[arg-type]
    in_spec=CallSpec(_BOTH, ("x", None)),
    out_spec=DataclassSpec("tests.support.structures:Result", ("plus", "minus"), _BOTH),
)

# Fails as a kernel does that meets an index out of range; the message is given by the first element's sign.
FAILING = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const int64_t index = *(const int64_t*)call->inputs[0].data;
  if (index < 0) return fail(call, AOTPACK_MODULE_OUT_OF_MEMORY, "no memory for this");
  if (index > 9) return fail(call, AOTPACK_MODULE_INVALID_ARGUMENT, "index is out of range: it must be less than 10");
  if (index == 9) return fail(call, AOTPACK_MODULE_FAILED, "cannot compute");
  *(int64_t*)make(call, 0, &call->inputs[0], AOTPACK_DTYPE_INT64, 8) = index;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("index", [1], DType.INT64),),
    outputs=(tensor("output", [1], DType.INT64),),
    in_spec=CallSpec((_X,), ("index",)),
    out_spec=TensorLeaf(0),
)

# Counts its calls in a buffer of the context.
COUNTER = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  float* state = call->constants[0].data;
  state[0] += 1;
  *(float*)make(call, 0, &call->constants[0], AOTPACK_DTYPE_FLOAT32, 4) = state[0];
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(),
    outputs=(tensor("output", [1]),),
    in_spec=CallSpec((), ()),
    out_spec=TensorLeaf(0),
    weights=(Weight("calls", (0.0,), mutated=True),),
    entries=("step", "again"),
)

# A step that draws random numbers and writes to its state. For x < 0 it fails in the middle of that, as where an index
# is out of range. Returns the sum of the state times x.
TRAINER = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const float x = *(const float*)call->inputs[0].data;
  float* total = call->constants[0].data;
  float* steps = call->constants[1].data;
  for (int i = 0; i < 4; ++i) {
    const uint64_t drawn = ((aotpack_import_seed_fn)call->imports[SEED])(call->runtime);
    total[i] = total[i] * 0.5f + (float)(drawn % 1000) / 1000;
    if (i == 1 && x < 0) return fail(call, AOTPACK_MODULE_INVALID_ARGUMENT, "index -1 is out of range");
  }
  steps[0] += 1;
  *(float*)make(call, 0, &call->inputs[0], AOTPACK_DTYPE_FLOAT32, 4) =
      (total[0] + total[1] + total[2] + total[3]) * x;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [1]),),
    outputs=(tensor("loss", [1]),),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TensorLeaf(0),
    weights=(Weight("total", (0.0,) * 4, mutated=True), Weight("steps", (0.0,), mutated=True)),
)

# Doubles its argument in place and returns the number of threads.
IN_PLACE = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  for (int64_t i = 0; i < count(x); ++i) ((float*)x->data)[i] *= 2;
  Tensor one = {0};
  *(int32_t*)make(call, 0, &one, AOTPACK_DTYPE_INT32, 4) = call->num_threads;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [2, 3], mutated=True),),
    outputs=(tensor("threads", [], DType.INT32),),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TensorLeaf(0),
)

# The runtime's seed of this call.
RANDOM = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  Tensor one = {0};
  int64_t* out = make(call, 0, &one, AOTPACK_DTYPE_INT64, 8);
  *out = (int64_t)((aotpack_import_seed_fn)call->imports[SEED])(call->runtime);
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(),
    outputs=(tensor("output", [], DType.INT64),),
    in_spec=CallSpec((), ()),
    out_spec=TensorLeaf(0),
)

# Sleeps for a tenth of a second.
SLOW = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  usleep(100000);
  *(float*)make(call, 0, &call->inputs[0], AOTPACK_DTYPE_FLOAT32, 4) = *(const float*)call->inputs[0].data;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(tensor("x", [1]),),
    outputs=(tensor("output", [1]),),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TensorLeaf(0),
)


# y = x * packed + bias, where packed is 10 * weight by a fold that refuses a weight that begins with 0; `count` is
# state. `tied` is another name of `bias`, nothing depends on `unused`.
UPDATABLE = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  const float* bias = call->constants[1].data;
  const float* packed = call->constants[2].data;
  float* y = make(call, 0, x, AOTPACK_DTYPE_FLOAT32, sizeof(float));
  for (int64_t i = 0; i < count(x); ++i) y[i] = ((const float*)x->data)[i] * packed[i % 4] + bias[i % 4];
  *(float*)make(call, 1, &call->constants[3], AOTPACK_DTYPE_FLOAT32, 4) = *(float*)call->constants[3].data += 1;
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("batch", 1, 64),),
    inputs=(tensor("x", ["batch", 4]),),
    outputs=(tensor("y", ["batch", 4]), tensor("count", [1])),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TupleSpec(_BOTH),
    weights=(
        Weight("weight", (1.0, 2.0, 3.0, 4.0)),
        Weight("bias", (0.5, 0.5, 0.5, 0.5)),
        Weight("packed", (10.0, 20.0, 30.0, 40.0)),
        Weight("count", (0.0,), mutated=True),
    ),
    updates=Updates(
        tensors=(
            WeightTensor("weight", _FLOAT, (4,), 0),
            WeightTensor("bias", _FLOAT, (4,), 1),
            WeightTensor("tied", _FLOAT, (4,), 1),
            WeightTensor("count", _FLOAT, (1,), 3),
            WeightTensor("unused", DType.BFLOAT16, (2,), None),
        ),
        fold=Recipe(
            body="""
static int32_t run(const aotpack_module_call* call) {
  const float* weight = call->inputs[0].data;
  if (weight[0] == 0) return fail(call, AOTPACK_MODULE_INVALID_ARGUMENT, "weight begins with 0");
  float* packed = make(call, 0, &call->inputs[0], AOTPACK_DTYPE_FLOAT32, sizeof(float));
  for (int i = 0; i < 4; ++i) packed[i] = 10 * weight[i];
  return AOTPACK_MODULE_OK;
}
""",
            inputs=(tensor("weight", [4]),),
            outputs=(tensor("packed", [4]),),
            in_spec=CallSpec((_X,), ("weight",)),
            out_spec=TensorLeaf(0),
        ),
        results=(2,),
    ),
    report=b'{"entries":{}}\n',
    name="updatable",
)


def identity(dtype: DType) -> Recipe:
    """y = x for a matrix of this dtype."""
    body = """
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  memcpy(make(call, 0, x, x->dtype, SIZE), x->data, (size_t)count(x) * SIZE);
  return AOTPACK_MODULE_OK;
}
""".replace("SIZE", str(dtype.itemsize))
    return Recipe(
        body=body,
        dims=(Dim("rows", 0, None), Dim("columns", 0, None)),
        inputs=(tensor("x", ["rows", "columns"], dtype),),
        outputs=(tensor("output", ["rows", "columns"], dtype),),
        in_spec=CallSpec((_X,), ("x",)),
        out_spec=TensorLeaf(0),
    )


RECIPES = (
    {
        "affine": AFFINE,
        "tuple": TUPLE,
        "list": LIST,
        "dict": DICT,
        "nested": NESTED,
        "dataclass_out": DATACLASS_OUT,
        "failing": FAILING,
        "counter": COUNTER,
        "trainer": TRAINER,
        "in_place": IN_PLACE,
        "random": RANDOM,
        "slow": SLOW,
        "updatable": UPDATABLE,
        "code_only": dataclasses.replace(UPDATABLE, code_only=True),
    }
    | SIZE_RECIPES
    | {str(dtype): identity(dtype) for dtype in DType}
)
