"""Message passing on any graph: memory layout, schedules, and decoding."""
