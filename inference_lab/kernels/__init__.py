"""Compiled steps that several methods share."""
