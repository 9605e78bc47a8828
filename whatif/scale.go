package whatif

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// ScaleUp asks which nodes have to join so that all that waits has a place, at the least price.
//
//	answer, err := (&whatif.ScaleUp{Kinds: kinds}).Plan(ctx, state)
//	fmt.Println(answer)
//	done, err := answer.Commit(ctx, ledger) // then start machines under these ids
//
// Set Kinds before the first call. A ScaleUp may be used from any goroutine.
type ScaleUp struct {
	// Kinds are the kinds of nodes that may join. Without any, the answer says what has a place as it is.
	Kinds []NodeKind
	// Of reports whether a waiting capsule counts. A gang counts if all its waiting members do. Nil: all that wait count.
	Of func(*orbit.Capsule) bool
	// Moves is how many capsules may move to other nodes where that saves a node; default 100. Negative: none.
	Moves int
	// Stays reports whether a capsule must not move although it consents ([orbit.State.Movable]), for example because it was
	// placed a short time ago; nil: all that consent may move.
	Stays func(*orbit.Capsule) bool
}

// NodeKind is a kind of node that can be had.
type NodeKind struct {
	// Name is the name of the kind. Its nodes get the ids "<name>-1", "<name>-2" and so on, without those that are taken.
	Name string
	// Node is what each node of the kind is like. Its ID is not used.
	Node orbit.Node
	// Price is what one node costs, in any unit. It must be more than 0.
	Price float64
	// Max is how many nodes of the kind may join at most; 0: any number.
	Max int
}

// ScaleDown asks which nodes can go now, and which capsules have to move for that. What waits comes first: its room is not
// given up, and a node on which it has a place stays. A node that reports Lost, is cordoned, or on which room is held or
// nominated is no candidate. A ScaleDown may be used from any goroutine.
type ScaleDown struct {
	// Of reports whether a node may go. It must depend on the node alone. Nil: any may.
	Of func(*orbit.Node) bool
	// Price returns what a node costs, which is what its end saves. It must not be negative. Nil: 1 for each.
	Price func(*orbit.Node) float64
	// Moves is how many capsules may move; default 100. Negative: none, so only nodes go that are empty.
	Moves int
	// Stays reports whether a capsule must not move although it consents ([orbit.State.Movable]); nil: all that consent may move.
	Stays func(*orbit.Capsule) bool
}

// Scaling is the answer to a [ScaleUp] or a [ScaleDown]. Commit proposes just what the Report shows. It is read-only.
type Scaling struct {
	// Report says what is placed and moved, and what still waits and why.
	*Report
	// Nodes are the nodes that join, in order of the kinds, or that go, those that save most first. A node that goes is empty
	// and cordoned by the same commit; remove it when it has stopped what ran there.
	Nodes []ScaledNode
	// Price is the sum of the prices of Nodes: what they cost, or what is saved.
	Price float64
	// Bound is what no answer beats that places, or keeps, the same capsules: none costs less, or saves more.
	Bound float64

	// How much was looked at, in steps of searches and placements.
	work int
}

// ScaledNode is a node that joins or goes.
type ScaledNode struct {
	// ID is the node's id.
	ID orbit.NodeID
	// Kind is the name of its kind; empty if it goes.
	Kind string
	// Price is the price of the node.
	Price float64
}

// Counts returns how many of the nodes are of each kind.
func (s *Scaling) Counts() map[string]int {
	out := map[string]int{}
	for i := range s.Nodes {
		out[s.Nodes[i].Kind]++
	}
	return out
}

// String returns the answer in a few lines, for an operator.
func (s *Scaling) String() string {
	var b strings.Builder
	verb, saves := "go", "save"
	if len(s.Nodes) > 0 && s.Nodes[0].Kind != "" {
		verb, saves = "join", "cost"
	}
	fmt.Fprintf(&b, "%s: %d nodes that %s %.6g, bound %.6g", verb, len(s.Nodes), saves, s.Price, s.Bound)
	list(&b, s.Nodes, func(n ScaledNode) string { return fmt.Sprintf("%s: %.6g", n.ID, n.Price) })
	b.WriteString("\n" + s.Report.String())
	return b.String()
}

// add adds a node to the answer.
func (s *Scaling) add(n ScaledNode) {
	s.Nodes, s.Price = append(s.Nodes, n), s.Price+n.Price
}

func (u *ScaleUp) check(state *orbit.State) error {
	if state == nil {
		return errors.New("whatif: state is nil; pass the snapshot of a ledger")
	}
	names := map[string]bool{}
	for i := range u.Kinds {
		k := &u.Kinds[i]
		why := ""
		switch {
		case k.Name == "":
			why = "has no Name"
		case names[k.Name]:
			why = "has the name of another kind"
		case !(k.Price > 0) || math.IsInf(k.Price, 0):
			why = "has a Price that is not a number above 0"
		case k.Max < 0:
			why = "has a negative Max"
		case k.Node.State != orbit.Ready:
			why = "has a Node that is not Ready"
		}
		if names[k.Name] = true; why != "" {
			return fmt.Errorf("whatif: %w: kind %d, %q, %s", orbit.ErrInvalid, i, k.Name, why)
		}
		if err := state.Check(orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: k.numbered(state, nil)}}}); err != nil {
			return fmt.Errorf("whatif: no ledger takes a node of kind %q: %w", k.Name, err)
		}
	}
	return nil
}

// numbered returns a node of the kind with an id that neither the state nor others have.
func (k *NodeKind) numbered(state *orbit.State, others map[orbit.NodeID]bool) orbit.Node {
	n := k.Node.Clone()
	for i := 1; ; i++ {
		if n.ID = orbit.NodeID(fmt.Sprintf("%s-%d", k.Name, i)); state.Node(n.ID) == nil && !others[n.ID] {
			return n
		}
	}
}

// mostMoves returns how many capsules may move by a setting.
func mostMoves(setting int) int { return max(0, cmp.Or(setting, 100)) }

// reported returns a report of proposals, which it commits on a fork of the state.
func reported(ctx context.Context, state *orbit.State, proposals []orbit.Proposal) (*Report, error) {
	ledger := newFork(state)
	for _, p := range proposals {
		if _, err := ledger.Propose(ctx, p); err != nil {
			return nil, err
		}
	}
	after, err := ledger.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{Before: state, After: after, sent: ledger.sent, Resting: true}
	r.compare()
	return r, nil
}

// joined returns the state after nodes have joined.
func joined(state *orbit.State, nodes []orbit.Node) (*orbit.State, error) {
	if len(nodes) == 0 {
		return state, nil
	}
	for chunk := range slices.Chunk(nodes, state.Limits().Commitments) {
		next, err := state.With(orbit.Proposal{Do: puts(chunk)})
		if err != nil {
			return nil, err
		}
		state = next
	}
	return state, nil
}

func puts(nodes []orbit.Node) (out []orbit.Commitment) {
	for i := range nodes {
		out = append(out, orbit.PutNode{Node: nodes[i]})
	}
	return out
}
