"""The IPython extension: `%load_ext pipetune` and the magic `%%pipetune`."""
