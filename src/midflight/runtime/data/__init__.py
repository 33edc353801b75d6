"""Which samples are whose, loaded ahead for each step; and the record of what was used."""
