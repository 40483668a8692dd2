"""Must-link and cannot-link pairs: checked, closed, drawn, stored."""

from inference_lab.constraints.closure import ContradictionError
from inference_lab.constraints.constraints import ClosurePolicy, Constraints
from inference_lab.constraints.pairs import check_generator, point_indices, sample_pairs
from inference_lab.constraints.sample_ids import SampleIds

__all__ = [
    "ClosurePolicy",
    "Constraints",
    "ContradictionError",
    "SampleIds",
    "check_generator",
    "point_indices",
    "sample_pairs",
]


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
