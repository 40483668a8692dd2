"""Reports from records alone: tables, statistics, figures, and the pages that show them."""
