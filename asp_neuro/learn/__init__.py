"""Training (torch): recipes, the trained twins of the deployed parts, losses, export."""
