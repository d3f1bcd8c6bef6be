"""The suites that ship with fedbench: YAML files, which `fedbench suites` lists and every command takes by name."""
