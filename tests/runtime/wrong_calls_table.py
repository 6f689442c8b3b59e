"""Wrong calls, by the archives of tests/support/recipes.py, and the exact error of each. docs/calls.md shows them."""

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
    """Wrong calls of one archive, and a right one."""

    title: str
    recipe: str
    right: str
    calls: tuple[Wrong, ...]


AFFINE = Section(
    "Arrays",
    "affine",
    "model(zeros(2, 4))",
    (
        Wrong(
            "too many items along a dim", "model(zeros(65, 4))", "input 'x': dim 0 ('batch') must be in [1, 64], got 65"
        ),
        Wrong(
            "nothing where the dim begins at 1",
            "model(zeros(0, 4))",
            "input 'x': dim 0 ('batch') must be in [1, 64], got 0",
        ),
        Wrong("another size than the model's", "model(zeros(2, 5))", "input 'x': dim 1 must be 4, got 5"),
        Wrong("too few dims", "model(zeros(4))", "input 'x': expected 2 dims [batch, 4], got 1"),
        Wrong("too many dims", "model(zeros(2, 4, 1))", "input 'x': expected 2 dims [batch, 4], got 3"),
        Wrong(
            "more dims than any model takes",
            "model(zeros(*[1] * 17))",
            "argument 'x' has rank 17; at most 16 dims are possible",
        ),
        Wrong("another dtype", "model(zeros(2, 4, dtype='float64'))", "input 'x': expected float32, got float64"),
        Wrong(
            "a dtype that no model takes",
            "model(np.array([['a']]))",
            "argument 'x' has the dtype <U1, which no model takes",
        ),
        Wrong("foreign byte order", "model(zeros(2, 4, dtype='>f4'))", "argument 'x' is in foreign byte order"),
        Wrong(
            "fields of records, between which other bytes lie",
            "model(np.zeros((2, 4), [('a', 'f4'), ('b', 'u1')])['a'])",
            "argument 'x' has strides that are no multiples of its element size",
        ),
        Wrong("an array on another device", "model(OnGpu())", "argument 'x' must be in CPU memory, is on cuda:0"),
        Wrong("a list for an array", "model([[1.0, 2.0, 3.0, 4.0]])", "argument 'x' must be an array, got list"),
        Wrong("a number for an array", "model(1.0)", "argument 'x' must be an array, got float"),
        Wrong("None for an array", "model(None)", "argument 'x' must be an array, got None"),
        Wrong("an argument is missing", "model()", "argument 'x' is missing"),
        Wrong(
            "an argument too many", "model(zeros(2, 4), zeros(2, 4))", "the entry takes 1 positional argument, got 2"
        ),
        Wrong("an unknown keyword", "model(zeros(2, 4), y=zeros(2, 4))", "there is no argument 'y'"),
        Wrong(
            "an argument twice",
            "model(zeros(2, 4), x=zeros(2, 4))",
            "argument 'x' is given twice, by position and by name",
        ),
        Wrong("`run` with too few inputs", "model.run([])", "the entry 'forward' has 1 input, got 0"),
        Wrong("`run` without an input", "model.run({})", "the input 'x' is missing"),
        Wrong(
            "`run` with an unknown input", "model.run({'x': zeros(2, 4), 'y': zeros(2, 4)})", "there is no input 'y'"
        ),
        Wrong(
            "a buffer of another size for the output",
            "model.run([zeros(2, 4)], out=[zeros(3, 4)])",
            "output 'output': dim 0 is batch = 2 in this call, the buffer has 3",
        ),
        Wrong(
            "a buffer of another rank for the output",
            "model.run([zeros(2, 4)], out=[zeros(8)])",
            "output 'output': expected 2 dims [batch, 4], got 1",
        ),
        Wrong(
            "a buffer of another dtype for the output",
            "model.run([zeros(2, 4)], out=[zeros(2, 4, dtype='float64')])",
            "output 'output': expected float32, got float64",
        ),
        Wrong(
            "a read-only buffer for the output",
            "model.run([zeros(2, 4)], out=[read_only(zeros(2, 4))])",
            "out 'output' is written to by this call, but the array is read-only",
        ),
        Wrong(
            "a buffer for the output whose elements share memory",
            "model.run([zeros(2, 4)], out=[overlapping(2, 4)])",
            "output 'output': the strides of its buffer overlap",
        ),
        Wrong(
            "an unknown output",
            "model.run([zeros(2, 4)], out={'output': zeros(2, 4), 'y': zeros(1)})",
            "there is no output 'y'",
        ),
    ),
)

SIZES = Section(
    "Sizes that depend on each other",
    "sizes",
    "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(3, dtype='bool'))",
    (
        Wrong(
            "not a multiple of 4",
            "model(x=zeros(3, 6), pairs=zeros(7), flat=zeros(18), mask=zeros(3, dtype='bool'))",
            "input 'x': dim 1 ('length') must be a multiple of 4, got 6",
        ),
        Wrong(
            "above the range, and the multiple is right",
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
            "two dims that must be equal are not",
            "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(4, dtype='bool'))",
            "input 'mask': dim 0 is 'batch' = 3 by input 'x', got 4",
        ),
        Wrong(
            "the only variant's condition does not hold",
            "model(x=zeros(4, 512), pairs=zeros(9), flat=zeros(2048), mask=zeros(4, dtype='bool'))",
            ("the call must satisfy batch*length <= 1024, got 'batch' = 4 by input 'x', 'length' = 512 by input 'x'"),
        ),
        Wrong(
            "a mask of ints",
            "model(x=zeros(3, 4), pairs=zeros(7), flat=zeros(12), mask=zeros(3, dtype='int64'))",
            "input 'mask': expected bool, got int64",
        ),
    ),
)

QUOTIENT = Section(
    "Sizes that give a dim",
    "quotient",
    "model(zeros(9), zeros(12))",
    (
        Wrong(
            "an even number for 2*n + 1",
            "model(zeros(4), zeros(1))",
            "input 'x': dim 0 must be 2*n + 1 with a whole 'n', got 4",
        ),
        Wrong(
            "2*n + 1 with n out of range",
            "model(zeros(13), zeros(1))",
            "input 'x': dim 0 is 2*n + 1 = 13, so 'n' is 6, but it must be in [1, 5]",
        ),
        Wrong(
            "below 1 + 2*n for all n",
            "model(zeros(0), zeros(1))",
            "input 'x': dim 0 must be 2*n + 1 with a whole 'n', got 0",
        ),
        Wrong(
            "a size that is not defined",
            "model(zeros(7), zeros(1))",
            "input 'y': dim 0 is 12//(n - 3), which cannot be evaluated for 'n' = 3 by input 'x'",
        ),
        Wrong(
            "a size that comes out negative",
            "model(zeros(3), zeros(6))",
            "input 'y': dim 0 is 12//(n - 3) = -6, which is no size ('n' = 1 by input 'x')",
        ),
    ),
)

VARIANTS = Section(
    "Variants",
    "variants",
    "model(zeros(3, 8))",
    (
        Wrong(
            "no variant fits",
            "model(zeros(3, 3))",
            (
                "no variant of entry 'forward' fits: 'batch=1' needs 'batch' = 1, got 'batch' = 3 by input 'x'; "
                "'even' needs 'batch' a multiple of 2 in [2, 64], got 'batch' = 3 by input 'x'; 'general' needs "
                "batch*length % 8 == 0, got 'batch' = 3 by input 'x', 'length' = 3 by input 'x'"
            ),
        ),
        Wrong(
            "no variant takes so many",
            "model(zeros(1026, 4))",
            (
                "no variant of entry 'forward' fits: 'batch=1' needs 'batch' = 1, got 'batch' = 1026 by input 'x'; "
                "'even' needs 'batch' a multiple of 2 in [2, 64], got 'batch' = 1026 by input 'x'; 'general' needs "
                "'batch' in [0, 1024], got 'batch' = 1026 by input 'x'"
            ),
        ),
        Wrong(
            "more elements than memory has",
            "model(np.broadcast_to(zeros(1, 1), (1, 2**60)))",
            "out of memory: 4611686018427387904 bytes to bring input 'x' into the model's layout",
            error="OutOfMemoryError",
        ),
    ),
)

NUMBERS = Section(
    "Numbers",
    "numbers",
    "model(zeros(2), 3, scale=0.5, flag=True)",
    (
        Wrong(
            "a number above its range",
            "model(zeros(2), 11, scale=0.5, flag=True)",
            "input 'n' must be in [1, 10], got 11",
        ),
        Wrong(
            "a number below its range",
            "model(zeros(2), 0, scale=0.5, flag=True)",
            "input 'n' must be in [1, 10], got 0",
        ),
        Wrong(
            "a float for an int", "model(zeros(2), 3.0, scale=0.5, flag=True)", "argument 'n' must be an int, got 3.0"
        ),
        Wrong(
            "a bool for an int", "model(zeros(2), True, scale=0.5, flag=True)", "argument 'n' must be an int, got True"
        ),
        Wrong(
            "an int beyond 64 bits",
            "model(zeros(2), 2**63, scale=0.5, flag=True)",
            "argument 'n' must fit 64 bits, got 9223372036854775808",
        ),
        Wrong(
            "None for an int", "model(zeros(2), None, scale=0.5, flag=True)", "argument 'n' must be an int, got None"
        ),
        Wrong(
            "a string for a float",
            "model(zeros(2), 3, scale='0.5', flag=True)",
            "argument 'scale' must be a float, got str",
        ),
        Wrong(
            "a bool for a float",
            "model(zeros(2), 3, scale=False, flag=True)",
            "argument 'scale' must be a float, got False",
        ),
        Wrong(
            "a complex number for a float",
            "model(zeros(2), 3, scale=1j, flag=True)",
            "argument 'scale' must be a float, got complex",
        ),
        Wrong("an int for a bool", "model(zeros(2), 3, scale=0.5, flag=1)", "argument 'flag' must be a bool, got 1"),
        Wrong(
            "an array of another dtype for a float",
            "model(zeros(2), 3, scale=zeros(dtype='float32'), flag=True)",
            "input 'scale': expected float64, got float32",
        ),
        Wrong(
            "an array with dims for an int",
            "model(zeros(2), np.array([3]), scale=0.5, flag=True)",
            "argument 'n' must be an int, got an array of rank 1",
        ),
        Wrong(
            "a list for a number", "model(zeros(2), [3], scale=0.5, flag=True)", "argument 'n' must be an int, got list"
        ),
        Wrong(
            "a number as a buffer",
            "model.run([zeros(2), 3, 0.5, True], out={'y': zeros(3, dtype='float64'), 'total': 0})",
            "out 'total' must be an array, got int",
        ),
        Wrong(
            "no buffer for an array",
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
            "another constant than the model's",
            'model(Batch(zeros(3), [zeros(), 4]), mode="fast", flag=None)',
            "argument 'batch.rest[1]' must be 3, the constant that the archive was built with; got 4",
        ),
        Wrong(
            "a constant of another type",
            'model(Batch(zeros(3), [zeros(), 3.0]), mode="fast", flag=None)',
            "argument 'batch.rest[1]' must be 3, the constant that the archive was built with; got 3.0",
        ),
        Wrong(
            "an array for a constant",
            "model(Batch(zeros(3), [zeros(), 3]), mode=zeros(1), flag=None)",
            "argument 'mode' must be 'fast', the constant that the archive was built with; got a ndarray",
        ),
        Wrong(
            "an array for None",
            'model(Batch(zeros(3), [zeros(), 3]), mode="fast", flag=zeros(1))',
            "argument 'flag' must be None, the constant that the archive was built with; got a ndarray",
        ),
        Wrong(
            "a list that is too short",
            'model(Batch(zeros(3), [zeros()]), mode="fast", flag=None)',
            "argument 'batch.rest' must have 2 items, got 1",
        ),
        Wrong(
            "an array for a list",
            'model(Batch(zeros(3), zeros(2)), mode="fast", flag=None)',
            "argument 'batch.rest' must be a list, got a ndarray",
        ),
        Wrong(
            "a dict for an object",
            'model({"x": zeros(3), "rest": [zeros(), 3]}, mode="fast", flag=None)',
            "argument 'batch' must be a Batch; a dict has no field 'x'",
        ),
        Wrong(
            "None deep inside",
            'model(Batch(zeros(3), [None, 3]), mode="fast", flag=None)',
            "argument 'scale' must be an array, got None",
        ),
    ),
)

NESTED_NUMBERS = Section(
    "Numbers inside of structures",
    "nested_numbers",
    "model(zeros(2), {'n': 3, 'rest': (0.5, True, 7)})",
    (
        Wrong(
            "a list for a dict", "model(zeros(2), [3, (0.5, True, 7)])", "argument 'options' must be a dict, got a list"
        ),
        Wrong("a dict without a key", "model(zeros(2), {'n': 3})", "argument 'options' lacks the key 'rest'"),
        Wrong(
            "a dict with an unknown key",
            "model(zeros(2), {'n': 3, 'rest': (0.5, True, 7), 'm': 1})",
            "argument 'options' has the unknown key 'm'",
        ),
        Wrong(
            "a number deep inside",
            "model(zeros(2), {'n': 3, 'rest': (0.5, 1, 7)})",
            "argument 'flag' must be a bool, got 1",
        ),
    ),
)

ACCUMULATE = Section(
    "Arrays that the call writes to",
    "accumulate",
    "(lambda m: model(m[:, :2], m[:, 2:]))(zeros(3, 4))",
    (
        Wrong(
            "an array that the call writes to, twice",
            "(lambda a: model(a, a))(zeros(3, 2))",
            "inputs 'a' and 'b' share memory, but the call writes to 'a'",
        ),
        Wrong(
            "two views that share elements",
            "(lambda a: model(a[:3], a[2:]))(zeros(5, 2))",
            "inputs 'a' and 'b' share memory, but the call writes to 'a'",
        ),
        Wrong(
            "elements that share memory where the call writes",
            "model(overlapping(3, 2), zeros(3, 2))",
            "input 'a' is written to, but its strides overlap",
        ),
        Wrong(
            "a read-only array where the call writes",
            "model(read_only(zeros(3, 2)), zeros(3, 2))",
            "argument 'a' is written to by this call, but the array is read-only",
        ),
        Wrong(
            "read-only memory where the call writes",
            "model(memoryview(bytes(24)).cast('f', [3, 2]), zeros(3, 2))",
            "argument 'a' is written to by this call, but the array is read-only",
        ),
    ),
)

TABLE = (AFFINE, SIZES, QUOTIENT, VARIANTS, NUMBERS, NESTED, NESTED_NUMBERS, ACCUMULATE)
