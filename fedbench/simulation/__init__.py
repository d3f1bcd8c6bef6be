"""The life of one cell: its clients and their faults, training, evaluation, checkpoints and end."""
