"""The sketch task: functions are imported and rehearsed, to find out what an op of them takes."""
