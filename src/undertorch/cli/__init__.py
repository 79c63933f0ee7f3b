"""The command line: one small file a command. A command parses, calls one function, draws, exits."""
