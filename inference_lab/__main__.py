"""``python -m inference_lab``: the command line."""

from inference_lab.cli import main

if __name__ == "__main__":
    main(prog_name="inference-lab")
