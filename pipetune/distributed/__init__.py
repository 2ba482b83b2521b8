"""The tuned pipeline as a module for distributed jobs: its parts (`collect`), text (`emit`) and proof (`verify`)."""
