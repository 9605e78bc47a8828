// Package place has the ready placement engines ([orbit.PlacementEngine]), which choose nodes on an [orbit.Draft]:
//
//	Indexed      the best node, found in an index; the default of the navigators in package nav
//	Exhaustive   the best node, by rating all; the reference
//	Sampled      the best of some nodes that fit, drawn at random
//
// All three take the same Score, Filter and Seed. A node must fit, as the ledger and the draft see it, and pass the
// Filter. Among those the lowest value wins, then the lowest tie, and then the node that comes first on a ring of hashed
// ids, which begins at another place for every Seed, so that navigators with different seeds do not all choose the same
// node. With Seed 0 the lowest id wins.
//
// While many proposals of an engine lose to others, its view divides the nodes into up to 8 parts ([orbit.View.Part]). All
// three then choose in the first part where something fits, so that engines which all want the same node keep out of each
// other's way. MostParts makes that fewer.
//
// The engines use nothing of package orbit that is not open to every importer.
package place
