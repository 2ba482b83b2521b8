"""How fast pipetune's plans are beside its rivals': `pipetune bench`.

Of each workload, in processes of its own: its data is made, `pipetune analyze` runs on the unmodified script as a user
runs it, and the plan it leaves is measured beside every rival's on the same dataset, window by window in turn. Peak
memory comes from a fresh process for each.

| module | holds |
| --- | --- |
| `__main__` | goes through the workloads, and tells each as soon as it is measured |
| `one_workload` | the processes of one workload, one after the other, and what they leave, put together |
| `measuring` | one workload: profile, contenders, windows; a process of its own |
| `contenders` | what each rival makes of a pipeline; what a cache holds, and whether it counts |
| `plumber` | the rules of one of them, as published |
| `rounds` | windows of every contender in turn; windows to rates, ratios and intervals |
| `peaks` | peak memory of one contender; a process of its own |
| `exchange` | the values these processes hand each other |
"""
