"""Stands for the driver."""
