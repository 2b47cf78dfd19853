"""Test tools: a Jobs API, Google's APIs, machines with ssh, the documents' code."""
