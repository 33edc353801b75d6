"""One per running job: owns the world. `core/` decides, the rest carries out."""
