"""`ringleader loadtest capacity`: how much each number of replicas carries."""
