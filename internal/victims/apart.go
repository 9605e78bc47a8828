package victims

import "github.com/orbitsched/orbit"

// This file finds the capsules that stand in the way because of a rule of company (orbit.Apart). They have to leave
// whatever room there is, and not only from the node that is searched: a rule over racks closes a node because of
// capsules on other nodes of its rack.

// domain is a domain of a level.
type domain struct{ level, name string }

// inTheWay has the capsules that have to leave a domain for a spec, and a lower bound of the keys of all finds that
// include them.
type inTheWay struct {
	who []*orbit.Capsule
	Key
}

// domains caches the nodes of domains, and the capsules in the way there, for one view in one draft.
type domains struct {
	draft *orbit.Draft
	syncs uint64
	// The position in the draft's journal up to which changes have been followed.
	cursor uint64
	// The indices of the nodes of each domain, by level.
	nodes map[string]map[string][]int32
	// The capsules in the way, by domain and by the spec for which they are.
	found map[domain]map[*orbit.Spec]*inTheWay
}

// sync drops all entries that a change of the draft has outdated.
func (d *domains) sync(draft *orbit.Draft) {
	if len(d.nodes) == 0 {
		return
	}
	if d.draft != draft || d.syncs != draft.Syncs() {
		*d = domains{}
		return
	}
	changed, next, all := draft.Changed(d.cursor)
	if d.cursor = next; all {
		clear(d.found)
		return
	}
	for _, i := range changed {
		if n := draft.Node(int(i)); n != nil {
			for level := range d.nodes {
				delete(d.found, domain{level, domainOf(n.Node, level)})
			}
		}
	}
}

// in returns the indices of the nodes of a domain. The first call for a level reads all nodes.
func (d *domains) in(draft *orbit.Draft, of domain) []int32 {
	if d.nodes[of.level] == nil {
		if d.nodes == nil {
			d.draft, d.syncs, d.nodes, d.found = draft, draft.Syncs(), map[string]map[string][]int32{}, map[domain]map[*orbit.Spec]*inTheWay{}
			_, d.cursor, _ = draft.Changed(0)
		}
		nodes := map[string][]int32{}
		for n := range draft.Nodes() {
			name := domainOf(n.Node, of.level)
			nodes[name] = append(nodes[name], int32(n.Index()))
		}
		d.nodes[of.level] = nodes
	}
	return d.nodes[of.level][of.name]
}

// domainOf returns the domain of a node on a level; empty: it is in none.
func domainOf(n *orbit.Node, level string) string {
	if level == orbit.NodeKey {
		return string(n.ID)
	}
	return n.Labels[level]
}

// closed returns the levels by which rules close a node, as far as evicting the capsules in the way could open it;
// false: something else keeps the spec off the node.
func (s *Search) closed(n *orbit.NodeState) (levels []string, ok bool) {
	return s.draft.ClosedBy(&orbit.NodeState{Node: n.Node}, s.spec)
}

// inTheWay returns the capsules in the way in the domain of a node on a level. For [orbit.NodeKey] the result is a
// buffer, valid until the next call.
func (s *Search) inTheWay(n *orbit.NodeState, level string) *inTheWay {
	if level == orbit.NodeKey {
		s.here = inTheWay{s.here.who[:0], None}
		s.addInTheWay(&s.here, n.Node.ID, level)
		return &s.here
	}
	at := domain{level, domainOf(n.Node, level)}
	nodes := s.domains.in(s.draft, at)
	w := s.domains.found[at][s.spec]
	if w == nil {
		w = &inTheWay{Key: None}
		for _, i := range nodes {
			s.addInTheWay(w, s.draft.Node(int(i)).Node.ID, level)
		}
		if s.domains.found[at] == nil {
			s.domains.found[at] = map[*orbit.Spec]*inTheWay{}
		}
		s.domains.found[at][s.spec] = w
	}
	return w
}

// addInTheWay adds the capsules in the way on one node.
func (s *Search) addInTheWay(w *inTheWay, on orbit.NodeID, level string) {
	for v := range s.state.On(on) {
		if v.Spec.KeepsOff(s.spec, level) && !s.draft.Uses(v.ID) {
			w.who = append(w.who, v)
			w.add(v, s.rankOf(v), v.Spec.Priority)
		}
	}
}

// Neighbours appends the indices of the nodes that share a domain with a node on one of these levels. It ignores the
// level [orbit.NodeKey].
func (s *Search) Neighbours(to []int32, n *orbit.NodeState, levels []string) []int32 {
	for _, level := range levels {
		if at := (domain{level, domainOf(n.Node, level)}); level != orbit.NodeKey && at.name != "" {
			to = append(to, s.domains.in(s.draft, at)...)
		}
	}
	return to
}

// Bound returns a lower bound of the keys of finds on a node, from the capsules that are in the way there: no find has
// a better key. It is [None] if no capsule is in the way. False: no evictions open the node, until the node changes or
// [orbit.Draft.RuleLevels] returns another version.
func (s *Search) Bound(n *orbit.NodeState) (key Key, ok bool) {
	levels, ok := s.closed(n)
	key = None
	for _, level := range levels {
		w := s.inTheWay(n, level)
		if key = key.With(w.Key); level == orbit.NodeKey && len(w.who) == 0 {
			return key, false
		}
	}
	return key, ok && key.Highest < int64(s.ceiling)
}

// With combines two lower bounds. No find on a node has a better key than k, and each find includes the victims whose
// key is o. With returns the better bound that follows from both.
func (k Key) With(o Key) Key {
	switch {
	case o.Count == 0:
	case k.Highest < o.Highest: // the sum and the count of k hold only for finds with the highest priority of k
		o.Last = k.Last
		k = o
	case k.Highest > o.Highest:
		k.Sum, k.Count = max(k.Sum, o.Sum+Weight(k.Priority())), max(k.Count, o.Count+1)
	default:
		k.Sum, k.Count, k.Start = max(k.Sum, o.Sum), max(k.Count, o.Count), min(k.Start, o.Start)
	}
	return k
}

// force notes the capsules that have to leave because rules close the node by these levels. It reports false if one of
// them may not leave, or if the node stays closed without them, because the rule also counts a capsule that still stops
// or that the plan has placed.
func (s *Search) force(n *orbit.NodeState, levels []string, f *Found) (ok bool) {
	clear(s.forced)
	s.at, s.away = n.Node.ID, s.away[:0]
	if len(levels) == 0 {
		return true
	}
	if s.forced == nil {
		s.forced = map[orbit.CapsuleID]bool{}
	}
	var leave []*orbit.Capsule
	f.Volatile = Stops(s.of)
	for _, level := range levels {
		f.Volatile = f.Volatile || level != orbit.NodeKey
		for _, v := range s.inTheWay(n, level).who {
			if !s.forced[v.ID] {
				s.forced[v.ID] = true
				leave = append(leave, v)
			}
		}
	}
	for _, v := range leave {
		may, later := s.mayLeave(v)
		if f.Volatile = f.Volatile || later || v.Gang() != ""; !may {
			return false
		}
		if v.Node != n.Node.ID {
			s.away = append(s.away, v)
		}
	}
	return len(leave) > 0 && s.draft.DomainOpenWithout(s.of, n, leave)
}

// mustLeave reports whether a capsule has to leave because of a rule.
func (s *Search) mustLeave(v *orbit.Capsule) bool { return len(s.forced) > 0 && s.forced[v.ID] }

// elsewhere reports whether a capsule that may leave is on another node than the one that is searched.
func (s *Search) elsewhere(v *orbit.Capsule) bool { return len(s.away) > 0 && v.Node != s.at }
