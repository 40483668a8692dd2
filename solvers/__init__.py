"""Inference methods, one a file; installed as ``inference_lab.solvers``."""

if __name__ != "inference_lab.solvers":
    raise ImportError(
        f"this package is 'inference_lab.solvers', not {__name__!r}; "
        "install the project ('make setup') and import it under that name"
    )
