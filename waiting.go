package orbit

import (
	"cmp"
	"iter"
)

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
