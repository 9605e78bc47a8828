package orbit

import (
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit/internal/slab"
)

// workset is an engine's own books: the nodes as the view shows them, and on top of that what the plan has
// reserved. A reserved node is a copy, so that the view's is untouched and undoing is putting it back.
type workset struct {
	view   *View
	cursor uint64
	seed   uint64
	// By node index; nil: no such node.
	nodes []*NodeState
	// Hash of the node with the seed; nil for seed 0.
	ranks []uint64
	undo  []undone
	// Indices of nodes that may have changed, for engines that keep more than the books.
	changes changeLog
	// Room for copies of nodes, and for proposals.
	copies slab.Of[NodeState]
	does   slab.Of[Commitment]
	bets   slab.Of[Precondition]
	places slab.Boxes[Commitment, Place]
	frees  slab.Boxes[Precondition, NodeFreeOf]
}

// undone is what was there before a reservation.
type undone struct{ node *NodeState }

// sync follows the view. It costs what has changed, unless the view is another one.
func (w *workset) sync(view *View, seed uint64) {
	w.rollback(0)
	if view != w.view || seed != w.seed {
		*w = workset{view: view, seed: seed, changes: w.changes}
	}
	changed, next, all := view.Changed(w.cursor)
	w.cursor = next
	for len(w.nodes) < view.state.NodeBound() {
		w.nodes = append(w.nodes, nil)
	}
	if seed != 0 {
		w.ranks = append(w.ranks, make([]uint64, len(w.nodes)-len(w.ranks))...)
	}
	if all {
		for i := range w.nodes {
			w.load(i)
		}
		w.changes.overflow()
		return
	}
	for _, i := range changed {
		w.load(int(i))
		w.changes.add(uint32(i))
	}
}

// load takes over a node as the view shows it.
func (w *workset) load(i int) {
	n := w.view.state.NodeByIndex(i)
	if n != nil && w.seed != 0 && (w.nodes[i] == nil || w.nodes[i].Node.ID != n.Node.ID) {
		w.ranks[i] = rank(w.seed, n.Node.ID)
	}
	w.nodes[i] = n
}

// rank hashes a node's id with a seed. It is the same in every process (FNV-1a, 64 bits).
func rank(seed uint64, id NodeID) uint64 {
	h := fnv.New64a()
	var s [8]byte
	for i := range s {
		s[i] = byte(seed >> (8 * i))
	}
	_, _ = h.Write(s[:]) // never fails
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}

// decision is a number for the next choice: the same for the same view and as many reservations, and another
// for any other and with any other seed.
func (w *workset) decision() uint64 {
	const golden = 0x9e3779b97f4a7c15 // the golden ratio, as an odd multiplier
	return (w.seed*golden+uint64(w.view.Revision()))*golden + uint64(len(w.undo))
}

// better reports whether n with this score comes before the best so far.
func (w *workset) better(n *NodeState, value, tie float64, best *Choice) bool {
	if value != best.Value {
		return value < best.Value
	}
	if tie != best.Tie {
		return tie < best.Tie
	}
	if w.ranks != nil && w.ranks[n.slot] != w.ranks[best.Node.slot] {
		return w.ranks[n.slot] < w.ranks[best.Node.slot]
	}
	return strings.Compare(string(n.Node.ID), string(best.Node.Node.ID)) < 0
}

// reserve takes the chosen room and returns the proposal for it.
func (w *workset) reserve(c *Capsule, choice Choice) Proposal {
	slot, node := choice.Node.slot, choice.Node.Node
	taken := w.copies.New(*choice.Node)
	taken.takes(c.Spec, choice.Devices)
	w.undo = append(w.undo, undone{w.nodes[slot]})
	w.nodes[slot] = taken
	w.changes.add(slot)
	p := Proposal{View: w.view.Revision(), Do: w.does.Slice(1), If: w.bets.Slice(1)}
	p.Do[0] = w.places.New(Place{Capsule: c.ID, Node: node.ID, Devices: choice.Devices})
	p.If[0] = w.frees.New(NodeFreeOf{Node: node.ID, AtLeast: c.Spec.Envelope.Reservation})
	if near := c.Spec.Near; near.Group != "" {
		p.If = append(p.If, GroupIn{Group: near.Group, Level: near.Level, Domain: node.Labels[near.Level]})
	}
	return p
}

// rollback undoes reservations, newest first, until mark of them are left.
func (w *workset) rollback(mark int) {
	for mark = max(mark, 0); len(w.undo) > mark; {
		last := len(w.undo) - 1
		was := w.undo[last].node
		w.nodes[was.slot] = was
		w.changes.add(was.slot)
		w.undo[last] = undone{}
		w.undo = w.undo[:last]
	}
}

// peers are the domains in which a spec may be placed because a member of the group it wants is there.
type peers struct {
	near    Near
	domains map[string]bool
	// What missing has said.
	text string
}

// peers looks up the domains; nil if the spec asks for no company.
func (w *workset) peers(spec *Spec) *peers {
	if spec.Near.Group == "" {
		return nil
	}
	p, limit := &peers{near: spec.Near, domains: map[string]bool{}}, w.view.state.Limits().IDBytes
	for n := range w.view.state.GroupNodes(spec.Near.Group) {
		if domain := n.Node.Labels[spec.Near.Level]; domain != "" && len(domain) <= limit { // else no bet can name it
			p.domains[domain] = true
		}
	}
	return p
}

// has reports whether a node is in one of the domains; without a wish for company every node is.
func (p *peers) has(n *Node) bool {
	if p == nil {
		return true
	}
	domain, ok := n.Labels[p.near.Level]
	return ok && p.domains[domain]
}

// missing says what a node outside the domains lacks.
func (p *peers) missing() string {
	if p.text != "" {
		return p.text
	}
	switch in := slices.Sorted(maps.Keys(p.domains)); {
	case len(in) == 0:
		p.text = "wait for group " + quoteWord(p.near.Group) + ", of which nothing is placed"
	default:
		p.text = "are in no " + p.near.Level + " of group " + quoteWord(p.near.Group) + " (" + joinWords(in[:min(len(in), 5)]) + ")"
	}
	return p.text
}
