"""Is the answer right, and when: scripts whose right answer is known, and a stopwatch that judges what is answered."""
