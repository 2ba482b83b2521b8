"""Measures pipetune itself: the figures of `pipetune bench --accuracy`, on any machine.

Every figure is a module of this package with the name it has in accuracy.json (`results.FIGURES`), and has two
functions::

    def measure(*, quick: bool, seed: int, progress: ProgressCallback, saved: ResumableResults) -> <a frozen dataclass>
    def claims(result: <that dataclass>, *, quick: bool) -> Sequence[Claim]

`measure` returns the values that are stored under the figure's name in accuracy.json. With `quick` it measures fewer
cases, in about half a minute, so that CI can run it. `seed` is the only source of randomness. `progress` must be called
at least every ten minutes: a process that is silent for longer is considered hung. What is kept in `saved` is not
measured again after an interruption (`benchmarks.resumable`). If the dataclass has a field `notes: tuple[str, ...]`,
the notes are shown below the table.

`claims` puts the values in words, next to their targets, such as
`Claim("mean error", "4.1 %", "at most 10 %", met=True)`. Each is a row of the table in the terminal and in accuracy.md.

Each run of figures has its own process, which imports TensorFlow but no code of a user
(`benchmarks.measuring_process`). Modules without `measure` contain what the figures share.
"""
