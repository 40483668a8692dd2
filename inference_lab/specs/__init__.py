"""The grammar of specs and the check of settings; nothing is loaded here."""
