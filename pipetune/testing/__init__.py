"""Public test kit: pipelines written as text, checks of rules, a fake clock and a runner with synthetic times."""
