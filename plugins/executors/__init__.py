"""Executors: cells on Ray and Slurm."""
