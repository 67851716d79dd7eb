"""Looking into rings from outside: who owns what and why, what moves, what would move, what is wrong.

`rings` and `picture`-like modules read the cluster; each command has a module of its name. Nothing here decides
anything for the fleet; what a command changes (cordon, weight, pause) it changes in the ControllerRing.
"""
