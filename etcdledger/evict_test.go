package etcdledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// TestTruce: within the band of priorities that a ledger was made with nobody is evicted for another, through either of two processes; at its borders and
// across them somebody is. A process that is started with another band is refused, so the two cannot judge otherwise.
func TestTruce(t *testing.T) {
	const from, to = 3, 5
	for _, c := range []struct {
		victim, newcomer int32
		evicts           bool
	}{{1, 2, true}, {2, 3, true}, {2, 5, true}, {3, 4, false}, {3, 5, false}, {4, 5, false}, {3, 6, true}, {5, 6, true}, {6, 7, true}, {4, 4, false}, {6, 6, false}} {
		t.Run(fmt.Sprint(c.victim, " for ", c.newcomer), func(t *testing.T) {
			bubble(t, 2, Options{GCInterval: -1, Bounds: orbit.Limits{TruceFrom: from, TruceTo: to}}, func(d *desk) {
				a, b := d.ledgers[0], d.ledgers[1]
				of := func(priority int32) *orbit.Spec {
					return &orbit.Spec{Priority: priority, Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}}
				}
				d.do(a, node("n", 1), orbit.Submit{IDs: []orbit.CapsuleID{"v"}, Spec: of(c.victim)}, orbit.Place{Capsule: "v", Node: "n"})
				d.do(a, orbit.Submit{IDs: []orbit.CapsuleID{"u"}, Spec: of(c.newcomer)})
				s := d.look(b)
				_, err := b.Propose(bg, orbit.Proposal{View: s.Revision(), Do: []orbit.Commitment{
					orbit.Evict{Capsule: "v", From: "n", Since: s.Capsule("v").PlacedAt, For: "u"}, orbit.Place{Capsule: "u", Node: "n"},
				}})
				if c.evicts {
					require.NoError(d, err)
				} else {
					require.ErrorIs(d, err, orbit.ErrInfeasible)
				}
				d.agree()
			})
		})
	}
}
