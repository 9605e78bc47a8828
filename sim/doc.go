// Package sim makes constellations and workloads to try schedulers on: [ReadNodes] and [ReadPods] read the openb trace
// of a real GPU cluster, [OpenbLike] makes up a cluster of the same shape, [Constellation] and [Workload] make up
// machines and capsules of many kinds, [Inflate] turns a list of capsules into a stream of arrivals, and [Floor] gives
// the least time that recording a placement takes, for comparison. [StaleStore] is a store of slots whose listings lag
// behind, for pools of package claim. All random values are drawn from a seed: the same seed gives the same values on
// any machine. Package sim/race runs engines in made-up worlds.
//
//	nodes    := Constellation(Fleet{...})  or ReadNodes(file)  ─► orbit.PutNode
//	capsules := Expand(Workload(Mix{...})) or ReadPods(file)   ─► Inflate or Shuffle ─► orbit.Submit
//
// Identical capsules share one *orbit.Spec, so that the memory and the work for a class do not depend on how many
// capsules it has.
package sim
