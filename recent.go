package orbit

import "github.com/orbitsched/orbit/internal/cow"

// recentIDs remembers the newest ids of proposals that no capsule's record remembers: a ring, and where in
// it an id is.
type recentIDs struct {
	ring  cow.Array[[16]recentID]
	index cow.Index
	next  uint32 // where the next id goes
}

type recentID struct {
	id ProposalID
	at Revision
}

// cell returns the entry at a position of the ring.
func (r *recentIDs) cell(slot uint32) *recentID { return &r.ring.At(int(slot / 16))[slot%16] }

// find returns the revision at which a proposal was committed, 0 if its id is not remembered.
func (r *recentIDs) find(id ProposalID) Revision {
	if id.IsZero() {
		return 0
	}
	probe := r.index.Probe(hashOf(string(id[:])))
	for {
		slot, ok := probe.Next()
		if !ok {
			return 0
		}
		if c := r.cell(slot); c.id == id {
			return c.at
		}
	}
}

// add remembers an id in the place of the oldest one.
func (r *recentIDs) add(id ProposalID, at Revision, limit int, o cow.Owner) {
	if id.IsZero() {
		return
	}
	slot := r.next
	r.ring.Grow(int(slot/16)+1, o)
	if old := r.cell(slot).id; !old.IsZero() {
		r.index.Delete(hashOf(string(old[:])), slot, o)
	}
	r.ring.Own(int(slot/16), o)[slot%16] = recentID{id, at}
	r.index.Insert(hashOf(string(id[:])), slot, o)
	r.next = (slot + 1) % uint32(limit)
}
