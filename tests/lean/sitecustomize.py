"""In processes that the tests start: Keras does without what it imports only where it finds it, a second in each."""

import sys

sys.modules.update({"sklearn": None, "matplotlib.pyplot": None})  # what imports them gets an ImportError
