// Package score has ready scores for a navigator's [orbit.PlacementEngine]. Lower is better in all of them.
//
// There are two kinds. [BestFit], [DotProduct], [FGD] and [Random] are complete policies, taken from the openb trace
// experiment ("Beware of Fragmentation", USENIX ATC'23), so that results can be compared with published ones. The
// others are building blocks. Each runs from 0 (best) to 1 (worst), whatever units it reads, so the weights of a sum
// have a clear meaning:
//
//	score.WeightedSum{
//		{Weight: 4, Score: score.LeastAllocated{}},
//		{Weight: 2, Score: score.Preferences{}},
//		{Weight: 1, Score: score.Balance{}},
//	}
//
// The sum runs from 0 to 7. A node that meets all preferences is as good as a node that meets none but would be less
// full by half of its capacity.
//
// Every score here is a pure function of the node and the spec. It reads no telemetry, returns 0 as its tie, allocates
// nothing, works as its zero value, and expects a node on which the capsule fits. All but [FGD] and [Random] bound
// themselves over a set of nodes ([Bounded]), and so does a sum of such scores: a place.Indexed then keeps nothing per
// spec.
package score
