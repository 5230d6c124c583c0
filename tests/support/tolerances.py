"""Every tolerance of the tests, once, with its reason."""

# Two ways to sum some hundred products of numbers of size 1 to 10, relative to the largest entry: rounding of 1e-16 a
# term, with room for cancellation between terms that are a thousand times the result.
ROUNDING = 1e-11

# Accelerations pass through the inverse of M: rounding is multiplied by its condition number.
PER_CONDITION = 1e-13

# Derivatives by complex steps of 1e-20 have no truncation error; what is left is rounding.
COMPLEX_STEP = 1e-11


def solve(condition: float) -> float:
    """What may be expected of M⁻¹ times a vector."""
    return ROUNDING + PER_CONDITION * condition
