"""Looking into rings from outside: who owns what and why, what moves, what would move, what is wrong.

`flags` has the words of the commands, `cluster` what is read for them; each larger command has a folder, each smaller
one a module. Nothing here decides anything for the fleet; what a command changes (cordon, weight, pause) it changes in
the ControllerRing. `ringleader.doctor` builds on `cluster`.
"""
