"""What a single right call does not show: leaks, decay, answers that change, streams, threads, and huge shapes.

findings   what came of a test, and its rules' limits
rules      leaks and decay, judged from series of readings
subject    one case of an op, its calls and their comparison
repeated   many calls one behind the other: memory, speed, the same answer
together   several at once: streams, threads
huge       arrays of more than 2^31 elements, verified in slices
"""
