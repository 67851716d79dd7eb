"""Declarations of users: resources, models, watches, predicates, results, errors. Imports nothing of the runtime."""
