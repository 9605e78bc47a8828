package logledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

func TestDbg(t *testing.T) {
	store := &logtest.Store{}
	a := open(t, store.Open(logtest.Faults{}), logledger.Options{})
	b := open(t, store.Open(logtest.Faults{}), logledger.Options{})
	for i := range 2000 {
		for k, l := range []*logledger.Ledger{a, b} {
			ctx, c := context.WithTimeout(t.Context(), 3*time.Second)
			_, err := l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint(i), Value: "x"}}})
			if err == nil {
				_, err = l.Propose(ctx, orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: "x"}}})
				if ctx.Err() == nil {
					err = nil
				}
			}
			c()
			if err != nil {
				t.Fatal(i, k, err, "\n", a.Dbg(), "\n", b.Dbg())
			}
		}
	}
	t.Log(a.Dbg(), b.Dbg())
}
