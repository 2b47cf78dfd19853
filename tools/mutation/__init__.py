"""A sampler of small mistakes: which of them do the fast tests of the same package notice?"""
