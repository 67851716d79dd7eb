"""Commands about rings: status, plots, pages, changes. `ringleader.cluster` reads and judges for them.

`flags` has the words of the commands; each larger command has a folder, each smaller one a module. Nothing here decides
for the fleet; a change (cordon, weight, pause) is a write to the ControllerRing.
"""
