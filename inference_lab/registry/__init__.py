"""From a spec to an object."""
