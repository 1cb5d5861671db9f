"""The statistics behind the verdicts: functions of numbers and histories, pure."""
