"""A package with relative imports, started as `-m package_relative`."""
