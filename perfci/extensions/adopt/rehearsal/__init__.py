"""In a worker: functions are called without a device, to find out what an op of them takes."""
