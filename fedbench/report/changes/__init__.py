"""What differs between two results folders: cell by cell, method by method, and in what they were computed with."""
