package etcdledger

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// A server that accepts less than Options say refuses a pack. Then each of its proposals is sent alone, and only one
// that is too large by itself fails, with the reason.
func TestServerTakesLess(t *testing.T) {
	for name, less := range map[string]func(*store){
		"ops":   func(s *store) { s.maxOps = 40 },
		"bytes": func(s *store) { s.maxBytes = 16 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, Options{GCInterval: -1}, func(d *desk) {
				l := d.ledgers[0]
				less(d.store)
				var batch []orbit.Proposal
				for i := range 100 {
					value := strings.Repeat("x", 1000)
					batch = append(batch, orbit.Proposal{ID: idOf(uint64(i + 1)), Do: []orbit.Commitment{orbit.Mark{Key: fmt.Sprint(i), Value: value}}})
				}
				var large []orbit.CapsuleID
				for i := range 100 {
					large = append(large, orbit.CapsuleID(fmt.Sprint(i, strings.Repeat("y", 200))))
				}
				batch = append(batch, orbit.Proposal{ID: idOf(1000), Do: []orbit.Commitment{submit(large...)}})
				out := l.ProposeBatch(bg, batch)
				for i := range 100 {
					require.NoError(d, out[i].Err)
				}
				require.ErrorIs(d, out[100].Err, orbit.ErrInvalid)
				require.ErrorContains(d, out[100].Err, "Options.MaxOps")
				d.do(l, orbit.Mark{Key: "more", Value: "v"})
				d.agree()
			})
		})
	}
	require.True(t, isTooMuch(errors.New("rpc error: code = ResourceExhausted desc = trying to send message larger than max (3145 vs. 2097)")))
}
