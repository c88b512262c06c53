"""The command line: parse, call the layers below, write, say how it ended; the only place that prints or exits."""
