"""The one-way flow: discover, plan, [verify, measure], compare, judge; evidence that the judge lacks is fetched here.

Nothing here prints. What happens meanwhile is told to a `Listener`; what was measured is saved after every op.

bench       where workers run
describe    the ops, their cases, the device
base        the revision that a run is compared with
bisect      the commit that made a kernel slower, or wrong; bisect_revisions tries them
record      runs workers, keeps the run
rounds      measures and decides by turns
in_force    the thresholds that hold for a run: written, earned, relaxed, given
decide      verdicts of a stored run
drifts      creep and steps in kept histories; pasts reads them for a run's report
sources     for a run's report: thresholds in force that were earned, relaxed or given
accepting   baselines and lines of history, of runs that people looked at
rebaseline  baselines across a change of the environment
tightening  what accepted runs have earned, written beside the thresholds; and where each value comes from
static      kernels compiled without a device
sketch      a new op around functions that exist
chains      several ops one behind the other, stage by stage and as a whole
selftest    perfci tried on itself
soak        ops called often, at once and on huge arrays
shards      a plan for several runners, each one's part, and all of them joined
groups      cases that are held against commits of their own, measured group by group
again       what an earlier run could say nothing about, duelled against the last commit at which something could be
release     every case, duelled against the last release
"""
