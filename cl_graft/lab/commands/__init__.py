"""The commands of the laboratory, one module a command."""
