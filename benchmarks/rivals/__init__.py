"""`pipetune bench`: compares the plans of pipetune with those of its rivals.

The workloads are scripts of the examples. A contender is a plan that is measured; a rival whose cache counts has two:
its plan with and without the cache.

| module | contents |
| --- | --- |
| `suite` | the list of figures: the workloads, how they are shown and saved |
| `workloads` | the scripts, and the published pipelines that they represent |
| `results` | what is measured of a workload, geometric means, the targets |
| `report`, `plot` | the results as text, and as a picture |
| `__main__` | runs the processes of each workload in order, and combines their results |
| `measuring` | a process that measures the rates of all contenders, or the peak memory of one |
| `process_files` | files that pass values between these processes |
| `contenders` | the plan of each rival; how much its caches hold, and whether they count |
| `plumber` | the rules of Plumber, as published |
| `rounds` | measures windows of all contenders, and computes rates, ratios and intervals |
"""
