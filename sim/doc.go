// Package sim makes constellations and workloads to try schedulers on: [ReadNodes] and [ReadPods] read the
// openb trace of a real GPU cluster, [OpenbLike] makes up one of the same shape, [Constellation] and
// [Workload] make up machines and capsules of many kinds, [Inflate] turns a list of capsules into a stream
// of arrivals, and [Floor] is the floor that placing them is measured against. [StaleStore] is a store of
// slots whose listings lag behind, for pools of package claim. Whatever is drawn is drawn from a seed: the same seed gives
// the same, on any machine. Engines are run in made-up worlds by the room sim/race.
//
//	nodes    := Constellation(Fleet{...})  or ReadNodes(file)  ─► orbit.PutNode
//	capsules := Expand(Workload(Mix{...})) or ReadPods(file)   ─► Inflate or Shuffle ─► orbit.Submit
//
// Capsules alike share one *orbit.Spec, so that a class costs what it is, however many capsules it has.
package sim
