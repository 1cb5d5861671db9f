"""What a single right call does not show: leaks, decay, answers that change, streams, threads, and huge shapes."""
