"""Lava processes and their models, and nothing else: Lava executes every file in this folder to find models."""
