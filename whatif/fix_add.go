package whatif

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// The bounds of the search for a node to add: mostLooked is the number of pairs of a kind of node and a list of
// domains, mostPlaces the number of such lists, and mostLevels the number of topology levels of rules.
const (
	mostLooked = 200_000
	mostPlaces = 4096
	mostLevels = 8
)

// adder searches for a node to add.
type adder struct {
	*asker
	// levels are the topology levels of the rules of company that concern the spec, except the level of single nodes.
	levels []level
	kinds  []kind
	// id is the id of the new node.
	id orbit.NodeID
	// larger says that the new node has as much as the spec asks for, because no existing node has.
	larger bool
	// looks and tries are how many more pairs may be examined, and how many more fixes may be verified.
	looks, tries int
}

// level is a topology level of rules of company. The domains in closed are closed to the spec by a rule. The
// domains in others are open, and the new node can be put in one of them.
type level struct {
	key    string
	closed map[string]bool
	others []InDomain
}

// kind is an existing node that would have enough free capacity for the spec if it were empty.
type kind struct {
	like *orbit.NodeState
	// size is the node's capacity relative to the request of the spec.
	size float64
	// closed has a bit for each of the levels in which the node's domain is closed to the spec.
	closed uint32
}

// add returns a fix that adds an empty copy of an existing node, the smallest that takes the capsule. If rules Apart
// and Even close the domains of all suitable nodes, the copy is put in other domains: in as few other domains as
// possible, and in a new domain only if no known one serves. If no node is large enough, the copy has as much as the
// spec asks for. Nil: there is no such fix.
func (a *asker) add() *Fix {
	if fix := a.addCopy(false); fix != nil || a.state.TooLarge(a.spec) == "" {
		return fix
	}
	return a.addCopy(true)
}

func (a *asker) addCopy(larger bool) *Fix {
	f := &adder{asker: a, id: a.newNode(), larger: larger, looks: mostLooked, tries: mostTried}
	if a.closes != nil || len(a.nears) > 0 {
		f.levels = a.ruleLevels()
	}
	f.findKinds()
	for _, places := range f.places() {
		for i := range f.kinds {
			for _, in := range places {
				if f.looks--; f.looks < 0 || f.tries == 0 {
					return nil
				}
				if fix := f.addIn(&f.kinds[i], in); fix != nil {
					return fix
				}
			}
		}
	}
	return nil
}

// newNode returns an id that no node has.
func (a *asker) newNode() orbit.NodeID {
	id := orbit.NodeID("whatif")
	for a.state.Node(id) != nil {
		id += "+"
	}
	return id
}

// emptied returns the room of an empty, ready copy of a node that joins under an id.
func emptied(like *orbit.NodeState, id orbit.NodeID) room {
	node := *like.Node
	node.ID, node.State = id, orbit.Ready
	return room{node: &node, Capacity: seats.CapacityOf(&orbit.NodeState{Node: &node})}
}

// empty returns the room of an empty copy of a node that joins, with as much as the spec asks for if it has to be larger.
func (f *adder) empty(like *orbit.NodeState) room {
	if !f.larger {
		return emptied(like, f.id)
	}
	node := *like.Node
	node.Capacity, node.Devices, node.Extras = f.spec.Envelope.Reservation, orbit.Devices{}, f.spec.Extras
	if count := f.spec.Devices.Count; count > 0 {
		node.Devices = orbit.Devices{Model: like.Node.Devices.Model, Count: count}
	}
	return emptied(&orbit.NodeState{Node: &node}, f.id)
}

// findKinds lists the nodes that would have enough free capacity if they were empty, the smallest first.
func (f *adder) findKinds() {
	for n := range f.state.Nodes() {
		k, r := kind{like: n}, f.empty(n)
		set := f.reasons(&r)
		if len(f.levels) > 0 { // in another domain the copy has other labels, and these reasons may not apply
			for i := range f.spec.Require {
				set.set(firstRequirement+i, false)
			}
			for i := range f.nears {
				set.set(firstCompany+i, set.has(firstCompany+i) && f.nears[i].Level == orbit.NodeKey)
			}
		}
		if set != (reasonSet{}) {
			continue
		}
		for d, want := range f.spec.Envelope.Reservation {
			if want > 0 {
				k.size += float64(n.Node.Capacity[d]) / float64(want)
			}
		}
		for i := range f.levels {
			if f.levels[i].closed[n.Node.Labels[f.levels[i].key]] {
				k.closed |= 1 << i
			}
		}
		f.kinds = append(f.kinds, k)
	}
	slices.SortStableFunc(f.kinds, func(x, y kind) int { return cmp.Compare(x.size, y.size) })
}

// addIn returns a fix that adds a copy of the kind in these domains; an entry without a Domain keeps the domain of the
// original. Nil: the capsule does not fit there either.
func (f *adder) addIn(k *kind, in []InDomain) *Fix {
	var moved uint32
	for i := range in {
		if in[i].Domain != "" {
			moved |= 1 << i
		}
	}
	if k.closed&^moved != 0 {
		return nil
	}
	r := f.empty(k.like)
	own := r.node.Clone()
	r.node = &own
	fix := &Fix{Node: f.id, Add: r.node, Like: k.like.Node.ID}
	if f.larger {
		if fix.Like = ""; len(f.spec.Require)+len(f.levels) > 0 {
			fix.labels = k.like.Node.ID
		}
	}
	for _, d := range in {
		if d.Domain == "" {
			continue
		}
		if r.node.Labels[d.Level] == d.Domain {
			return nil
		}
		r.node.Labels[d.Level] = d.Domain
		fix.In = append(fix.In, d)
	}
	if f.reasons(&r) != (reasonSet{}) {
		return nil
	}
	fix.devices, fix.before = r.pick(f.spec), []orbit.Commitment{orbit.PutNode{Node: *r.node}}
	if f.tries--; !f.verify(fix) {
		return nil
	}
	return fix
}

// ruleLevels returns the topology levels of the rules of company that concern the spec. It leaves out the level of
// single nodes, because a new node is a new domain there.
func (a *asker) ruleLevels() (out []level) {
	draft, _, err := draftOf(context.Background(), a.state, a.spec)
	if err != nil {
		return nil
	}
	ruled, _ := draft.RuleLevels(a.spec)
	keys := slices.Clone(ruled)
	for near := range a.spec.AllNear {
		keys = append(keys, near.Level)
	}
	slices.Sort(keys)
	keys = slices.DeleteFunc(slices.Compact(keys), func(key string) bool { return key == orbit.NodeKey })
	for _, key := range keys[:min(len(keys), mostLevels)] {
		l := level{key: key, closed: map[string]bool{}}
		// counts has the known domains, and whether a node that the rules count is in the domain. Whether a domain
		// without such a node is open shows only when a node joins, so it is never marked as closed but is tried.
		counts := map[string]bool{"": true}
		for n := range a.state.Nodes() {
			domain := n.Node.Labels[key]
			counts[domain] = counts[domain] || n.Node.State != orbit.Lost && !slices.ContainsFunc(a.spec.Require, func(p orbit.Predicate) bool { return !p.On(n.Node) })
		}
		for domain := range a.named(key) {
			if _, known := counts[domain]; !known {
				counts[domain] = false
			}
		}
		opens := func(domain string) bool {
			n := &orbit.Node{ID: a.newNode(), Labels: map[string]string{key: domain}}
			if domain == "" {
				n.Labels = nil
			}
			return (!slices.Contains(ruled, key) || draft.DomainOpen(a.spec, key, n)) && a.isNear(key, domain)
		}
		for _, domain := range slices.Sorted(maps.Keys(counts)) {
			if l.closed[domain] = counts[domain] && !opens(domain); !l.closed[domain] && domain != "" && a.serves(key, domain) {
				l.others = append(l.others, InDomain{Level: key, Domain: domain})
			}
		}
		name := "new"
		for _, known := counts[name]; known; _, known = counts[name] {
			name += "+"
		}
		if opens(name) && a.serves(key, name) {
			l.others = append(l.others, InDomain{Level: key, Domain: name, New: true})
		}
		out = append(out, l)
	}
	return out
}

// named yields the domains of a level that the spec names: in the Domains of its rules Even, and in its requirements
// with operator In.
func (a *asker) named(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range a.spec.Even {
			if e := &a.spec.Even[i]; e.Level == key {
				for _, domain := range e.Domains {
					if !yield(domain) {
						return
					}
				}
			}
		}
		terms := slices.Clone(a.spec.Require)
		for _, p := range a.spec.Require {
			for _, term := range p.Terms {
				terms = append(terms, term...)
			}
		}
		for _, p := range terms {
			for _, domain := range p.Values {
				if p.Key == key && p.Op == "In" && !yield(domain) {
					return
				}
			}
		}
	}
}

// isNear reports whether a node in this domain meets the co-locations by this level.
func (a *asker) isNear(key, domain string) bool {
	return !slices.ContainsFunc(a.nears, func(c colocation) bool { return c.Level == key && !c.in(domain) })
}

// serves reports whether a node in this domain meets those requirements of the spec that depend on no other label.
func (a *asker) serves(key, domain string) bool {
	for _, p := range a.spec.Require {
		only := true
		p.Keys(func(k string) bool { only = k == key; return only })
		if only && !p.Matches(map[string]string{key: domain}) {
			return false
		}
	}
	return true
}

// places returns the lists of domains in which a new node can be put, grouped by how much they change. A list has an
// entry for each level; one without a Domain keeps the domain of the original. The lists with the fewest other domains
// come first, and among these the lists with the fewest new domains.
func (f *adder) places() (out [][][]InDomain) {
	most := mostPlaces
	for f.countPlaces(most) > mostPlaces {
		most /= 2
	}
	all := [][]InDomain{nil}
	for _, l := range f.levels {
		others := l.others
		if over := len(others) - most; over > 0 { // keep the last entry, which is the new domain if there is one
			others = slices.Delete(slices.Clone(others), len(others)-1-over, len(others)-1)
		}
		var next [][]InDomain
		for _, in := range all {
			next = append(next, append(slices.Clip(in), InDomain{Level: l.key}))
			for _, d := range others {
				next = append(next, append(slices.Clip(in), d))
			}
		}
		all = next
	}
	order := func(x, y []InDomain) int {
		moved, created := movedOf(x)
		others, fresh := movedOf(y)
		return cmp.Or(cmp.Compare(moved, others), cmp.Compare(created, fresh))
	}
	slices.SortStableFunc(all, order)
	for i, in := range all {
		if i == 0 || order(all[i-1], in) != 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], in)
	}
	return out
}

// countPlaces returns the number of lists of domains if at most most other domains of each level are considered.
func (f *adder) countPlaces(most int) int {
	count := 1
	for _, l := range f.levels {
		count *= 1 + min(len(l.others), most)
	}
	return count
}

// movedOf counts the domains of a list that differ from those of the original node, and the new domains among them.
func movedOf(in []InDomain) (moved, created int) {
	for _, d := range in {
		if d.Domain != "" {
			moved++
		}
		if d.New {
			created++
		}
	}
	return moved, created
}
