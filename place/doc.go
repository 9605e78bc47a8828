// Package place has the ready placement engines ([orbit.PlacementEngine]), which choose nodes on an [orbit.Draft]:
//
//	Indexed      the best node, found in an index; the default of the navigators in package nav
//	Exhaustive   the best node, by rating all; the reference
//	Sampled      the best of some nodes that fit, drawn at random
//
// All three take the same Score, Filter and Seed. A candidate is a node that takes the spec by the rules of the ledger
// and the draft, and that passes the Filter. Of the candidates the one with the lowest value wins. Between equal values
// the lowest tie decides, and then the position on a ring of hashed ids. The ring begins at another place for each
// Seed, so that navigators with different seeds do not all choose the same node. With Seed 0 the lowest id wins.
//
// While many proposals of an engine lose to others, its view divides the nodes into up to 8 parts ([orbit.View.Part]).
// All three engines then choose in the first part where something fits, so that engines which would all choose the same
// node keep out of each other's way. MostParts lowers the number of parts.
//
// The engines use only what package orbit exports, so an importer can write an engine of the same kind.
package place
