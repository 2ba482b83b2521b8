"""The command's side of the process boundary: starts workers, monitors them, saves and renders results."""
