"""The grammar of specs and the validation of settings; neither loads any solver or problem."""
