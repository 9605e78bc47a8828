package itest

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
)

// world is the model of one node: its slots, which of its capsules are placed, and the node's mark. Each capsule is only ever
// placed on its own node, so nodes are independent of each other.
type world struct {
	Slots  int
	Placed uint16
	Mark   int
}

// deed is what a proposal asks of a node, all or nothing; the zero value reads the node.
type deed struct {
	Node           int
	Release, Place uint16
	Slots          int // the new capacity; 0: unchanged
	Mark           int // the new value of the mark; 0: unchanged
	Free           int // how many slots must be free before; 0: a bet on that is not made
}

func (d deed) reads() bool { return d.Release|d.Place == 0 && d.Slots == 0 && d.Mark == 0 }

// holds reports whether a ledger must commit the deed.
func (d deed) holds(w world) bool {
	after := d.after(w)
	if d.Free > 0 && w.Slots-bits.OnesCount16(w.Placed) < d.Free {
		return false
	}
	return d.Release&^w.Placed == 0 && d.Place&w.Placed == 0 && (d.Place == 0 || bits.OnesCount16(after.Placed) <= after.Slots)
}

func (d deed) after(w world) world {
	w.Placed = w.Placed&^d.Release | d.Place
	if d.Slots > 0 {
		w.Slots = d.Slots
	}
	if d.Mark > 0 {
		w.Mark = d.Mark
	}
	return w
}

// answer is the result of a deed: what was read, or the kind of the outcome and the revision of the commit.
type answer struct {
	Kind     audit.Kind
	Seen     world
	Revision orbit.Revision
}

// model is the specification for the history of one node. A deed with an unknown outcome stays in the history until its
// end: it may take effect at any time at which it holds, or never.
func model(slots int) porcupine.Model {
	return porcupine.Model{
		Partition: byNode,
		Init:      func() any { return world{Slots: slots} },
		Step: func(state, input, output any) (bool, any) {
			w, d, a := state.(world), input.(deed), output.(answer)
			switch {
			case d.reads():
				return a.Seen == w, w
			case a.Kind == audit.Committed:
				return d.holds(w), d.after(w)
			case a.Kind == audit.Unknown:
				if d.holds(w) {
					w = d.after(w)
				}
				return true, w
			default:
				return !d.holds(w), w
			}
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
	}
}

// byNode divides a history by node.
func byNode(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	for _, op := range history {
		n := op.Input.(deed).Node
		for len(parts) <= n {
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], op)
	}
	return parts
}

// The model accepts right answers and refuses wrong ones.
func TestModel(t *testing.T) {
	place := func(mask uint16) deed { return deed{Place: mask} }
	at := func(call int64, d deed, a answer) porcupine.Operation {
		return porcupine.Operation{Input: d, Output: a, Call: call, Return: call + 5}
	}
	committed, conflict, unknown := answer{Kind: audit.Committed}, answer{Kind: audit.Conflict}, answer{Kind: audit.Unknown}
	forever := func(op porcupine.Operation) porcupine.Operation { op.Return = 1000; return op }
	for _, c := range []struct {
		what    string
		ok      bool
		history []porcupine.Operation
	}{
		{"a full node takes nothing more", true, []porcupine.Operation{at(0, place(3), committed), at(10, place(4), conflict)}},
		{"a node that is not full does", false, []porcupine.Operation{at(0, place(1), committed), at(10, place(4), conflict)}},
		{"oversubscribed", false, []porcupine.Operation{at(0, place(3), committed), at(10, place(4), committed)}},
		{"placed twice", false, []porcupine.Operation{at(0, place(1), committed), at(10, place(1), committed)}},
		{"a bet on a free slot", true, []porcupine.Operation{at(0, place(1), committed), at(10, deed{Mark: 7, Free: 2}, conflict), at(20, deed{Mark: 8, Free: 1}, committed)}},
		{"a bet that was lost", false, []porcupine.Operation{at(0, place(1), committed), at(10, deed{Mark: 7, Free: 2}, committed)}},
		{"a mark that nobody has set", false, []porcupine.Operation{at(0, deed{Mark: 7}, committed), at(10, deed{}, answer{Seen: world{Slots: 2, Mark: 8}})}},
		{"a stale read", false, []porcupine.Operation{at(0, place(1), committed), at(10, deed{}, answer{Seen: world{Slots: 2}})}},
		{"a read in time", true, []porcupine.Operation{at(0, place(1), committed), at(3, deed{}, answer{Seen: world{Slots: 2}})}},
		{"unknown, and applied later", true, []porcupine.Operation{
			forever(at(0, place(1), unknown)), at(10, deed{}, answer{Seen: world{Slots: 2}}), at(20, deed{}, answer{Seen: world{Slots: 2, Placed: 1}}),
		}},
		{"unknown, and applied twice", false, []porcupine.Operation{
			forever(at(0, place(1), unknown)), at(10, deed{}, answer{Seen: world{Slots: 2, Placed: 1}}), at(20, deed{Release: 1}, committed), at(30, deed{}, answer{Seen: world{Slots: 2, Placed: 1}}),
		}},
	} {
		require.Equal(t, c.ok, porcupine.CheckOperations(model(2), c.history), c.what)
	}
}
