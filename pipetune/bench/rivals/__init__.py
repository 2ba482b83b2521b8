"""`pipetune bench`: compares the plans of pipetune with those of its rivals.

Each workload is measured in processes of its own. One generates its data, and one runs `pipetune analyze` on the
unmodified script as a user would. A third one measures the resulting plan and the plans of all rivals on the same
dataset, in rounds of one window each. Peak memory is measured in a new process for each rival.

| module | contents |
| --- | --- |
| `__main__` | measures the requested workloads, and sends each result as soon as it is measured |
| `workload_run` | runs the processes of one workload in order, and combines their results |
| `rates_process` | process that profiles the dataset and measures the rates of all contenders |
| `memory_process` | process that measures the peak memory of one contender |
| `process_files` | files that pass values between these processes |
| `contenders` | the plan of each rival; how much its caches hold, and whether they count |
| `plumber` | the rules of Plumber, as published |
| `rounds` | measures windows of all contenders, and computes rates, ratios and intervals |

A contender is a plan that is measured. A rival whose cache counts has two: its plan with and without the cache.
"""
