"""A replica as a process: settings, start and end, informers and workers, watchdogs, debug pages."""
