"""fedbench's own methods and components: one a file, loaded through the entry points a stranger's package would use."""
