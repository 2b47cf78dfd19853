"""The gRPC services: wire in, a decision of the controller, wire out."""
