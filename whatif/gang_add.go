package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
)

// add searches for the fewest nodes that have to join a domain so that the gang fits. The nodes are copies of one
// existing node, of the smallest kind that serves. The result has fewer nodes than best; nil: there is none.
func (a *gangAsker) add(p *gangPlace, best *GangFix) *GangFix {
	most := min(a.needs.InAll, mostGangNodes)
	if best != nil {
		most = min(most, len(best.Add)-1)
	}
	for _, like := range a.kinds(p) {
		var join []orbit.Commitment
		for i := 0; len(join) < most; i++ {
			if id := orbit.NodeID(fmt.Sprint("whatif-", i)); a.state.Node(id) == nil {
				r := p.emptied(like, id)
				join = append(join, orbit.PutNode{Node: *r.node})
			}
		}
		index := a.indexWith(join)
		if index == nil {
			continue
		}
		f := &GangFix{Like: like.Node.ID}
		serves := func(n int) bool {
			return a.around(p, f, func(q *gangPlace) []orbit.Commitment {
				nodes := slices.Clone(q.nodes)
				for _, do := range join[:n] {
					if node := index.Draft.View().State().Node(do.(orbit.PutNode).Node.ID); q.has(node.Node) {
						nodes = append(nodes, int32(node.Index()))
					}
				}
				return a.seat(index, nodes, &a.needs, nil)
			})
		}
		if !serves(most) {
			continue
		}
		n := 1 + sort.Search(most-1, func(i int) bool { return serves(i + 1) })
		if !serves(n) {
			continue
		}
		f.before = join[:n]
		for _, do := range f.before {
			put := do.(orbit.PutNode)
			node := put.Node.Clone()
			f.Add = append(f.Add, &node)
		}
		return f
	}
	return nil
}

// kinds returns existing nodes, one of each kind, whose empty copy in the domain would take at least one of the needed
// members. The smallest come first, at most mostKinds.
func (a *gangAsker) kinds(p *gangPlace) (out []*orbit.NodeState) {
	size := map[orbit.NodeID]float64{}
	known := map[string]bool{}
	var askers []*asker
	for _, role := range a.needs.Roles {
		for i, c := range role.Members {
			if i == 0 || role.Members[i-1].Spec != c.Spec { // those of one spec mostly follow each other
				alone := askerOf(a.state, c.Spec)
				alone.nears = slices.DeleteFunc(alone.nears, func(near colocation) bool { return near.Near != c.Spec.Near }) // others of the gang may be company
				askers = append(askers, alone)
			}
		}
	}
	for _, here := range []bool{true, false} { // the domain's own nodes first, so that they represent their kind
		for n := range a.state.Nodes() {
			if p.has(n.Node) != here {
				continue
			}
			r := p.emptied(n, "whatif-0")
			takes := make([]bool, len(askers))
			for i, asker := range askers {
				if takes[i] = asker.reasons(&r) == (reasonSet{}); takes[i] {
					for d, want := range asker.spec.Envelope.Reservation {
						if want > 0 {
							size[n.Node.ID] += float64(n.Node.Capacity[d]) / float64(want)
						}
					}
				}
			}
			kind := fmt.Sprint(takes, n.Node.Capacity, n.Node.Devices.Count, n.Node.Devices.Model, n.Node.Extras)
			if slices.Contains(takes, true) && !known[kind] {
				known[kind], out = true, append(out, n)
			}
		}
	}
	slices.SortStableFunc(out, func(x, y *orbit.NodeState) int { return cmp.Compare(size[x.Node.ID], size[y.Node.ID]) })
	return out[:min(len(out), mostKinds)]
}

// emptied returns the room of an empty copy of a node that joins in the domain under an id.
func (p *gangPlace) emptied(like *orbit.NodeState, id orbit.NodeID) room {
	r := emptied(like, id)
	if p.level != "" {
		node := r.node.Clone()
		node.Labels[p.level], r.node = p.domain, &node
	}
	return r
}

// newPlaces returns a new, empty domain for each level of the gang.
func (a *gangAsker) newPlaces() (out []gangPlace) {
	for _, level := range a.gang.Gang.Levels[:min(len(a.gang.Gang.Levels), mostGangDomains)] {
		name := "new"
		for slices.ContainsFunc(slices.Collect(a.state.Nodes()), func(n *orbit.NodeState) bool { return n.Node.Labels[level] == name }) {
			name += "+"
		}
		out = append(out, gangPlace{level: level, domain: name, fresh: true})
	}
	return out
}
