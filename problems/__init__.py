"""Problem families, one a file; installed as ``inference_lab.problems``."""

if __name__ != "inference_lab.problems":
    raise ImportError(
        f"this package is 'inference_lab.problems', not {__name__!r}; "
        "install the project ('make setup') and import it under that name"
    )
