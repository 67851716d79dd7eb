"""What benchmarks on a control plane have in common: servers, objects, processes, figures. No rows and no goals here.

Called by `sharder_bench` and `runtime_bench`, each of which knows what it measures and what is wanted of it.
"""
