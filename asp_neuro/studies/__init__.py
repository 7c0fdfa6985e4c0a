"""What is measured on models: order, robustness, pictures, cards."""
