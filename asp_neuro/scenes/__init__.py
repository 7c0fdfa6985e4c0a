"""What is looked at: scenes, their places, and how a place is encoded."""
