"""Hardware descriptions and energy prices, as data: one TOML file each, with its source."""
