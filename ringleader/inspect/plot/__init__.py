"""`ringleader plot`: two figures, drawn with matplotlib's own layout.

`data` computes what is shown, without matplotlib. `figures` draws it. `command` reads the input and writes the file.
"""
