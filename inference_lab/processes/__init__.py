"""Calls in isolated processes: limited, monitored, and ended with all their descendants."""
