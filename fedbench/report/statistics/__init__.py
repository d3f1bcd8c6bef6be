"""What may be concluded from seeds and scenarios: intervals, paired tests, corrections, tie groups, ranks."""
