"""What benchmarks on a control plane share: servers, objects, processes, figures. No rows and no goals here."""
