"""What `mkdocs build` adds to the pages of docs/: pages made from the program itself, and other files' texts."""
