package etcdledger

import "github.com/orbitsched/orbit"

// accessSet says what a proposal does with each record that it reads or writes.
type accessSet map[ref]access

// access says what a proposal does with a record.
type access uint8

// The kinds of access. A transaction compares the revision of each record that it reads.
const (
	reads access = 1 << iota
	// puts writes a record without comparing it.
	puts
	writes = reads | puts
)

// disturbs reports whether one of two accesses to a record puts what the other reads. Two reads do not disturb each
// other, and neither do two puts.
func (a access) disturbs(o access) bool {
	return a&puts != 0 && o&reads != 0 || a&reads != 0 && o&puts != 0
}

// meets reports whether one of the sets puts a record that the other reads.
func (r accessSet) meets(o accessSet) bool {
	if len(o) < len(r) {
		r, o = o, r
	}
	for name, a := range r {
		if a.disturbs(o[name]) {
			return true
		}
	}
	return false
}

// merge adds all records of another set.
func (r accessSet) merge(o accessSet) {
	for name, a := range o {
		r[name] |= a
	}
}

// accessesOf returns the records that a proposal reads and writes if it is judged on the state.
func accessesOf(state *orbit.State, p orbit.Proposal) accessSet {
	reading, writing, _, _ := state.Footprint(p)
	return accessSetOf(&reading, &writing)
}

// accessSetOf returns the records of two footprints. A node has two records, its description and its count. Every change of
// either writes the count, so the count alone is compared and the description never is.
func accessSetOf(reading, writing *orbit.Footprint) accessSet {
	r := make(accessSet, len(reading.Uses)+len(reading.Capsules)+1)
	r.addAll(reading, reads)
	r.addAll(writing, writes)
	add(r, kindUse, writing.Nodes, writes)
	add(r, kindNode, writing.Nodes, writes)
	add(r, kindFence, reading.Fences, reads)
	add(r, kindFence, writing.Fences, puts)
	if writing.Covers {
		r[ref{kind: kindCovers}] = puts
	}
	r[ref{kind: kindLog}] = puts
	if reading.All {
		r[ref{kind: kindLog}] = writes
	}
	return r
}

// addAll adds all records of a footprint, except the descriptions of nodes and the fences, which accessSetOf adds.
func (r accessSet) addAll(names *orbit.Footprint, a access) {
	add(r, kindUse, names.Uses, a)
	add(r, kindCapsule, names.Capsules, a)
	add(r, kindGang, names.Gangs, a)
	add(r, kindHold, names.Holds, a)
	add(r, kindMark, names.Marks, a)
	add(r, kindBudget, names.Budgets, a)
	if names.Share {
		r[ref{kindShare, shareID}] |= a
	}
	for _, id := range names.Proposals {
		r[ref{kindProposal, id.String()}] |= a
	}
}

// add adds records of one kind.
func add[ID ~string](r accessSet, k kind, ids []ID, a access) {
	for _, id := range ids {
		r[ref{k, string(id)}] |= a
	}
}
