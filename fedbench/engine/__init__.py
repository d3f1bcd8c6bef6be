"""Engines train the clients of a round: train(model, start, plan, cohort, job) -> Uploads."""
