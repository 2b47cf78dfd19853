"""The autoscaler against a cloud that fails, delays and forgets; `run` strikes, `cloud` is struck."""
