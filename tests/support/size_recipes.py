"""Archives whose calls are about sizes: dims and their relations, checks, variants, numbers, memory that is shared."""

from __future__ import annotations

import dataclasses
import struct

from aotpack.archive import Guard
from aotpack.spec import CallSpec, Check, DictSpec, Dim, DimRef, DType, Expr, ListSpec, TensorLeaf, TupleSpec, ValueLeaf
from tests.support.archives import Choice, Example, Recipe, floats, number, tensor

_X = TensorLeaf(0)
_BOTH = (TensorLeaf(0), TensorLeaf(1))
_FLOAT = DType.FLOAT32

# Every kind of size: a multiple, an affine one, an equal one, a computed one; and a computed one that comes out.
# a = x + 1, b = [0, 1, …].
_SIZES_BODY = """
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  float* a = make(call, 0, x, AOTPACK_DTYPE_FLOAT32, sizeof(float));
  for (int64_t i = 0; i < count(x); ++i) a[i] = ((const float*)x->data)[i] + 1;
  Tensor flat = {.rank = 1, .sizes = {x->sizes[1] / 2 * x->sizes[0]}};
  int64_t* b = make(call, 1, &flat, AOTPACK_DTYPE_INT64, sizeof(int64_t));
  for (int64_t i = 0; i < flat.sizes[0]; ++i) b[i] = i;
  return AOTPACK_MODULE_OK;
}
"""
_PRODUCT = ("$batch", "$length", "*")
SIZES = Recipe(
    body=_SIZES_BODY,
    dims=(Dim("batch", 1, 64), Dim("length", 0, 512, 4)),
    inputs=(
        tensor("x", ["batch", "length"]),
        tensor("pairs", [DimRef("batch", 2, 1)]),
        tensor("flat", [Expr("batch*length", _PRODUCT)]),
        tensor("mask", ["batch"], DType.BOOL),
    ),
    outputs=(
        tensor("a", ["batch", "length"]),
        tensor("b", [Expr("(length//2)*batch", ("$length", 2, "//", "$batch", "*"))], DType.INT64),
    ),
    in_spec=CallSpec(tuple(map(TensorLeaf, range(4))), ("x", "pairs", "flat", "mask")),
    out_spec=TupleSpec(_BOTH),
    variants=(Choice("default", (), (Check("batch*length <= 1024", (*_PRODUCT, 1024, "<=")),)),),
    name="sizes",
)

# Three variants of the same module; only the context tells which was chosen.
VARIANTS = Recipe(
    body=_SIZES_BODY,
    dims=(Dim("batch", 0, None), Dim("length", 0, None)),
    inputs=(tensor("x", ["batch", "length"]),),
    outputs=(
        tensor("a", ["batch", "length"]),
        tensor("b", [Expr("(length//2)*batch", ("$length", 2, "//", "$batch", "*"))], DType.INT64),
    ),
    in_spec=CallSpec((_X,), ("x",)),
    out_spec=TupleSpec(_BOTH),
    variants=(
        Choice("batch=1", (Guard("batch", 1, 1),)),
        Choice("even", (Guard("batch", 2, 64, 2), Guard("length", 1, None))),
        Choice(
            "general",
            (Guard("batch", 0, 1024),),
            (
                Check("batch*length % 8 == 0", (*_PRODUCT, 8, "%", 0, "==")),
                # Every type in one code.
                Check("trunc(batch*0.5) < 100 or false", ("$batch", "float", 0.5, "*", "trunc", 100, "<", False, "or")),
            ),
        ),
    ),
    name="variants",
)

# Numbers beside tensors: y = [scale * i for i in range(n)], where it is flipped by flag; the sum of n and the rows of
# x; the sum of x times scale; not flag.
NUMBERS = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const Tensor* x = &call->inputs[0];
  const int64_t n = *(const int64_t*)call->inputs[1].data;
  const double scale = *(const double*)call->inputs[2].data;
  const _Bool flag = *(const _Bool*)call->inputs[3].data;
  Tensor sizes = {.rank = 1, .sizes = {n}};
  Tensor one = {0};
  double* y = make(call, 0, &sizes, AOTPACK_DTYPE_FLOAT64, sizeof(double));
  for (int64_t i = 0; i < n; ++i) y[flag ? n - 1 - i : i] = scale * (double)i;
  double sum = 0;
  for (int64_t i = 0; i < count(x); ++i) sum += ((const float*)x->data)[i];
  *(int64_t*)make(call, 1, &one, AOTPACK_DTYPE_INT64, 8) = n + x->sizes[0];
  *(double*)make(call, 2, &one, AOTPACK_DTYPE_FLOAT64, 8) = sum * scale;
  *(_Bool*)make(call, 3, &one, AOTPACK_DTYPE_BOOL, 1) = !flag;
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("rows", 0, None), Dim("n", 1, 10)),
    inputs=(tensor("x", ["rows"]), number("n", "int", "n"), number("scale", "float"), number("flag", "bool")),
    outputs=(
        tensor("y", ["n"], DType.FLOAT64),
        number("total", "int"),
        number("product", "float"),
        number("other", "bool"),
    ),
    in_spec=CallSpec((_X, TensorLeaf(1)), ("x", "n"), ("scale", "flag"), (TensorLeaf(2), TensorLeaf(3))),
    out_spec=DictSpec(("y", "total", "product", "other"), tuple(map(TensorLeaf, range(4)))),
    examples=(
        Example(
            (
                (_FLOAT, (2,), floats(1, 2)),
                (DType.INT64, (), (3).to_bytes(8, "little")),
                (DType.FLOAT64, (), struct.pack("<d", 0.5)),
                (DType.BOOL, (), b"\1"),
            ),
            (
                (DType.FLOAT64, (3,), struct.pack("<3d", 1, 0.5, 0)),
                (DType.INT64, (), (5).to_bytes(8, "little")),
                (DType.FLOAT64, (), struct.pack("<d", 1.5)),
                (DType.BOOL, (), b"\0"),
            ),
        ),
    ),
    name="numbers",
)

# The same with the numbers inside of other things, and a constant beside them.
NESTED_NUMBERS = dataclasses.replace(
    NUMBERS,
    in_spec=CallSpec(
        (_X, DictSpec(("n", "rest"), (TensorLeaf(1), TupleSpec((TensorLeaf(2), TensorLeaf(3), ValueLeaf(7)))))),
        ("x", "options"),
    ),
    out_spec=TupleSpec((TupleSpec(_BOTH), ListSpec((TensorLeaf(2), TensorLeaf(3))))),
    name="nested_numbers",
)

# a += b, in place, and returns the sum's size.
ACCUMULATE = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  const Tensor* a = &call->inputs[0];
  for (int64_t i = 0; i < count(a); ++i) ((float*)a->data)[i] += ((const float*)call->inputs[1].data)[i];
  Tensor one = {0};
  *(int64_t*)make(call, 0, &one, AOTPACK_DTYPE_INT64, 8) = count(a);
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("rows", 1, None),),
    inputs=(tensor("a", ["rows", 2], mutated=True), tensor("b", ["rows", 2])),
    outputs=(number("size", "int"),),
    in_spec=CallSpec(_BOTH, ("a", "b")),
    out_spec=TensorLeaf(0),
    name="accumulate",
)

# The same where both may be one tensor, and a third one beside them.
SAME = dataclasses.replace(
    ACCUMULATE,
    inputs=(*ACCUMULATE.inputs, tensor("c", ["rows", 2])),
    in_spec=CallSpec(tuple(map(TensorLeaf, range(3))), ("a", "b", "c")),
    variants=(Choice("a is b", same=((0, 1),)), Choice("a is b is c", same=((0, 1, 2),)), Choice("general")),
    name="same",
)

# A dim that only an affine size gives, and a size that is not defined for every value of it.
QUOTIENT = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  *(int64_t*)make(call, 0, &(Tensor){0}, AOTPACK_DTYPE_INT64, 8) = call->inputs[1].sizes[0];
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("n", 1, 5),),
    inputs=(
        tensor("x", [DimRef("n", 2, 1)]),
        tensor("y", [Expr("12//(n - 3)", (12, "$n", 3, "-", "//"))]),
    ),
    outputs=(number("size", "int"),),
    in_spec=CallSpec(_BOTH, ("x", "y")),
    out_spec=TensorLeaf(0),
    name="quotient",
)


# Three numbers, none of which is a size, as they came in.
ECHO = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  Tensor one = {0};
  *(int64_t*)make(call, 0, &one, AOTPACK_DTYPE_INT64, 8) = *(const int64_t*)call->inputs[0].data;
  *(double*)make(call, 1, &one, AOTPACK_DTYPE_FLOAT64, 8) = *(const double*)call->inputs[1].data;
  *(_Bool*)make(call, 2, &one, AOTPACK_DTYPE_BOOL, 1) = *(const _Bool*)call->inputs[2].data;
  return AOTPACK_MODULE_OK;
}
""",
    inputs=(number("i", "int"), number("f", "float"), number("b", "bool")),
    outputs=(number("output.0", "int"), number("output.1", "float"), number("output.2", "bool")),
    in_spec=CallSpec(tuple(map(TensorLeaf, range(3))), ("i", "f", "b")),
    out_spec=TupleSpec(tuple(map(TensorLeaf, range(3)))),
    name="echo",
)


# One int that is a dim, any int at all.
CODES = Recipe(
    body="""
static int32_t run(const aotpack_module_call* call) {
  *(int64_t*)make(call, 0, &call->inputs[0], AOTPACK_DTYPE_INT64, 8) = *(const int64_t*)call->inputs[0].data;
  return AOTPACK_MODULE_OK;
}
""",
    dims=(Dim("n", -(1 << 63), None),),
    inputs=(number("n", "int", "n"),),
    outputs=(number("output", "int"),),
    in_spec=CallSpec((_X,), ("n",)),
    out_spec=TensorLeaf(0),
    name="codes",
)


SIZE_RECIPES = {
    "sizes": SIZES,
    "variants": VARIANTS,
    "numbers": NUMBERS,
    "nested_numbers": NESTED_NUMBERS,
    "accumulate": ACCUMULATE,
    "same": SAME,
    "quotient": QUOTIENT,
    "echo": ECHO,
    "codes": CODES,
}
