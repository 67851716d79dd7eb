"""Requests, streams and the verbs on objects, over our own HTTP/1.1 connections."""
