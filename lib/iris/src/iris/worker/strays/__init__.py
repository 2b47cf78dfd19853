"""Finds processes that outlive their starter, attributes them to their attempt, and kills them."""
