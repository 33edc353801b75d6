"""The training state: captured, compared, handed from member to member, put back."""
