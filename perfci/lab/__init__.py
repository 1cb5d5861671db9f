"""Beyond a check: tune searches configurations, soak calls ops often and on huge arrays, chains run ops in a row."""
