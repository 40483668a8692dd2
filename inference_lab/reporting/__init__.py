"""Reports, from records alone: tables, statistics, figures, and the pages they are put on."""
