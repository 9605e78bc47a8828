package itest

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/etcdledger/itest/audit"
)

// world is one node as the model has it: its slots, and which of its capsules are placed. Each capsule is only ever
// placed on the node that it is for, so nodes are independent of each other.
type world struct {
	Slots  int
	Placed uint16
}

// deed is what a proposal asks of a node, all or nothing; the zero value reads it.
type deed struct {
	Node           int
	Release, Place uint16
	Slots          int // capacity; 0: as it is
}

func (d deed) reads() bool { return d.Release|d.Place == 0 && d.Slots == 0 }

// holds reports whether a ledger must commit the deed.
func (d deed) holds(w world) bool {
	after := d.after(w)
	return d.Release&^w.Placed == 0 && d.Place&w.Placed == 0 && (d.Place == 0 || bits.OnesCount16(after.Placed) <= after.Slots)
}

func (d deed) after(w world) world {
	w.Placed = w.Placed&^d.Release | d.Place
	if d.Slots > 0 {
		w.Slots = d.Slots
	}
	return w
}

// answer is what came of a deed: what was read, or how the proposal was answered.
type answer struct {
	Kind audit.Kind
	Seen world
}

// model is what a history of one node is checked against. A deed whose outcome is not known holds its place in the
// history until its end: it takes effect at some time if it can then, and after all others if it never does.
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

// byNode parts a history.
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

// The model tells what a ledger may answer from what it may not.
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
		{"a stale read", false, []porcupine.Operation{at(0, place(1), committed), at(10, deed{}, answer{Seen: world{2, 0}})}},
		{"a read in time", true, []porcupine.Operation{at(0, place(1), committed), at(3, deed{}, answer{Seen: world{2, 0}})}},
		{"unknown, and applied later", true, []porcupine.Operation{
			forever(at(0, place(1), unknown)), at(10, deed{}, answer{Seen: world{2, 0}}), at(20, deed{}, answer{Seen: world{2, 1}}),
		}},
		{"unknown, and applied twice", false, []porcupine.Operation{
			forever(at(0, place(1), unknown)), at(10, deed{}, answer{Seen: world{2, 1}}), at(20, deed{Release: 1}, committed), at(30, deed{}, answer{Seen: world{2, 1}}),
		}},
	} {
		require.Equal(t, c.ok, porcupine.CheckOperations(model(2), c.history), c.what)
	}
}
