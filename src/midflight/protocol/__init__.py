"""The nouns and messages that every Midflight process shares. Standard library only."""
