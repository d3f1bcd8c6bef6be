"""What algorithms share: depth-allocated tuning, whole models, split learning, and the rules they are made of."""
