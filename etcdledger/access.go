package etcdledger

import "github.com/orbitsched/orbit"

// accessSet is the records that a proposal has to do with: its read set, and of these its write set.
type accessSet map[ref]access

type access uint8

const (
	reads access = iota
	writes
)

// meets reports whether a record is in both.
func (r accessSet) meets(o accessSet) bool {
	if len(o) < len(r) {
		r, o = o, r
	}
	for name := range r {
		if _, ok := o[name]; ok {
			return true
		}
	}
	return false
}

// merge adds all of another set.
func (r accessSet) merge(o accessSet) {
	for name, a := range o {
		r[name] = max(r[name], a)
	}
}

// accessSetOf returns the records of a footprint. The description of a node is written beside what is used of it, and read
// never: who changes either writes what is used, so that one compare guards both.
func accessSetOf(f orbit.Footprint) accessSet {
	r := make(accessSet, len(f.Reads.Uses)+len(f.Reads.Capsules)+1)
	r.addAll(&f.Reads, reads)
	r.addAll(&f.Writes, writes)
	add(r, kindUse, f.Writes.Nodes, writes)
	add(r, kindNode, f.Writes.Nodes, writes)
	return r
}

// addAll notes access to all records but descriptions.
func (r accessSet) addAll(names *orbit.Records, a access) {
	add(r, kindUse, names.Uses, a)
	add(r, kindCapsule, names.Capsules, a)
	add(r, kindGang, names.Gangs, a)
	add(r, kindHold, names.Holds, a)
	add(r, kindMark, names.Marks, a)
	if names.Share {
		r[ref{kindShare, shareID}] = a
	}
	for _, id := range names.Proposals {
		r[ref{kindProposal, id.String()}] = a
	}
}

// add notes access to records of one kind. Writes come after reads.
func add[ID ~string](r accessSet, k kind, ids []ID, a access) {
	for _, id := range ids {
		r[ref{k, string(id)}] = a
	}
}
