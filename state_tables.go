package orbit

import (
	"cmp"
	"iter"

	"github.com/orbitsched/orbit/internal/cow"
)

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

// groupWaiting says how many pending capsules of one spec have to do with a group: as its members, or because
// they want to be near one. It is counted as groupCount is, where records are published, and only for specs
// that name a group; a spec that is near its own group counts once.
type groupWaiting struct {
	group string
	spec  *Spec
	count int
}

// less orders by group and then by the text of the spec, so that the specs of a group are neighbours, in an
// order that depends on nothing but what they ask for.
func (a groupWaiting) less(b groupWaiting) bool {
	if a.group != b.group || b.spec == nil || a.spec == nil {
		return cmp.Or(cmp.Compare(a.group, b.group), btoi(a.spec != nil)-btoi(b.spec != nil)) < 0
	}
	return a.spec.key < b.spec.key
}

// GroupPending yields the specs of pending capsules that have to do with the group, and how many wait of each:
// its members ([Spec.Group]), members of gangs among them, and capsules of other groups, or of none, that
// want to be near one (Near.Group). The order depends on nothing but the specs.
func (s *State) GroupPending(group string) iter.Seq2[*Spec, int] {
	return func(yield func(*Spec, int) bool) {
		s.waiting.AscendGreaterOrEqual(groupWaiting{group: group}, func(w groupWaiting) bool {
			return w.group == group && yield(w.spec, w.count)
		})
	}
}

// Nominations yields the nominations that live, highest rank first.
func (s *State) Nominations() iter.Seq[*Nomination] {
	return func(yield func(*Nomination) bool) { s.nominations.Ascend(yield) }
}

// specsOf returns the specs of what is nominated: a capsule's, or those of a gang's roles. Nil: there is no such record.
func (s *State) specsOf(capsule CapsuleID, gang GangID) (specs []*Spec) {
	if c := s.Capsule(capsule); c != nil {
		return []*Spec{c.Spec}
	}
	if g := s.Gang(gang); g != nil {
		for i := range g.Gang.Roles {
			specs = append(specs, g.Gang.Roles[i].Spec)
		}
	}
	return specs
}

// countWaiting keeps the number of pending capsules of a spec in the groups that it names.
func (s *State) countWaiting(spec *Spec, by int) {
	if spec.Group != "" {
		s.countWaitingIn(spec.Group, spec, by)
	}
	if near := spec.Near.Group; near != "" && near != spec.Group {
		s.countWaitingIn(near, spec, by)
	}
}

// countWaitingIn does so in one group.
func (s *State) countWaitingIn(group string, spec *Spec, by int) {
	w := groupWaiting{group: group, spec: spec}
	if known, ok := s.waiting.Get(w); ok {
		w = known
	}
	if w.count += by; w.count == 0 {
		s.waiting.Delete(w)
		return
	}
	s.waiting.ReplaceOrInsert(w)
}
