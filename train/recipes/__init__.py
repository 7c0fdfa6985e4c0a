"""Training recipes, as data: one TOML file each."""
