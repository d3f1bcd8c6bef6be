"""What is trained beside the frozen weights, one kind a file."""
