package etcdledger

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
)

// A watch that delivers nothing any more, without an error, costs patience once: then another one begins.
func TestDeafWatch(t *testing.T) {
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprint(reads), func(t *testing.T) {
			bubble(t, 2, Options{Timeout: time.Second, Patience: 3 * time.Second, GCInterval: -1}, func(d *desk) {
				a, l := d.ledgers[0], d.ledgers[1]
				d.do(a, node("n", 5), submit("c"))
				d.look(l)
				d.plans[1].hold()
				d.do(a, orbit.Mark{Key: "m", Value: "v"})
				synctest.Wait()
				d.plans[1].mu.Lock()
				d.plans[1].held = nil // the next watch works, and the first one stays silent for ever
				d.plans[1].mu.Unlock()
				var err error
				if reads {
					_, err = l.Snapshot(bg)
				} else {
					_, err = l.Propose(bg, place(1, "c", "nowhere"))
				}
				require.ErrorIs(d, err, orbit.ErrUnavailable)
				time.Sleep(time.Second)
				value, _ := d.look(l).Mark("m")
				require.Equal(d, "v", value)
				d.agree()
			})
		})
	}
}
