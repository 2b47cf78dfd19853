"""Commands in running attempts, requested by users (`iris task exec`)."""
