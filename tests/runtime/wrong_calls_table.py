"""Wrong calls of the archives of tests/support/recipes.py, with their exact errors. docs/calls.md lists them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wrong:
    """A call and its error. `call` is Python, for `tests.runtime.wrong_calls.evaluate`."""

    what: str
    call: str
    message: str
    error: str = "InputError"


@dataclass(frozen=True)
class Section:
    """Wrong calls of one archive, and a valid call."""

    title: str
    recipe: str
    right: str
    calls: tuple[Wrong, ...]


AFFINE = Section(
    "Arrays",
    "affine",
    "model(zeros(2, 4))",
    (
        Wrong("size above the range", "model(zeros(65, 4))", "input 'x': dim 0 ('batch') must be in [1, 64], got 65"),
        Wrong(
            "size below the range",
            "model(zeros(0, 4))",
            "input 'x': dim 0 ('batch') must be in [1, 64], got 0",
        ),
        Wrong("wrong static size", "model(zeros(2, 5))", "input 'x': dim 1 must be 4, got 5"),
        Wrong("rank too low", "model(zeros(4))", "input 'x': expected 2 dims [batch, 4], got 1"),
        Wrong("rank too high", "model(zeros(2, 4, 1))", "input 'x': expected 2 dims [batch, 4], got 3"),
        Wrong(
            "rank above the limit",
            "model(zeros(*[1] * 17))",
            "argument 'x' has rank 17; at most 16 dims are supported",
        ),
        Wrong("wrong dtype", "model(zeros(2, 4, dtype='float64'))", "input 'x': expected float32, got float64"),
        Wrong(
            "unsupported dtype",
            "model(np.array([['a']]))",
            "argument 'x' has the dtype <U1, which is not supported",
        ),
        Wrong("non-native byte order", "model(zeros(2, 4, dtype='>f4'))", "argument 'x' has non-native byte order"),
        Wrong(
            "field of a structured array with unaligned strides",
            "model(np.zeros((2, 4), [('a', 'f4'), ('b', 'u1')])['a'])",
            "argument 'x' has strides that are not multiples of its element size",
        ),
        Wrong("array on another device", "model(OnGpu())", "argument 'x' must be in CPU memory, but is on cuda:0"),
        Wrong("list instead of an array", "model([[1.0, 2.0, 3.0, 4.0]])", "argument 'x' must be an array, got list"),
        Wrong("number instead of an array", "model(1.0)", "argument 'x' must be an array, got float"),
        Wrong("None instead of an array", "model(None)", "argument 'x' must be an array, got None"),
        Wrong("missing argument", "model()", "argument 'x' is missing"),
        Wrong(
            "too many arguments", "model(zeros(2, 4), zeros(2, 4))", "the entry accepts 1 positional argument, got 2"
        ),
        Wrong("unknown keyword", "model(zeros(2, 4), y=zeros(2, 4))", "unknown argument 'y'"),
        Wrong(
            "argument passed twice",
            "model(zeros(2, 4), x=zeros(2, 4))",
            "argument 'x' is passed twice, by position and by name",
        ),
        Wrong("`run` with too few inputs", "model.run([])", "the entry 'forward' has 1 input, got 0"),
        Wrong("`run` with a missing input", "model.run({})", "the input 'x' is missing"),
        Wrong("`run` with an unknown input", "model.run({'x': zeros(2, 4), 'y': zeros(2, 4)})", "unknown input 'y'"),
        Wrong(
            "output buffer with the wrong size",
            "model.run([zeros(2, 4)], out=[zeros(3, 4)])",
            "output 'output': dim 0 is batch = 2 in this call, the buffer has 3",
        ),
        Wrong(
            "output buffer with the wrong rank",
            "model.run([zeros(2, 4)], out=[zeros(8)])",
            "output 'output': expected 2 dims [batch, 4], got 1",
        ),
        Wrong(
            "output buffer with the wrong dtype",
            "model.run([zeros(2, 4)], out=[zeros(2, 4, dtype='float64')])",
            "output 'output': expected float32, got float64",
        ),
        Wrong(
            "read-only output buffer",
            "model.run([zeros(2, 4)], out=[read_only(zeros(2, 4))])",
            "out 'output' is written to by this call, but the array is read-only",
        ),
        Wrong(
            "output buffer with overlapping elements",
            "model.run([zeros(2, 4)], out=[overlapping(2, 4)])",
            "output 'output': the strides of its buffer overlap",
        ),
        Wrong(
            "unknown output",
            "model.run([zeros(2, 4)], out={'output': zeros(2, 4), 'y': zeros(1)})",
            "unknown output 'y'",
        ),
    ),
)

SIZES = Section(
    "Related sizes",
    "sizes",
    "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(3, dtype='bool'))",
    (
        Wrong(
            "not a multiple of 4",
            "model(x=zeros(3, 6), pairs=zeros(7), flat=zeros(18), mask=zeros(3, dtype='bool'))",
            "input 'x': dim 1 ('length') must be a multiple of 4, got 6",
        ),
        Wrong(
            "above the range, but a multiple of 4",
            "model(x=zeros(1, 516), pairs=zeros(3), flat=zeros(516), mask=zeros(1, dtype='bool'))",
            "input 'x': dim 1 ('length') must be in [0, 512], got 516",
        ),
        Wrong(
            "not 2*batch + 1",
            "model(x=zeros(3, 4), pairs=zeros(6), flat=zeros(12), mask=zeros(3, dtype='bool'))",
            "input 'pairs': dim 0 must be 2*batch + 1 = 7, got 6 ('batch' = 3 by input 'x')",
        ),
        Wrong(
            "not batch*length",
            "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(13), mask=zeros(3, dtype='bool'))",
            (
                "input 'flat': dim 0 must be batch*length = 12, got 13 ('batch' = 3 by input 'x', 'length' = 4 by "
                "input 'x')"
            ),
        ),
        Wrong(
            "two sizes of one dim differ",
            "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(4, dtype='bool'))",
            "input 'mask': dim 0 is 'batch' = 3 by input 'x', got 4",
        ),
        Wrong(
            "condition of the only variant does not hold",
            "model(x=zeros(4, 512), pairs=zeros(9), flat=zeros(2048), mask=zeros(4, dtype='bool'))",
            ("the call must satisfy batch*length <= 1024, got 'batch' = 4 by input 'x', 'length' = 512 by input 'x'"),
        ),
        Wrong(
            "int mask instead of bool",
            "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(3, dtype='int64'))",
            "input 'mask': expected bool, got int64",
        ),
    ),
)

QUOTIENT = Section(
    "Sizes that determine a dim",
    "quotient",
    "model(zeros(9), zeros(12))",
    (
        Wrong(
            "even size for 2*n + 1",
            "model(zeros(4), zeros(1))",
            "input 'x': dim 0 must be 2*n + 1 with a whole 'n', got 4",
        ),
        Wrong(
            "size 2*n + 1 with n out of range",
            "model(zeros(13), zeros(1))",
            "input 'x': dim 0 is 2*n + 1 = 13, so 'n' is 6, but it must be in [1, 5]",
        ),
        Wrong(
            "below 2*n + 1 for every n",
            "model(zeros(0), zeros(1))",
            "input 'x': dim 0 must be 2*n + 1 with a whole 'n', got 0",
        ),
        Wrong(
            "undefined size",
            "model(zeros(7), zeros(1))",
            "input 'y': dim 0 is 12//(n - 3), which cannot be evaluated for 'n' = 3 by input 'x'",
        ),
        Wrong(
            "negative size",
            "model(zeros(3), zeros(6))",
            "input 'y': dim 0 is 12//(n - 3) = -6, which is not a valid size ('n' = 1 by input 'x')",
        ),
    ),
)

VARIANTS = Section(
    "Variants",
    "variants",
    "model(zeros(3, 8))",
    (
        Wrong(
            "no matching variant",
            "model(zeros(3, 3))",
            (
                "no variant of entry 'forward' matches: 'batch=1' needs 'batch' = 1, got 'batch' = 3 by input 'x'; "
                "'even' needs 'batch' a multiple of 2 in [2, 64], got 'batch' = 3 by input 'x'; 'general' needs "
                "batch*length % 8 == 0, got 'batch' = 3 by input 'x', 'length' = 3 by input 'x'"
            ),
        ),
        Wrong(
            "size above the range of every variant",
            "model(zeros(1026, 4))",
            (
                "no variant of entry 'forward' matches: 'batch=1' needs 'batch' = 1, got 'batch' = 1026 by input 'x'; "
                "'even' needs 'batch' a multiple of 2 in [2, 64], got 'batch' = 1026 by input 'x'; 'general' needs "
                "'batch' in [0, 1024], got 'batch' = 1026 by input 'x'"
            ),
        ),
        Wrong(
            "copy that exceeds the available memory",
            "model(np.broadcast_to(zeros(1, 1), (1, 2**60)))",
            "out of memory: 4611686018427387904 bytes to bring input 'x' into the model's layout",
            error="OutOfMemoryError",
        ),
    ),
)

NUMBERS = Section(
    "Scalars",
    "numbers",
    "model(zeros(2), 3, scale=0.5, flag=True)",
    (
        Wrong(
            "scalar above its range",
            "model(zeros(2), 11, scale=0.5, flag=True)",
            "input 'n' must be in [1, 10], got 11",
        ),
        Wrong(
            "scalar below its range",
            "model(zeros(2), 0, scale=0.5, flag=True)",
            "input 'n' must be in [1, 10], got 0",
        ),
        Wrong(
            "float instead of an int",
            "model(zeros(2), 3.0, scale=0.5, flag=True)",
            "argument 'n' must be an int, got 3.0",
        ),
        Wrong(
            "bool instead of an int",
            "model(zeros(2), True, scale=0.5, flag=True)",
            "argument 'n' must be an int, got True",
        ),
        Wrong(
            "int that exceeds 64 bits",
            "model(zeros(2), 2**63, scale=0.5, flag=True)",
            "argument 'n' must fit 64 bits, got 9223372036854775808",
        ),
        Wrong(
            "None instead of an int",
            "model(zeros(2), None, scale=0.5, flag=True)",
            "argument 'n' must be an int, got None",
        ),
        Wrong(
            "string instead of a float",
            "model(zeros(2), 3, scale='0.5', flag=True)",
            "argument 'scale' must be a float, got str",
        ),
        Wrong(
            "bool instead of a float",
            "model(zeros(2), 3, scale=False, flag=True)",
            "argument 'scale' must be a float, got False",
        ),
        Wrong(
            "complex number instead of a float",
            "model(zeros(2), 3, scale=1j, flag=True)",
            "argument 'scale' must be a float, got complex",
        ),
        Wrong(
            "int instead of a bool", "model(zeros(2), 3, scale=0.5, flag=1)", "argument 'flag' must be a bool, got 1"
        ),
        Wrong(
            "array of another dtype instead of a float",
            "model(zeros(2), 3, scale=zeros(dtype='float32'), flag=True)",
            "input 'scale': expected float64, got float32",
        ),
        Wrong(
            "array of rank 1 instead of an int",
            "model(zeros(2), np.array([3]), scale=0.5, flag=True)",
            "argument 'n' must be an int, got an array of rank 1",
        ),
        Wrong(
            "list instead of a scalar",
            "model(zeros(2), [3], scale=0.5, flag=True)",
            "argument 'n' must be an int, got list",
        ),
        Wrong(
            "number as an output buffer",
            "model.run([zeros(2), 3, 0.5, True], out={'y': zeros(3, dtype='float64'), 'total': 0})",
            "out 'total' must be an array, got int",
        ),
        Wrong(
            "None as an output buffer",
            "model.run([zeros(2), 3, 0.5, True], out=[None] * 4)",
            "out 'y' must be an array, got None",
        ),
    ),
)

NESTED = Section(
    "Structures and constants",
    "nested",
    'model(Batch(zeros(3), [zeros(), 3]), mode="fast", flag=None)',
    (
        Wrong(
            "wrong constant",
            'model(Batch(zeros(3), [zeros(), 4]), mode="fast", flag=None)',
            "argument 'batch.rest[1]' must be 3, the constant that the archive was built with; got 4",
        ),
        Wrong(
            "constant of another type",
            'model(Batch(zeros(3), [zeros(), 3.0]), mode="fast", flag=None)',
            "argument 'batch.rest[1]' must be 3, the constant that the archive was built with; got 3.0",
        ),
        Wrong(
            "array instead of a constant",
            "model(Batch(zeros(3), [zeros(), 3]), mode=zeros(1), flag=None)",
            "argument 'mode' must be 'fast', the constant that the archive was built with; got a ndarray",
        ),
        Wrong(
            "array instead of None",
            'model(Batch(zeros(3), [zeros(), 3]), mode="fast", flag=zeros(1))',
            "argument 'flag' must be None, the constant that the archive was built with; got a ndarray",
        ),
        Wrong(
            "list that is too short",
            'model(Batch(zeros(3), [zeros()]), mode="fast", flag=None)',
            "argument 'batch.rest' must have 2 items, got 1",
        ),
        Wrong(
            "array instead of a list",
            'model(Batch(zeros(3), zeros(2)), mode="fast", flag=None)',
            "argument 'batch.rest' must be a list, got a ndarray",
        ),
        Wrong(
            "dict instead of an object",
            'model({"x": zeros(3), "rest": [zeros(), 3]}, mode="fast", flag=None)',
            "argument 'batch' must be a Batch; a dict has no field 'x'",
        ),
        Wrong(
            "nested None instead of an array",
            'model(Batch(zeros(3), [None, 3]), mode="fast", flag=None)',
            "argument 'scale' must be an array, got None",
        ),
    ),
)

NESTED_NUMBERS = Section(
    "Nested scalars",
    "nested_numbers",
    "model(zeros(2), {'n': 3, 'rest': (0.5, True, 7)})",
    (
        Wrong(
            "list instead of a dict",
            "model(zeros(2), [3, (0.5, True, 7)])",
            "argument 'options' must be a dict, got a list",
        ),
        Wrong("missing dict key", "model(zeros(2), {'n': 3})", "argument 'options' lacks the key 'rest'"),
        Wrong(
            "unknown dict key",
            "model(zeros(2), {'n': 3, 'rest': (0.5, True, 7), 'm': 1})",
            "argument 'options' has the unknown key 'm'",
        ),
        Wrong(
            "nested int instead of a bool",
            "model(zeros(2), {'n': 3, 'rest': (0.5, 1, 7)})",
            "argument 'flag' must be a bool, got 1",
        ),
    ),
)

ACCUMULATE = Section(
    "Mutated arrays",
    "accumulate",
    "(lambda m: model(m[:, :2], m[:, 2:]))(zeros(3, 4))",
    (
        Wrong(
            "mutated array passed twice",
            "(lambda a: model(a, a))(zeros(3, 2))",
            "inputs 'a' and 'b' share memory, but the call writes to 'a'; no variant is for 'a' is 'b'",
        ),
        Wrong(
            "two views that share elements",
            "(lambda a: model(a[:3], a[2:]))(zeros(5, 2))",
            "inputs 'a' and 'b' share memory, but the call writes to 'a'",
        ),
        Wrong(
            "mutated array with overlapping elements",
            "model(overlapping(3, 2), zeros(3, 2))",
            "input 'a' is written to, but its strides overlap",
        ),
        Wrong(
            "read-only array for a mutated input",
            "model(read_only(zeros(3, 2)), zeros(3, 2))",
            "argument 'a' is written to by this call, but the array is read-only",
        ),
        Wrong(
            "read-only memory for a mutated input",
            "model(memoryview(bytes(24)).cast('f', [3, 2]), zeros(3, 2))",
            "argument 'a' is written to by this call, but the array is read-only",
        ),
    ),
)

SAME = Section(
    "Inputs that are one tensor",
    "same",
    "(lambda a: model(a, a, zeros(3, 2)))(zeros(3, 2))",
    (
        Wrong(
            "one tensor where no variant is for it",
            "(lambda a: model(a, zeros(3, 2), a))(zeros(3, 2))",
            "inputs 'a' and 'c' share memory, but the call writes to 'a'; variant 'a is b' needs 'a' is 'b', got "
            "tensors with different addresses; variant 'a is b is c' needs 'a' is 'b' is 'c', got tensors with "
            "different addresses",
        ),
        Wrong(
            "one tensor and a view that shares elements",
            "(lambda a: model(a[:3], a[:3], a[2:]))(zeros(5, 2))",
            "inputs 'a' and 'c' share memory, but the call writes to 'a'; variant 'a is b' is for 'a' is 'b' only; "
            "variant 'a is b is c' needs 'a' is 'b' is 'c', got tensors with different addresses",
        ),
        Wrong(
            "two views of one array",
            "(lambda a: model(a[::2], a[:2], zeros(2, 2)))(zeros(4, 2))",
            "inputs 'a' and 'b' share memory, but the call writes to 'a'; variant 'a is b' needs 'a' is 'b', got "
            "tensors with different strides; variant 'a is b is c' needs 'a' is 'b' is 'c', got tensors with "
            "different strides",
        ),
    ),
)

TABLE = (AFFINE, SIZES, QUOTIENT, VARIANTS, NUMBERS, NESTED, NESTED_NUMBERS, ACCUMULATE, SAME)
