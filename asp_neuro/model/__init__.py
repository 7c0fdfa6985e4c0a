"""The deployed model: mixer, policy, exit, and the episode that plays them."""
