"""The decisions of the coordinator: `handle(state, event) -> (state, commands)`, and no effects."""
