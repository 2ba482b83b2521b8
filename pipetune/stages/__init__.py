"""The steps of `workflow.analyze`, one file each: the only code that combines measuring, rules, search and source."""
