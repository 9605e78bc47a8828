package race_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/sim/race"
)

func TestTmp2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := race.Patience(*patienceSeed)
		var l *orbit.MemoryLedger
		old := r.Ledger
		r.Ledger = func() orbit.Ledger { l = old().(*orbit.MemoryLedger); return l }
		res := r.Run(*patienceSeed)
		fmt.Println(res.Err)
		ch, _ := l.Changes(t.Context(), 0)
		for _, c := range ch {
			if n, ok := c.Do.(orbit.Nominate); ok {
				fmt.Printf("%d %+v\n", c.Revision, n)
			}
			if n, ok := c.Do.(orbit.Place); ok && c.Revision > 60 {
				fmt.Printf("%d %+v\n", c.Revision, n)
			}
		}
		s, _ := l.Snapshot(t.Context())
		for n := range s.Nominations() {
			fmt.Printf("LIVES %+v\n", *n)
		}
		for n := range s.Nodes() {
			fmt.Println(n.Node.ID, n.Node.Capacity, n.Used())
			for c := range s.On(n.Node.ID) {
				fmt.Println("  ", c.ID, c.PlacedAt, c.Spec.Envelope.Reservation[0], c.Spec.Priority)
			}
		}
	})
}
